//! Behaviour of regions as other crates and other processes see it.

mod bytes;
mod child;
mod failures;
mod hazards;
mod headers;
mod hostile;
mod join;
mod lent;
mod lifetime;
mod namespaces;
mod node_life;
mod peers;
mod placement;
mod small_tmpfs;
mod sockets;
mod status_socket;
mod support;
mod workers;
