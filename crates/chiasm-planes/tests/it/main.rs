//! The planes over real sockets and real regions.

mod answers;
mod lease;
mod moving;
mod requests;
mod slices;
mod support;
