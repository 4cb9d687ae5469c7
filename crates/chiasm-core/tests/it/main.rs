//! The core's integration tests, one module per behaviour.

mod admission;
mod allowlist;
mod announcement;
mod cache;
mod config;
mod conformance_admission;
mod conformance_announcements;
mod conformance_constants;
mod conformance_offload;
mod conformance_pair;
mod conformance_transfers;
mod consumer;
mod dispatch;
mod endpoint;
mod exchange;
mod found_by_simulation;
mod hazards;
mod identity;
mod producer;
mod wire_done;
mod wire_extension;
mod wire_golden;
mod wire_hostile;
mod wire_memdesc;
mod wire_roundtrip;
mod wire_vectors;
