//! How waiting begins and ends for one item, and how a request fails.

use std::time::Duration;

use super::event::Event;
use super::outcome::{Outcome, Trouble};
use super::reads::{Phase, ReadId};
use super::request::{ItemRef, RequestKey, Settled};
use super::timers::Timer;
use super::{Admission, Call, Decision, Reason, limits};
use crate::allowlist::{Refusal, Verdict};
use crate::cache::EntryKey;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

/// The smallest step of time: a budget is spent when **more** than it has passed.
pub(super) const TICK: Duration = Duration::from_nanos(1);

impl Admission {
    /// The item's clock runs. It starts at the first wait only.
    pub(super) fn begin_waiting(&mut self, at: ItemRef, now: Nanos) {
        let budget = self.config.wait_budget;
        let Some(tracked) = self.requests.item_mut(at) else { return };
        if tracked.waits() {
            return;
        }
        if tracked.since.is_none() {
            self.lookups.misses += 1;
        }
        let deadline = tracked.since.get_or_insert(now).after(budget).after(TICK);
        tracked.deadline = Some(deadline);
        self.timers.set(deadline, Timer::Budget(at));
    }

    fn stop_waiting(&mut self, at: ItemRef, now: Nanos) {
        let Some(tracked) = self.requests.item_mut(at) else { return };
        tracked.for_save = false;
        let Some(deadline) = tracked.deadline.take() else { return };
        tracked.waited = tracked.since.map_or(Duration::ZERO, |since| now.since(since));
        self.timers.cancel(deadline, Timer::Budget(at));
    }

    /// The entry is ready and kept for the item, which waits no more. False if the entry is gone.
    pub(super) fn pin(&mut self, at: ItemRef, entry: EntryKey, call: &mut Call<'_>) -> bool {
        let Some(tracked) = self.requests.item_mut(at) else { return false };
        if call.cache.pin(entry).is_err() {
            return false;
        }
        tracked.pin = Some(entry);
        self.leave_read(at, true, call);
        self.stop_waiting(at, call.now);
        true
    }

    pub(super) fn unpin(&mut self, at: ItemRef, call: &mut Call<'_>) {
        let Some(tracked) = self.requests.item_mut(at) else { return };
        let Some(entry) = tracked.pin.take() else { return };
        let unpinned = call.cache.unpin(entry);
        debug_assert!(unpinned.is_ok(), "a pinned entry stays: {unpinned:?}");
    }

    /// The item needs nothing any more: its tokens are computed, or its request is over.
    pub(super) fn let_go(&mut self, at: ItemRef, call: &mut Call<'_>) {
        self.unpin(at, call);
        self.leave_read(at, false, call);
        self.stop_waiting(at, call.now);
        if let Some(tracked) = self.requests.item_mut(at) {
            tracked.since = None;
        }
    }

    /// Nothing is kept for any item of the request any more.
    pub(super) fn drop_all(&mut self, key: RequestKey, call: &mut Call<'_>) {
        let items = self.requests.get(key).map_or(0, |request| request.items.len());
        for at in (0..items).filter_map(|index| key.item(index)) {
            let read = self.requests.item(at).and_then(|tracked| tracked.read);
            let source = read.and_then(|(id, _)| self.reads.get(id));
            if let Some(source) = source.map(|read| read.wanted.source.clone())
                && let Some(state) = self.reads.source_mut(&source)
            {
                state.waiting.remove(&key);
            }
            self.let_go(at, call);
        }
        self.room.unqueue(key);
        self.room.unhold(key);
        self.pending.remove(&key);
    }

    /// The item waits for its read no more. A read that nobody waits for is given up; but if the
    /// item was `served` by another source while bytes were landing, they may land: their digest
    /// shows whether the two sources agree.
    fn leave_read(&mut self, at: ItemRef, served: bool, call: &mut Call<'_>) {
        let Some(tracked) = self.requests.item_mut(at) else { return };
        let Some((id, over_before)) = tracked.read.take() else { return };
        let Some(read) = self.reads.get_mut(id) else { return };
        let attempts = read.attempts.saturating_sub(over_before);
        tracked.attempts = tracked.attempts.saturating_add(attempts);
        read.waiters.remove(&at);
        if read.waiters.is_empty() && !(served && matches!(read.phase, Phase::Reading { .. })) {
            self.give_up(id, call);
        }
    }

    pub(super) fn give_up(&mut self, id: ReadId, call: &mut Call<'_>) {
        let Some(read) = self.reads.get(id) else { return };
        if let Phase::Pause { until } = read.phase {
            self.timers.cancel(until, Timer::Read(id));
        }
        let source = read.wanted.source.clone();
        self.unreserve(id);
        if let Some((transfer, _)) = self.reads.over(id) {
            call.consumer.cancel(transfer, call.cache);
            if self.breakers.probe_gone(call.now, &source, id) {
                self.arm_probe(&source, call.now.after(TICK));
            }
            self.freed.insert(source);
        }
        self.reads.remove(id);
    }

    pub(super) fn unreserve(&mut self, id: ReadId) {
        if let Some(until) = self.reads.unreserve(id) {
            self.timers.cancel(until, Timer::Read(id));
        }
    }

    /// Something is wrong for one item: what follows stands in the outcome table.
    pub(super) fn resolve(
        &mut self,
        at: ItemRef,
        trouble: Trouble,
        reason: Reason,
        call: &mut Call<'_>,
    ) {
        let Some(tracked) = self.requests.item(at) else { return };
        match trouble.outcome(tracked.item.local_input) {
            Outcome::Retry | Outcome::Wait => {}
            Outcome::Unavailable => self.fail_item(at, reason, call),
            Outcome::Fallback => {
                self.let_go(at, call);
                self.pending.insert(at.request);
                let Some(request) = self.requests.get_mut(at.request) else { return };
                let id = request.id.clone();
                let Some(tracked) = request.items.get_mut(at.index as usize) else { return };
                tracked.settled = Some(Settled::Fallback(reason.clone()));
                let (hash, waited) = (tracked.item.hash.clone(), tracked.waited);
                self.events.push(Event::FellBack { request: id, hash, reason, waited });
            }
        }
    }

    pub(super) fn fail_item(&mut self, at: ItemRef, reason: Reason, call: &mut Call<'_>) {
        self.let_go(at, call);
        if let Some(tracked) = self.requests.item_mut(at) {
            tracked.settled = Some(Settled::Unavailable(reason.clone()));
        }
        self.fail_request(at.request, Some(at), reason, call);
    }

    /// The request fails: alone, and once (S6).
    pub(super) fn fail_request(
        &mut self,
        key: RequestKey,
        item: Option<ItemRef>,
        reason: Reason,
        call: &mut Call<'_>,
    ) {
        if self.is_failed(key) {
            return;
        }
        self.drop_all(key, call);
        let Some(request) = self.requests.get_mut(key) else { return };
        request.decision = Decision::Unavailable;
        request.holds = (0, u32::MAX);
        request.told = false;
        request.watches = false;
        request.dirty = false;
        let id = request.id.clone();
        let tracked = item.and_then(|at| self.requests.item(at));
        let waited = tracked.map_or(Duration::ZERO, |tracked| tracked.waited);
        let hash = tracked.map(|tracked| tracked.item.hash.clone());
        self.report_failed(&id, hash, reason, waited);
    }

    pub(super) fn report_failed(
        &mut self,
        id: &str,
        hash: Option<MmHash>,
        reason: Reason,
        waited: Duration,
    ) {
        if self.unavailable.insert(id.into()) {
            self.events.push(Event::Failed { request: id.into(), hash, reason, waited });
        }
    }

    /// Logs a refusal once per endpoint.
    pub(super) fn say_refused(&mut self, refusal: &Refusal) {
        if self.refusals.contains(&refusal.endpoint) {
            return;
        }
        if self.refusals.len() >= limits::MAX_REFUSALS_REMEMBERED {
            self.refusals.shift_remove_index(0);
        }
        self.refusals.insert(refusal.endpoint.clone());
        self.events.push(Event::Refused(refusal.clone()));
    }

    /// After a change of the allowlist.
    pub(super) fn refuse_waiting(&mut self, call: &mut Call<'_>) {
        let sources: Vec<_> = self.reads.sources().cloned().collect();
        for source in sources {
            let Verdict::Refused(refusal) = self.allowlist.check(&source) else { continue };
            for id in self.reads.of_source(&source) {
                let waiters = self.reads.get(id).map(|read| read.waiters.clone());
                for at in waiters.unwrap_or_default() {
                    self.refuse(at, refusal.clone(), call);
                }
                self.give_up(id, call);
            }
        }
        let waiting = self.requests.keys().filter(|key| {
            self.requests.get(*key).is_some_and(|request| request.decision == Decision::Wait)
        });
        self.pending.extend(waiting.collect::<Vec<_>>());
    }
}
