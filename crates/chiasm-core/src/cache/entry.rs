//! One entry as its readers see it. Only the cache changes it.

use super::eviction::Ticket;
use crate::digest::Digest;
use crate::entry::EntryMeta;
use crate::extent::Extent;
use crate::mm_hash::MmHash;

/// What may be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryState {
    /// Its bytes are still to land: a local save, or a remote read into a staging entry. Cannot be
    /// pinned, served or evicted.
    NotReady,
    /// All its bytes have landed (S3). Evictable while it has no pin.
    Ready,
    /// A lost save or read may still write into its blocks. Nothing finds it any more and nothing but
    /// [`release_quarantined`](super::Cache::release_quarantined) frees it.
    Quarantined,
}

/// The blocks of one `mm_hash`, and what is known about them.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(super) generation: u64,
    pub(super) hash: MmHash,
    pub(super) meta: EntryMeta,
    pub(super) extents: Box<[Extent]>,
    pub(super) blocks: u32,
    pub(super) state: EntryState,
    pub(super) published: bool,
    pub(super) pins: u32,
    pub(super) digest: Option<Digest>,
    /// Its place in the order of eviction; there exactly while the entry is evictable.
    pub(super) ticket: Option<Ticket>,
}

impl Entry {
    /// The identifier of the encoder output.
    #[must_use]
    pub fn hash(&self) -> &MmHash {
        &self.hash
    }

    /// Shape, element type and exact size.
    #[must_use]
    pub fn meta(&self) -> &EntryMeta {
        &self.meta
    }

    /// The blocks in the order of the entry's bytes: ascending, not adjacent to each other, at most
    /// [`MAX_EXTENTS`](crate::limits::MAX_EXTENTS); none for an entry of no blocks.
    #[must_use]
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Number of blocks in all extents.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Whether its bytes are there.
    #[must_use]
    pub fn state(&self) -> EntryState {
        self.state
    }

    /// How many times it is pinned. Only a ready entry has pins.
    #[must_use]
    pub fn pins(&self) -> u32 {
        self.pins
    }

    /// The content digest, where it was known when the entry became ready.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Whether its hash leads to it: a local save from the start, a remote read from
    /// [`publish`](super::Cache::publish) on, a quarantined entry never.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.published
    }
}
