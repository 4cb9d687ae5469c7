//! Nodes against each other over real sockets and real shared memory.

mod fixtures;
mod transfer;
