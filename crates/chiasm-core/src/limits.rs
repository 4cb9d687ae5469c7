//! Every bound of the core, by name, with the reason for its value.
//!
//! A limit that an operator could need to change is a field of the configuration that defaults to
//! the constant here; the rest are what keeps a hostile peer's cost bounded.

use std::time::Duration;

/// Longest `mm_hash` in bytes. vLLM's are 64 hexadecimal digits; clients may send a uuid of their own.
pub const MAX_MM_HASH_BYTES: usize = 1024;

/// Longest session id that a grant may be keyed by, in bytes. Upstream sends a 36 character uuid.
pub const MAX_SESSION_ID_BYTES: usize = 256;

/// Most extents of one entry. More would make acks grow and reads scatter; the cache evicts further
/// rather than exceed it (blueprint section 5).
pub const MAX_EXTENTS: usize = 64;

/// Deepest nesting that the wire decoder skips inside unknown fields (upstream's recursion error
/// ends its engine at 100,000).
pub const MAX_NESTING: usize = 64;

/// How long an upstream grant lives: `PRODUCER_PIN_LEASE_S` of vLLM 0.33.
pub const UPSTREAM_LEASE: Duration = Duration::from_secs(30);
