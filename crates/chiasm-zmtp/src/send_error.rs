//! Why a payload was not queued. Nothing has changed then, except that the payload is gone.

use thiserror::Error;

/// Why a payload was not queued.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum SendError {
    /// The handshake is not finished: libzmq drops a peer that talks before that.
    #[error("the handshake with the peer is not finished")]
    NotReady,
    /// The connection is closed, or the id names none.
    #[error("the connection is closed")]
    Closed,
    /// The peer reads too slowly, or the payload is larger than the whole queue may be.
    #[error(
        "{needed} more bytes do not fit into the output queue: {queued} are queued, \
         max_output_bytes is {limit}"
    )]
    OutputFull {
        /// Bytes that the message takes on the wire.
        needed: usize,
        /// Bytes queued and not yet written.
        queued: usize,
        /// The limit in force.
        limit: usize,
    },
}
