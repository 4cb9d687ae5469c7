//! The sans-IO heart of Chiasm: wire format, endpoints, allowlist, announcements, block cache,
//! producer and consumer machines.
//!
//! Nothing in this crate does IO, reads a clock, starts a thread or keeps global state. Every
//! machine has the same shape: hand it an input together with `now`, then drain its actions until
//! there are none, and come back no later than its next timeout. Randomness is a seeded generator
//! that is passed in. So the same code runs in a node and in a simulator, and a failure is a seed.
#![forbid(unsafe_code)]

pub mod admission;
pub mod allowlist;
pub mod announcement;
pub mod byte_size;
pub mod cache;
pub mod config;
pub mod consumer;
pub mod digest;
pub mod dispatch;
pub mod dtype;
pub mod endpoint;
pub mod entry;
pub mod excerpt;
pub mod extent;
pub mod host_hint;
pub mod identity;
pub mod instance;
pub mod latency;
pub mod limits;
pub mod mm_hash;
pub mod plane;
pub mod producer;
pub mod reclaim;
pub mod time;
pub mod wire;
