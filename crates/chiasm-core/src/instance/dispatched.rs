//! Orders to workers: what they do to the cache, and who hears of it.

use super::Instance;
use crate::dispatch::{DispatchError, DispatchId, Dispatches, Event, Order, Rank, RankSet, Report};
use crate::entry::EntryMeta;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

/// The engine and its workers.
impl Instance {
    /// Takes room for an encoder output and orders `rank` to save it. See [`Dispatches::save`].
    pub fn dispatch_save(
        &mut self,
        now: Nanos,
        hash: &MmHash,
        meta: EntryMeta,
        blocks: u32,
        rank: Rank,
    ) -> Result<Order, DispatchError> {
        self.dispatches.save(now, hash, meta, blocks, rank, &mut self.cache)
    }

    /// Orders `ranks` to load the entry that was promised under `hash`. See [`Dispatches::load`].
    pub fn dispatch_load(
        &mut self,
        now: Nanos,
        hash: &str,
        ranks: RankSet,
    ) -> Result<Order, DispatchError> {
        let key = self.admission.promised(hash).ok_or(DispatchError::NotPromised)?;
        self.dispatches.load(now, key, ranks, &mut self.cache)
    }

    /// A worker's word on an order. See [`Dispatches::report`].
    pub fn reported(&mut self, now: Nanos, report: &Report) {
        let ended = self.dispatches.report(report, &mut self.cache);
        self.dispatches_ended(now, ended);
    }

    /// A worker is dead, and all that it had said has been [reported](Self::reported). See
    /// [`Dispatches::worker_gone`].
    pub fn worker_gone(&mut self, now: Nanos, rank: Rank) {
        let ended = self.dispatches.worker_gone(now, rank, &mut self.cache);
        self.dispatches_ended(now, ended);
    }

    /// Gives up an order that no worker has got. See [`Dispatches::discard`].
    pub fn discard_order(&mut self, now: Nanos, id: DispatchId) {
        let ended = self.dispatches.discard(id, &mut self.cache);
        self.dispatches_ended(now, ended);
    }

    /// Gives up a save that its worker may have begun. See [`Dispatches::withdraw`].
    pub fn withdraw_order(&mut self, now: Nanos, id: DispatchId) {
        let ended = self.dispatches.withdraw(id, &mut self.cache);
        self.dispatches_ended(now, ended);
    }

    /// What to log next about orders.
    pub fn poll_dispatch_event(&mut self) -> Option<Event> {
        self.dispatches.poll_event()
    }

    /// The orders that are out.
    #[must_use]
    pub fn dispatches(&self) -> &Dispatches {
        &self.dispatches
    }

    pub(super) fn dispatches_timeout(&mut self, now: Nanos) {
        let ended = self.dispatches.handle_timeout(now, &mut self.cache);
        self.dispatches_ended(now, ended);
    }

    /// Whoever waits for these hashes, or for room, looks again.
    fn dispatches_ended(&mut self, now: Nanos, ended: impl IntoIterator<Item = MmHash>) {
        for hash in ended {
            self.save_ended(now, Some(hash));
        }
        self.settle(now);
    }
}
