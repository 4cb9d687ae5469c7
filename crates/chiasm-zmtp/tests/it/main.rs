//! What a peer and an owner see of this crate, one module per subject.

mod close_reason;
mod deadlines;
mod handshake;
mod hostile;
mod interop;
mod link;
mod messages;
mod router;
mod wire;
