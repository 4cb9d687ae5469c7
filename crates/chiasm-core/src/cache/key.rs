//! The handle of one entry. It never leads to another entry than the one it was made for.

use std::fmt;

/// Where an entry lives (`index`) and which entry it is (`generation`).
///
/// Every entry that a [`Cache`](super::Cache) ever makes has a generation of its own, so a key whose
/// entry is gone is refused even when its slot has a new tenant. That is what lets a completion
/// record that arrives late be told from one that is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    generation: u64,
    index: u32,
}

impl EntryKey {
    /// The key with these parts, as a completion record carries them. It need not belong to any
    /// entry: the cache checks it at each use.
    #[must_use]
    pub const fn from_parts(index: u32, generation: u64) -> Self {
        Self { generation, index }
    }

    /// The slot. Slots are used again.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// The number of the entry, from 1 in the order of creation. Never used again.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.generation
    }
}

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.index, self.generation)
    }
}
