//! One transfer: what is wanted, and how far its one attempt has come.

use super::ack_check::AgreedRead;
use crate::cache::EntryKey;
use crate::dtype::Dtype;
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::plane::Plane;
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
    Settling { entry: EntryKey, held: Option<Held> },
}

/// A grant at the producer, by all that names it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Number of the connection that it was given to.
    pub(super) session: u64,
    /// Which of its session ids.
    pub(super) generation: u32,
    /// The latest request that it answered.
    pub(super) attempt: u32,
    /// Its plane, where that is one which was offered.
    pub(super) plane: Option<Plane>,
}

impl Held {
    /// Whether both may be of one grant, the hash and the producer being the same: one whose plane is
    /// not known may be that of any.
    pub(super) fn is_of(self, other: Self) -> bool {
        let planes = self.plane.zip(other.plane);
        let same_plane = planes.is_none_or(|(mine, theirs)| mine == theirs);
        (self.session, self.generation) == (other.session, other.generation) && same_plane
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// The staging entry that the bytes land in.
    pub(super) entry: EntryKey,
    pub(super) agreed: AgreedRead,
    /// `None`: an upstream producer's, which learns of the end of the read from NIXL, if at all.
    pub(super) held: Option<Held>,
    /// Without a digest the bytes count only if they have landed before this instant (S2).
    pub(super) lease_end: Nanos,
    /// When the ack came.
    pub(super) since: Nanos,
    pub(super) deadline: Nanos,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) wanted: Wanted,
    pub(super) state: State,
}
