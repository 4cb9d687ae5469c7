//! What the entries of a simulated fleet hold, so that every block can be recognised wherever it
//! turns up.
//!
//! A block is one word here. That of an entry follows from which entry it is and which of its blocks;
//! everything else that is ever written is a word that occurs nowhere else.

use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;

use crate::random::{Random, mix};

/// One encoder output of a simulated fleet.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) number: usize,
    pub(crate) hash: MmHash,
    pub(crate) meta: EntryMeta,
    pub(crate) blocks: u32,
    /// The digest of it as another encoder has it.
    pub(crate) other: Digest,
}

/// All encoder outputs that a run knows, by number.
#[derive(Clone, Debug)]
pub(crate) struct Catalogue {
    contents: Vec<Content>,
    block_size_bytes: u64,
}

impl Catalogue {
    pub(crate) fn new(block_size_bytes: u64) -> Self {
        Self { contents: Vec::new(), block_size_bytes }
    }

    pub(crate) fn block_size_bytes(&self) -> u64 {
        self.block_size_bytes
    }

    /// Adds an encoder output of this shape; its number.
    pub(crate) fn add(&mut self, rows: u32, width: u32) -> usize {
        let number = self.contents.len();
        let hash = MmHash::new(&format!("mm{number:05}")).expect("a short name is a hash");
        let meta =
            EntryMeta::new(rows, width, Dtype::Float16).expect("small sizes do not overflow");
        let blocks = meta.blocks(self.block_size_bytes).expect("small sizes do not overflow");
        let other = digest_of((0..blocks as usize).map(|at| word(number + OTHER, at)));
        self.contents.push(Content { number, hash, meta, blocks, other });
        number
    }

    /// Adds one of `blocks` blocks or a little less, of whatever shape.
    pub(crate) fn add_random(&mut self, blocks: u32, random: &mut Random) -> usize {
        // Rows that do not fill their blocks are as good as any.
        let width = *random.pick(&[20, 24, 32]).unwrap_or(&32);
        let bytes = u64::from(blocks) * self.block_size_bytes;
        let rows = u32::try_from(bytes / (u64::from(width) * 2)).unwrap_or(1).max(1);
        self.add(rows, width)
    }

    pub(crate) fn len(&self) -> usize {
        self.contents.len()
    }

    pub(crate) fn content(&self, number: usize) -> &Content {
        &self.contents[number]
    }

    /// The number of the entry that bears this hash, if it is one of ours.
    pub(crate) fn number_of(&self, hash: &str) -> Option<usize> {
        let number = hash.strip_prefix("mm")?.parse().ok()?;
        (number < self.contents.len() && hash.len() == 7).then_some(number)
    }
}

/// Added to an entry's number: the same encoder output as another encoder has it, with other bytes.
pub(crate) const OTHER: usize = 1 << 20;

/// The word of one block of an entry.
pub(crate) const fn word(number: usize, block: usize) -> u64 {
    mix(((number as u64 + 1) << 32) | block as u64) >> 1
}

/// A word that is no entry's.
pub(crate) const fn junk(count: u64) -> u64 {
    (1 << 63) | count
}

/// A digest of an entry's words that depends on all of them and their order.
pub(crate) fn digest_of(words: impl IntoIterator<Item = u64>) -> Digest {
    let (mut low, mut high) = (1_u64, 2_u64);
    for word in words {
        low = mix(low ^ word);
        high = mix(high.rotate_left(9) ^ low);
    }
    let mut digest = [0; 16];
    let halves = low.to_le_bytes().into_iter().chain(high.to_le_bytes());
    for (to, from) in digest.iter_mut().zip(halves) {
        *to = from;
    }
    Digest(digest)
}
