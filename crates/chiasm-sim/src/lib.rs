//! Deterministic simulation of whole fleets: many nodes in one process, with simulated time, network,
//! memory, workers, engines and clients, and everything that can go wrong, from one seed.
//!
//! The parts that decide are the product's own: [`chiasm_core`]'s instance and [`chiasm_zmtp`]'s links
//! and routers, over encoded bytes. What needs a machine is modelled: sockets, data planes, memory,
//! workers, engines. After every step the promises of the product are checked, by books of the
//! simulator's own; a promise that breaks is a seed.
//!
//! It must never read a clock, use threads, or take chance from anywhere but its seed (S10).
#![forbid(unsafe_code)]

mod checks;
mod clients;
mod content;
mod drive;
mod engine;
pub mod fault;
pub mod fleet;
mod grants;
mod host;
mod hostile_consumer;
mod hostile_producer;
mod memory;
mod network;
mod nixl;
mod node;
mod phases;
mod plan;
mod planes;
mod process;
mod queue;
pub mod random;
mod region_steps;
mod run;
pub mod setup;
pub mod shrink;
pub mod stats;
pub mod tally;
mod trace;
pub mod violation;
mod wires;
mod workers;
mod world;

pub use run::{Outcome, Run};
