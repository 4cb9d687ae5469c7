//! A region's memory: one word per block, and which of them are under a live grant.

use chiasm_core::extent::Extent;

use crate::content::junk;
use crate::violation::{Promise, Step, ensure};

/// The memory of one life of one node.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    words: Vec<u64>,
    /// How many live grants each block is under, by the simulator's own books.
    granted: Vec<u16>,
}

impl Memory {
    /// Memory as a new file has it.
    pub(crate) fn new(blocks: u32) -> Self {
        let blocks = blocks as usize;
        Self { words: vec![0; blocks], granted: vec![0; blocks] }
    }

    /// The word of a block; junk outside the region.
    pub(crate) fn read(&self, block: u32) -> u64 {
        self.words.get(block as usize).copied().unwrap_or(junk(0))
    }

    /// Somebody writes into a block. S2: not while a grant promises that it does not change.
    pub(crate) fn write(&mut self, block: u32, word: u64, who: &str) -> Step {
        let granted = self.granted.get(block as usize).copied().unwrap_or(0);
        ensure(granted == 0, Promise::S2, || {
            format!("{who} writes into block {block}, which is under {granted} live grants")
        })?;
        if let Some(slot) = self.words.get_mut(block as usize) {
            *slot = word;
        }
        Ok(())
    }

    /// These blocks are under one more grant, or one less.
    pub(crate) fn grant(&mut self, extents: &[Extent], more: bool) {
        for block in blocks_of(extents) {
            if let Some(count) = self.granted.get_mut(block as usize) {
                *count = if more { *count + 1 } else { count.saturating_sub(1) };
            }
        }
    }
}

/// The blocks of an entry, in order.
pub(crate) fn blocks_of(extents: &[Extent]) -> impl Iterator<Item = u32> + '_ {
    extents.iter().flat_map(|extent| extent.first()..extent.end())
}
