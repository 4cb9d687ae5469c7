//! What an operator should hear about dispatches, as values. The owner turns them into log lines.

use std::time::Duration;

use super::rank::{Rank, RankSet};
use crate::mm_hash::MmHash;

/// One log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// WARN: a save was not reported in time. Its blocks are in quarantine until its worker reports
    /// it after all, or is dead.
    SaveLost {
        /// What was to be saved.
        hash: MmHash,
        /// Who was to save it.
        rank: Rank,
        /// How long ago it was dispatched.
        waited: Duration,
        /// Blocks that cannot be used meanwhile.
        blocks: u32,
    },
    /// WARN, once per load: it has not been reported by these ranks in time. Its entry stays pinned
    /// until they report it, or are dead: a late copy of blocks with other bytes would be a wrong
    /// embedding.
    LoadLate {
        /// What is being loaded.
        hash: MmHash,
        /// Who has not reported.
        ranks: RankSet,
        /// How long ago it was dispatched.
        waited: Duration,
    },
    /// WARN: a worker said that a save failed, or reported another length than was ordered.
    SaveFailed {
        /// What was to be saved.
        hash: MmHash,
        /// Who was to save it.
        rank: Rank,
    },
    /// WARN: a worker ended while it had orders.
    WorkerGone {
        /// Which.
        rank: Rank,
        /// Saves that are lost.
        saves: usize,
        /// Loads that it had not reported.
        loads: usize,
    },
}
