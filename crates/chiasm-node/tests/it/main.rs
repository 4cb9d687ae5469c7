//! Nodes against each other over real sockets and real shared memory.

mod allowlist;
mod fixtures;
mod hostile;
mod transfer;
