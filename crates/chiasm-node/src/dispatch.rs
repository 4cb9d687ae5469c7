//! The node as an engine with workers holds it: orders for them, and what became of those.

use chiasm_core::dispatch::{
    DispatchCounters, DispatchError, DispatchId, Order, Outstanding, Rank, RankSet,
};
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;

use crate::clock;
use crate::node::Node;

impl Node {
    /// Takes room for an encoder output and makes the order for `rank` to save it: the engine carries
    /// it to that worker, which copies the bytes in and reports. Then the entry is ready, without any
    /// further call.
    ///
    /// Not reported within `save_timeout`, the save is lost: its hash is free at once, its blocks when
    /// the worker reports after all, or is dead. An order that never reaches its worker is to be
    /// [discarded](Self::discard).
    pub fn dispatch_save(
        &self,
        hash: &MmHash,
        meta: EntryMeta,
        rank: Rank,
    ) -> Result<Order, DispatchError> {
        let blocks = meta.blocks(self.block_size_bytes()).unwrap_or(u32::MAX);
        let now = clock::now();
        self.shared.workers.dispatch(now, rank.into(), &self.shared, |core| {
            core.dispatch_save(now, hash, meta, blocks, rank)
        })
    }

    /// Makes the order for `ranks` to load the entry that was promised under `hash`; it stays where it
    /// is until all of them have reported, or are dead.
    pub fn dispatch_load(&self, hash: &str, ranks: RankSet) -> Result<Order, DispatchError> {
        let now = clock::now();
        self.shared
            .workers
            .dispatch(now, ranks, &self.shared, |core| core.dispatch_load(now, hash, ranks))
    }

    /// Gives up an order that no worker has got, nor ever will: its room or its pin is free at once.
    /// For an order that a worker may have, this is a promise broken: the worker copies into blocks, or
    /// out of them, that are somebody else's by then.
    pub fn discard(&self, order: DispatchId) {
        self.shared.act(|core, now| core.discard_order(now, order));
        self.shared.notify();
    }

    /// Gives up a save that its worker may have begun: the hash is free at once, the blocks when the
    /// worker reports, or is dead. A load has to be waited for: nothing happens.
    pub fn withdraw(&self, order: DispatchId) {
        self.shared.act(|core, now| core.withdraw_order(now, order));
        self.shared.notify();
    }

    /// Whether a live process is this rank.
    #[must_use]
    pub fn has_worker(&self, rank: Rank) -> bool {
        self.shared.workers.has_worker(&self.shared.region, rank)
    }

    /// Orders that are out: what `has_pending_push_work` is about.
    #[must_use]
    pub fn outstanding(&self) -> Outstanding {
        self.shared.core().dispatches().outstanding()
    }

    /// What became of orders and reports since the start.
    #[must_use]
    pub fn dispatch_counters(&self) -> DispatchCounters {
        let garbage = self.shared.workers.garbage();
        let mut counters = self.shared.core().dispatches().counters();
        counters.ignored_reports += garbage;
        counters
    }
}
