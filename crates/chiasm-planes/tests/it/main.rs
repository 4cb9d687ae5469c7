//! The planes over real sockets and real regions.

mod answers;
mod copies;
mod lease;
mod moving;
mod neighbours;
mod owner;
mod requests;
mod slices;
mod support;
