//! Nodes against each other over real sockets and real shared memory.

mod allowlist;
mod child;
mod drain;
mod examples;
mod faults;
mod fixtures;
mod hazards;
mod hostile;
mod puppet;
mod shm;
mod status;
mod stress;
mod transfer;
mod workers;
