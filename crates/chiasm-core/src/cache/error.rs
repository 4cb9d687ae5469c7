//! Why the cache refused an operation. A refused operation changes nothing.

use super::key::EntryKey;
use crate::limits::MAX_EXTENTS;

/// Why no entry was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// The encoder output is larger than the whole region: `ec_cpu_bytes` is too small for it.
    #[error("{needed} blocks are more than the region's {region}: raise ec_cpu_bytes")]
    TooLarge {
        /// Blocks asked for.
        needed: u32,
        /// Blocks of the region.
        region: u32,
    },
    /// The hash is saved or being saved already.
    #[error("an entry of this hash exists ({key})")]
    Duplicate {
        /// The entry that has the name.
        key: EntryKey,
    },
    /// Too much is in use now; it passes when entries are unpinned, discarded or released. Nothing was
    /// evicted. Where `free + evictable` would be enough, what is in use lies so scattered that the
    /// rest cannot be had in few enough extents, or there are as many entries as blocks.
    #[error(
        "no room for {needed} blocks in at most {MAX_EXTENTS} extents: {free} are free, {evictable} can be evicted"
    )]
    Full {
        /// Blocks asked for.
        needed: u32,
        /// Blocks that belong to no entry.
        free: u32,
        /// Blocks of entries that are ready and not pinned.
        evictable: u32,
    },
}

/// Why an entry's state did not change. All of them are mistakes of the caller, or a report that
/// came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The entry was evicted, discarded or released.
    #[error("no entry has this key any more ({0})")]
    UnknownKey(EntryKey),
    /// Pin, unpin or evict before the bytes have landed.
    #[error("the entry is not ready ({0})")]
    NotReady(EntryKey),
    /// The operation is for an entry whose bytes are still to land.
    #[error("the entry is ready already ({0})")]
    AlreadyReady(EntryKey),
    /// A quarantined entry can only be released.
    #[error("the entry is quarantined ({0})")]
    Quarantined(EntryKey),
    /// Only a quarantined entry is released.
    #[error("the entry is not quarantined ({0})")]
    NotQuarantined(EntryKey),
    /// A remote read becomes ready by being published, not by being marked.
    #[error("the entry is unpublished ({0})")]
    Unpublished(EntryKey),
    /// A local save has its name already: it is marked ready, not published.
    #[error("the entry was never staged ({0})")]
    NotStaged(EntryKey),
    /// A pinned entry is being read and stays.
    #[error("the entry is pinned ({0})")]
    Pinned(EntryKey),
    /// More unpins than pins.
    #[error("the entry is not pinned ({0})")]
    NotPinned(EntryKey),
    /// `u32::MAX` pins are a leak of pins, not a use of them.
    #[error("the entry has too many pins ({0})")]
    TooManyPins(EntryKey),
}

/// Why a staging entry was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// Another entry of the hash is ready: two sources delivered it, or it was saved here meanwhile.
    /// Compare the digests, then discard.
    #[error("a ready entry of this hash exists ({0})")]
    AlreadyPublished(EntryKey),
    /// A local save of the hash has the name and is not ready. Publish again when it is ready or gone.
    #[error("a save of this hash is under way ({0})")]
    SavePending(EntryKey),
    /// The entry is not a staging entry that waits for its bytes.
    #[error(transparent)]
    State(#[from] StateError),
}
