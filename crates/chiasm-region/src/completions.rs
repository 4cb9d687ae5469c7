//! The node's end of the completion rings.
//!
//! It must never take more from one ring at a time than the ring holds: a worker that writes without
//! end gets its share and no more.

use chiasm_core::dispatch::{MAX_RANKS, Rank, Report};

use crate::header_area::{self, SLOTS};
use crate::region::Region;
use crate::ring::record;
use crate::sleep;

/// How far the node has read each ring. One for each region that was
/// [claimed](Region::claim_node), used with no other.
#[derive(Debug, Default)]
pub struct Completions {
    consumed: [u64; MAX_RANKS as usize],
    garbage: u64,
}

/// Which process is a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerLife {
    /// None.
    Absent,
    /// The process with this number, counted up by each that becomes the rank.
    Alive(u64),
}

impl Completions {
    /// Nothing has been read.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what the rings hold, rank by rank, at most 64 reports of each. Whether there are such
    /// orders is for the caller to judge.
    pub fn take(&mut self, region: &Region) -> Vec<Report> {
        let mut reports = Vec::new();
        for rank in Rank::all() {
            let ring = header_area::ring(region, rank);
            let consumed = &mut self.consumed[rank.index()];
            for _ in 0..SLOTS {
                let Some(words) = ring.pop(consumed) else { break };
                match record::decode(words, rank) {
                    Some(report) => reports.push(report),
                    None => self.garbage += 1,
                }
            }
        }
        reports
    }

    /// Records that were no report of their ring's rank.
    #[must_use]
    pub fn garbage(&self) -> u64 {
        self.garbage
    }

    /// From now on workers wake the node for each report, through its [`wake_socket`]. False if there
    /// are reports to take first, and then they do not. To be called before every sleep;
    /// [`Completions::awake`] after it.
    ///
    /// [`wake_socket`]: crate::wake_socket
    #[must_use]
    pub fn may_sleep(&self, region: &Region) -> bool {
        let has_records = || {
            Rank::all()
                .any(|rank| header_area::ring(region, rank).has_record(self.consumed[rank.index()]))
        };
        sleep::may_sleep(&header_area::board(region), has_records)
    }

    /// Workers need not wake the node: it takes reports before it sleeps.
    pub fn awake(&self, region: &Region) {
        sleep::awake(&header_area::board(region));
    }

    /// Who is `rank` now. A rank whose lock cannot be looked at counts as alive: nothing is freed on a
    /// guess.
    #[must_use]
    pub fn worker(&self, region: &Region, rank: Rank) -> WorkerLife {
        if region.is_claimed(header_area::ring_at(rank)).unwrap_or(true) {
            WorkerLife::Alive(header_area::ring(region, rank).life())
        } else {
            WorkerLife::Absent
        }
    }
}
