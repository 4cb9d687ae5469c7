//! What lies in the header area behind the header proper, and who may touch it.
//!
//! | at | bytes | what | who writes |
//! |---|---|---|---|
//! | 256 | 128 | the board: whether the node sleeps, whether there was one | the node |
//! | 384 | 16 | the mark of the endpoint that the node serves at, zero while it serves nowhere | the node |
//! | 4096 + 3840 x rank | 3840 | the completion ring of the rank | its worker; the node says how far it has read |
//!
//! The bytes in between and behind are zero. The lock on byte 256 is the node's, that on the first
//! byte of a ring its worker's (`claim`).

use chiasm_core::dispatch::{MAX_RANKS, Rank};

use crate::geometry::HEADER_AREA_BYTES;
use crate::header::HEADER_BYTES;
use crate::region::Region;
use crate::ring::Ring;
use crate::ring::record::RECORD_WORDS;
use crate::shared_words::SharedWords;
use crate::sleep::BOARD_WORDS;

/// Where the board lies, and the byte whose lock is the node's.
pub(crate) const BOARD_AT: usize = HEADER_BYTES;

/// Where the mark of the node's endpoint lies.
pub(crate) const SERVING_AT: usize = BOARD_AT + 8 * BOARD_WORDS;

/// Bytes of that mark.
pub(crate) const SERVING_BYTES: usize = 16;

const RINGS_AT: usize = 4096;

const RING_BYTES: usize = 3840;

/// Records that a ring holds. A worker that reports this many while the node does not run has to
/// wait.
pub(crate) const SLOTS: usize = 64;

/// The ring of one rank, in shared memory.
pub(crate) type CompletionRing<'a> = Ring<SharedWords<'a>, SLOTS, RECORD_WORDS>;

const _: () = assert!(SERVING_AT + SERVING_BYTES <= RINGS_AT);
const _: () = assert!(8 * CompletionRing::<'_>::WORDS_IN_ALL <= RING_BYTES);
const _: () = assert!((RINGS_AT + RING_BYTES * MAX_RANKS as usize) as u64 <= HEADER_AREA_BYTES);

/// The board of a region that is mapped for writing.
pub(crate) fn board(region: &Region) -> SharedWords<'_> {
    SharedWords::new(region.bytes(), BOARD_AT, BOARD_WORDS)
}

/// The ring of `rank` of a region that is mapped for writing.
pub(crate) fn ring(region: &Region, rank: Rank) -> CompletionRing<'_> {
    let words = CompletionRing::WORDS_IN_ALL;
    Ring(SharedWords::new(region.bytes(), ring_at(rank), words))
}

/// Where the ring of `rank` lies, and the byte whose lock is its worker's.
pub(crate) fn ring_at(rank: Rank) -> usize {
    RINGS_AT + RING_BYTES * rank.index()
}
