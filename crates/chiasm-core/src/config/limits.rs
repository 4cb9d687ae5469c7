//! Every bound of the configuration, by name, with the reason for its value.

use std::time::Duration;

/// Longest `engine_id` in bytes. vLLM's own are 36 characters; pod names have at most 63. It becomes
/// a part of the NIXL agent name, which peers keep.
pub const MAX_ENGINE_ID_BYTES: usize = 128;

/// Largest region in bytes: the largest size of a file.
pub const MAX_REGION_BYTES: u64 = i64::MAX.unsigned_abs();

/// Shortest time that can be set. Below it a message does not get there and back.
pub const SHORTEST: Duration = Duration::from_millis(10);

/// Longest time that can be set: a day. Nothing here is meant to outlive one, and arithmetic on
/// instants stays far from its end.
pub const LONGEST: Duration = Duration::from_hours(24);

/// Most interfaces that can be named: twice as many as the largest machines have.
pub const MAX_INTERFACES: usize = 32;

/// Longest name of an interface in bytes: Linux has 15, RDMA devices 63, with a port behind it.
pub const MAX_INTERFACE_BYTES: usize = 70;

/// Longest path that can be set, in bytes: the system's limit.
pub const MAX_PATH_BYTES: usize = 4095;

/// Problems that are kept, and warnings likewise; the rest are counted. More than a person reads,
/// and few enough that a hostile file costs no memory.
pub const MAX_FINDINGS: usize = 256;

/// Longest unknown key that is compared with the valid ones, in characters: three times the longest
/// of those. What is longer is nobody's spelling of them.
pub const MAX_COMPARED_CHARS: usize = 80;
