//! ZMTP 3.1 (NULL mechanism, ROUTER and DEALER) without IO: bytes in, bytes and events out.
//!
//! This crate never opens a socket, reads a clock, starts a thread or resolves a name. The owner of
//! a socket feeds the bytes that it read to [`Connection::receive`], writes what
//! [`Connection::output`] shows, calls [`Connection::handle_timeout`] no later than
//! [`Connection::poll_timeout`], and after each of these drains [`Connection::poll_event`].
//!
//! * [`Connection`]: one connection, either role, from greeting to close.
//! * [`Router`]: the bound side, many connections, with caps and one timer index.
//! * [`Link`]: the connecting side, one endpoint across losses, with back-off.
//!
//! A message is one payload in the envelope `[empty frame][payload frame]`, in both directions.
//! That is what upstream's DEALER sends and what its ROUTER answers; anything else closes the
//! connection that sent it, and no other.
//!
//! No bytes from a peer can panic, recurse, or make memory grow past [`Limits`] (S7): each size is
//! judged when it is announced, and buffers grow only with bytes that have really arrived.
#![forbid(unsafe_code)]

mod close_reason;
mod command;
mod connection;
mod frame;
mod greeting;
mod inbound;
mod limits;
mod link;
mod outbound;
mod router;
mod send_error;
mod socket_type;

pub use close_reason::{CloseReason, EnvelopeProblem};
pub use connection::{Connection, Event, Peer};
pub use limits::{Limits, LinkLimits, RouterLimits};
pub use link::{Link, LinkEvent};
pub use router::{ConnectionId, Router};
pub use send_error::SendError;
pub use socket_type::{Role, SocketType};
