//! Nodes against each other over real sockets and real shared memory.

mod allowlist;
mod drain;
mod faults;
mod fixtures;
mod hostile;
mod status;
mod transfer;
