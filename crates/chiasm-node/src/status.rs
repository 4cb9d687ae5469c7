//! What a live node says about itself: one JSON object over a Unix socket beside its region.
//!
//! The socket is `<region>.status`, mode 0600 from the first moment on, and lives inside the region's
//! life ([`chiasm_region::status_socket`]; docs/adr/0007-status-socket.md). The node's thread serves
//! it between its other work. Whatever a local client does, it must never make the node wait, grow or
//! spin: few conversations, each short, small and paced.

mod ask;
mod nixl;
mod report;
mod serve;
mod socket;

pub use self::ask::{AskError, ask, sockets};

pub(crate) use self::report::{Life, Parts, Report, word};
pub(crate) use self::serve::{Ask, Server};
pub(crate) use self::socket::StatusSocket;

/// The only request there is, as a line. Others are answered with an error, so that there can be more.
const REQUEST: &[u8] = b"status\n";
