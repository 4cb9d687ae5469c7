//! A run of adjacent blocks of a region.

use std::fmt;

/// Blocks `first .. first + count` of one region. `count` is never zero and the end never passes
/// `u32::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    first: u32,
    count: u32,
}

impl Extent {
    /// The run of `count` blocks from `first` on; `None` if it is empty or its end overflows.
    #[must_use]
    pub const fn new(first: u32, count: u32) -> Option<Self> {
        if count == 0 || first.checked_add(count).is_none() {
            return None;
        }
        Some(Self { first, count })
    }

    /// Index of the first block.
    #[must_use]
    pub const fn first(self) -> u32 {
        self.first
    }

    /// Number of blocks, at least one.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Index after the last block.
    #[must_use]
    pub const fn end(self) -> u32 {
        self.first + self.count
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}+{}]", self.first, self.count)
    }
}

/// Number of blocks in all of `extents`.
#[must_use]
pub fn blocks_in(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.count)).sum()
}
