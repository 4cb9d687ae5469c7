//! How often a node's thread has asked the system for something: what a transfer costs beside its copy.
//!
//! It must never cost more than what it counts: additions by the one thread, published once in a turn.

/// System calls of a node's thread on its sockets, since the start. Copies between mappings are none;
/// what NIXL helpers and the status socket cost is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// Turns: waits for sockets, timers and other threads, those included that did not have to wait.
    pub turns: u64,
    /// Turns in which it said that it sleeps.
    pub sleeps: u64,
    /// Reads from control connections and data streams, those included that found nothing.
    pub reads: u64,
    /// Writes to them.
    pub writes: u64,
    /// Changes of what a socket is waited for.
    pub interests: u64,
    /// Times that another thread of this process woke it by a system call.
    pub wake_ups: u64,
}
