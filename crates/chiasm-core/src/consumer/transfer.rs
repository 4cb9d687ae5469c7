//! One transfer: what is wanted, and how far its one attempt has come.

use super::ack_check::AgreedRead;
use crate::cache::EntryKey;
use crate::dtype::Dtype;
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

/// One transfer: one attempt to read one entry from one source. Never used again in one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// What is to be read, from an announcement that has been checked and a source that is approved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wanted {
    /// Its identifier.
    pub hash: MmHash,
    /// The endpoint that the announcement names, which is on the allowlist.
    pub source: Endpoint,
    /// Announced rows.
    pub rows: u32,
    /// Announced elements per row.
    pub width: u32,
    /// Announced size in blocks.
    pub blocks: u32,
    /// The model's element type, where known.
    pub dtype: Option<Dtype>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// The request waits for the link, or for its ack.
    Asking { deadline: Nanos },
    /// A plane writes into the entry's blocks.
    Reading(Reading),
    /// The outcome has been told; the plane has not let go of the blocks yet.
    Settling { entry: EntryKey },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The staging entry that the bytes land in.
    pub(super) entry: EntryKey,
    pub(super) agreed: AgreedRead,
    /// Without a digest the bytes count only if they have landed before this instant (S2).
    pub(super) lease_end: Nanos,
    pub(super) deadline: Nanos,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) wanted: Wanted,
    pub(super) state: State,
}
