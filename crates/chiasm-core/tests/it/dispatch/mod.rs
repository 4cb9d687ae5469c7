//! Orders to workers, and what becomes of them.

mod lives;
mod model;
mod orders;

use std::time::Duration;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::dispatch::{Dispatches, Order, Outcome, Rank, Receipt, Report};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::time::Nanos;

pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);
pub(crate) const QUARANTINE: Duration = Duration::from_secs(5);

pub(crate) fn at(seconds: u64) -> Nanos {
    Nanos::ZERO.after(Duration::from_secs(seconds))
}

pub(crate) fn rank(number: u16) -> Rank {
    Rank::new(number).unwrap()
}

/// An encoder output of this many blocks of 16 bytes.
pub(crate) fn meta(blocks: u32) -> EntryMeta {
    EntryMeta::new(blocks, 4, Dtype::Float32).unwrap()
}

pub(crate) fn report(rank: Rank, receipt: Receipt, outcome: Outcome) -> Report {
    Report { rank, receipt, outcome }
}

/// A cache of 100 blocks and a table.
pub(crate) struct World {
    pub(crate) cache: Cache,
    pub(crate) table: Dispatches,
}

impl World {
    pub(crate) fn new() -> Self {
        let cache = Cache::new(100, EvictionPolicy::Fifo);
        Self { cache, table: Dispatches::new(TIMEOUT, QUARANTINE, 1 << 40) }
    }

    pub(crate) fn save(&mut self, now: u64, hash: &str, by: u16) -> Order {
        let hash = MmHash::new(hash).unwrap();
        self.table.save(at(now), &hash, meta(10), 10, rank(by), &mut self.cache).unwrap()
    }

    /// A ready entry.
    pub(crate) fn saved(&mut self, hash: &str) -> Order {
        let order = self.save(0, hash, 0);
        self.done(&order, 0);
        order
    }

    pub(crate) fn load(&mut self, now: u64, of: &Order, ranks: &[u16]) -> Order {
        let ranks = ranks.iter().map(|&number| rank(number)).collect();
        self.table.load(at(now), of.key, ranks, &mut self.cache).unwrap()
    }

    /// `by` says that its part of `order` is done.
    pub(crate) fn done(&mut self, order: &Order, by: u16) -> Option<MmHash> {
        let said = report(rank(by), order.receipt(), Outcome::Done(None));
        self.table.report(&said, &mut self.cache)
    }

    pub(crate) fn timeout(&mut self, now: u64) -> Vec<MmHash> {
        self.table.handle_timeout(at(now), &mut self.cache)
    }

    pub(crate) fn gone(&mut self, now: u64, by: u16) -> Vec<MmHash> {
        self.table.worker_gone(at(now), rank(by), &mut self.cache)
    }
}
