//! The tcp plane: one stream carries the bytes of many grants, one after the other.
//!
//! Streams go to the same host and port as the control socket; the first byte tells the two apart
//! (PROTOCOL 42). Bytes go from the producer's mapping into the socket and from the socket into the
//! consumer's blocks without a stop in between. Both ends work in slices, so that one large entry
//! holds up nobody.

mod frame;
mod read;
mod serve;

pub use self::frame::{FIRST_BYTE, MAX_PIPELINED};
pub use self::read::{ReadJob, ReadStream};
pub use self::serve::{ServeStream, Serving};

/// How a stream stands after a slice of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing more can be done until the socket is readable or writable, whichever the stream wants.
    Blocked,
    /// The slice is used up; there is more to do.
    Yielded,
    /// The stream is over, for this reason.
    Closed(String),
}

/// System calls on a stream's socket, those included that found nothing or had no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// To receive.
    pub reads: u64,
    /// To send.
    pub writes: u64,
}

/// Most bytes that one slice of work moves, so that a node's thread is never away for long.
pub const SLICE_BYTES: usize = 1 << 20;
