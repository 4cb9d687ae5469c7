//! The board in a region's header: whether the node sleeps, so that a worker wakes it only then, and
//! whether there has been a node.
//!
//! A worker stores a record and then looks at the flag; the node stores the flag and then looks for
//! records. With a sequentially consistent fence between the two steps on either side, one of them
//! sees what the other has stored, so no wake-up is lost. Only the node writes the flag: a worker that
//! dies before it has sent its datagram takes nobody else's wake-up along.

use std::sync::atomic::Ordering;

use crate::ring::words::Words;

/// Words of the board.
pub(crate) const BOARD_WORDS: usize = 16;

/// 1 once a node has claimed the region. Written under the claim's lock.
const HAD_NODE: usize = 0;
/// 1 while the node sleeps or is about to. On a cache line of its own.
const SLEEPING: usize = 8;

/// Node: whether it may sleep; if not, there are records to take. It is to be called before every
/// sleep, and [`awake`] after.
pub(crate) fn may_sleep(board: &impl Words, has_records: impl FnOnce() -> bool) -> bool {
    board.store(SLEEPING, 1, Ordering::Relaxed);
    board.fence();
    if has_records() {
        awake(board);
        return false;
    }
    true
}

/// Node: it looks at the rings from here on.
pub(crate) fn awake(board: &impl Words) {
    board.store(SLEEPING, 0, Ordering::Relaxed);
}

/// Worker, after a record: whether the node has to be woken for it.
pub(crate) fn must_wake(board: &impl Words) -> bool {
    board.fence();
    board.load(SLEEPING, Ordering::Relaxed) != 0
}

/// Whether a node has claimed the region, now or earlier.
pub(crate) fn had_node(board: &impl Words) -> bool {
    board.load(HAD_NODE, Ordering::Acquire) != 0
}

/// A node claims the region.
pub(crate) fn note_node(board: &impl Words) {
    board.store(HAD_NODE, 1, Ordering::Release);
}
