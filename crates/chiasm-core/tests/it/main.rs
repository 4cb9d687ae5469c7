//! The core's integration tests, one module per behaviour.

mod allowlist;
mod announcement;
mod endpoint;
mod identity;
