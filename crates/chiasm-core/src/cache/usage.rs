//! How the region is used, in numbers.

/// A snapshot of the counters. `free + live + quarantined == total` always (S4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Blocks of the region.
    pub total: u32,
    /// Blocks that belong to no entry.
    pub free: u32,
    /// Blocks of entries that are ready or not ready.
    pub live: u32,
    /// Blocks that a lost save or read may still write into.
    pub quarantined: u32,
    /// Blocks of entries that are ready and have no pin: a part of `live`.
    pub evictable: u32,
    /// Entries that are ready or not ready; quarantined ones are not counted.
    pub entries: usize,
    /// Entries with at least one pin.
    pub pinned_entries: usize,
}
