//! The core's integration tests, one module per behaviour.

mod allowlist;
mod announcement;
mod cache;
mod endpoint;
mod identity;
mod wire_extension;
mod wire_golden;
mod wire_hostile;
mod wire_memdesc;
mod wire_roundtrip;
mod wire_vectors;
