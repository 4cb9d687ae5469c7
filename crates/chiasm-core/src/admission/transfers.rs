//! What the consumer and the clock report, and what follows for those who wait.

use super::breaker::{Gate, Opened};
use super::event::Event;
use super::outcome::{Outcome, Signal, Trouble};
use super::reads::{Phase, ReadId};
use super::request::ItemRef;
use super::settle::TICK;
use super::timers::Timer;
use super::{Admission, Call, Reason};
use crate::cache::EntryState;
use crate::consumer::{Arrived, Failure, FailureClass, FailureReason, Finished, TransferId};
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

impl Admission {
    /// The producer has agreed and the cache counts the blocks.
    pub(super) fn on_staged(&mut self, transfer: TransferId) {
        let Some(id) = self.reads.by_transfer(transfer) else { return };
        self.unreserve(id);
        if let Some(read) = self.reads.get_mut(id)
            && let Phase::Asking { transfer, number, .. } = read.phase
        {
            read.phase = Phase::Reading { transfer, number };
        }
    }

    pub(super) fn on_finished(&mut self, finished: Finished, call: &mut Call<'_>) {
        let Some(id) = self.reads.by_transfer(finished.transfer) else { return };
        self.unreserve(id);
        let Some((_, number)) = self.reads.over(id) else { return };
        self.freed.insert(finished.source.clone());
        match finished.outcome {
            Ok(arrived) => self.on_arrived(id, &finished.hash, finished.source, arrived, call),
            Err(failure) => self.on_failed(id, number, failure, call),
        }
        if self.reads.get(id).is_some_and(|read| read.waiters.is_empty()) {
            self.give_up(id, call);
        }
    }

    /// Everybody who waits for the hash is served, whichever source they named.
    fn on_arrived(
        &mut self,
        id: ReadId,
        hash: &MmHash,
        source: Endpoint,
        arrived: Arrived,
        call: &mut Call<'_>,
    ) {
        self.on_answer(&source);
        let entry = arrived.entry;
        if let Some(interest) = self.requests.interest_mut(hash) {
            let first = interest.origin.take().filter(|(known, _)| *known == entry);
            if arrived.conflict {
                let first = first.map(|(_, source)| source);
                interest.origin = first.clone().map(|source| (entry, source));
                let event = Event::Disagree { hash: hash.clone(), first, second: source };
                self.events.push(event);
            } else {
                interest.origin = Some(first.unwrap_or((entry, source)));
            }
        } else if arrived.conflict {
            let hash = hash.clone();
            self.events.push(Event::Disagree { hash, first: None, second: source });
        }
        for at in self.requests.items_of(hash) {
            let Some(request) = self.requests.get_mut(at.request) else { continue };
            let Some(tracked) = request.items.get_mut(at.index as usize) else { continue };
            if !tracked.waits() {
                request.dirty = true;
                continue;
            }
            if tracked.read.is_some_and(|(read, _)| read == id) {
                tracked.plane = Some(arrived.plane);
            }
            self.pending.insert(at.request);
            self.serve(at, call);
        }
        // What is left could not use the entry, or the entry is gone already: not in a hurry.
        let left = self.reads.get(id).is_some_and(|read| !read.waiters.is_empty());
        if left {
            self.pause(id, call.now);
        }
    }

    /// Pins the ready entry of the item's hash for it, if there is one that it can use.
    fn serve(&mut self, at: ItemRef, call: &mut Call<'_>) -> bool {
        let Some(tracked) = self.requests.item(at) else { return false };
        let Some((entry, found)) = call.cache.find(tracked.item.hash.as_str()) else {
            return false;
        };
        let usable = found.state() == EntryState::Ready && tracked.item.form.fits(found.meta());
        usable && self.pin(at, entry, call)
    }

    fn on_failed(&mut self, id: ReadId, number: u64, failure: Failure, call: &mut Call<'_>) {
        let Some(read) = self.reads.get_mut(id) else { return };
        let Failure { class, reason } = failure;
        let trouble = Trouble::of_failure(class, read.wrong);
        read.wrong |= trouble == Trouble::ReadWrong;
        read.last = Some(reason.clone());
        // Once only: a producer that changes its life with every answer cannot keep this node busy.
        let other_plane = matches!(reason, FailureReason::PlaneAway { .. }) && !read.switched;
        read.switched |= other_plane;
        let (source, hash) = (read.wanted.source.clone(), read.wanted.hash.clone());
        if reason == FailureReason::AckTimeout {
            self.say_ack_timeout(id, call.now);
        }
        let signal = Signal::of(&reason);
        if class == FailureClass::ReadWrong {
            let (source, reason) = (source.clone(), reason.clone());
            self.events.push(Event::WrongBytes { source, hash, reason });
        }
        let opened = self.on_signal(id, number, signal, &source, &reason, call.now);
        if other_plane {
            self.pending.extend(self.waiters(id).iter().map(|at| at.request));
        } else if trouble.outcome(false) == Outcome::Retry {
            self.pause(id, call.now);
        } else {
            for at in self.waiters(id) {
                self.resolve(at, trouble, Reason::Transfer(reason.clone()), call);
            }
        }
        if opened {
            self.on_breaker_open(&source, &reason, call);
        }
    }

    fn on_signal(
        &mut self,
        id: ReadId,
        number: u64,
        signal: Signal,
        source: &Endpoint,
        reason: &FailureReason,
        now: Nanos,
    ) -> bool {
        match signal {
            Signal::Answers => self.on_answer(source),
            Signal::Silent => {
                // It says nothing about the producer, so another probe has to.
                if self.breakers.probe_gone(now, source, id) {
                    self.arm_probe(source, now.after(self.config.cool_down.0));
                }
            }
            Signal::Down | Signal::Unreachable | Signal::Misbehaves => {
                let (attempt, begun) = ((id, number), self.reads.begun());
                let backoff = &mut self.backoff;
                let opened = self.breakers.failed(now, source, attempt, begun, signal, backoff);
                if let Some(Opened { pause, first }) = opened {
                    self.arm_probe(source, now.after(pause));
                    if first {
                        let (source, reason) = (source.clone(), reason.clone());
                        self.events.push(Event::BreakerOpened { source, reason, pause });
                    }
                    return true;
                }
            }
        }
        false
    }

    fn on_answer(&mut self, source: &Endpoint) {
        if self.breakers.answered(source) {
            self.freed.insert(source.clone());
            self.events.push(Event::BreakerClosed { source: source.clone() });
        }
    }

    /// The producer is taken to be down: who can encode does not wait for it, unless bytes are
    /// landing.
    fn on_breaker_open(&mut self, source: &Endpoint, reason: &FailureReason, call: &mut Call<'_>) {
        for id in self.reads.of_source(source) {
            let read = self.reads.get(id);
            if read.is_none_or(|read| matches!(read.phase, Phase::Reading { .. })) {
                continue;
            }
            for at in self.waiters(id) {
                let reason = Reason::ProducerDown { last: Some(reason.clone()) };
                self.resolve(at, Trouble::BreakerOpen, reason, call);
            }
        }
    }

    fn waiters(&self, id: ReadId) -> Vec<ItemRef> {
        self.reads.get(id).map(|read| read.waiters.iter().copied().collect()).unwrap_or_default()
    }

    /// The read is not tried again before a pause is over.
    fn pause(&mut self, id: ReadId, now: Nanos) {
        let Some(read) = self.reads.get_mut(id) else { return };
        let pause = self.backoff.pause(self.config.retry, read.pauses);
        let until = now.after(pause.max(TICK));
        read.pauses = read.pauses.saturating_add(1);
        read.phase = Phase::Pause { until };
        self.timers.set(until, Timer::Read(id));
    }

    pub(super) fn on_timer(&mut self, timer: Timer, call: &mut Call<'_>) {
        match timer {
            Timer::Budget(at) => self.on_budget_spent(at, call),
            Timer::Probe(source) => self.on_probe_due(&source, call.now),
            Timer::Read(id) => {
                if self.reads.unreserve(id).is_none()
                    && let Some(read) = self.reads.get_mut(id)
                    && matches!(read.phase, Phase::Pause { .. })
                {
                    read.phase = Phase::Idle;
                    self.pending.extend(self.waiters(id).iter().map(|at| at.request));
                }
            }
        }
    }

    /// More than the budget has passed since the item began to wait.
    fn on_budget_spent(&mut self, at: ItemRef, call: &mut Call<'_>) {
        self.pending.insert(at.request);
        if self.serve(at, call) {
            return;
        }
        let read = self.requests.item(at).and_then(|tracked| tracked.read);
        let last = read.and_then(|(id, _)| self.reads.get(id)).and_then(|read| read.last.clone());
        let waited_for = self.waits_for(at, call.now);
        let reason = Reason::BudgetSpent { budget: self.config.wait_budget, waited_for, last };
        self.resolve(at, Trouble::BudgetSpent, reason, call);
    }

    /// For the person who reads the log.
    fn waits_for(&self, at: ItemRef, now: Nanos) -> &'static str {
        let read = self.requests.item(at).and_then(|tracked| tracked.read);
        let Some(read) = read.and_then(|(id, _)| self.reads.get(id)) else {
            return "a local save of the same mm_hash";
        };
        match read.phase {
            Phase::Asking { .. } => "an ack",
            Phase::Reading { .. } => "the bytes",
            Phase::Pause { .. } => "another attempt",
            Phase::Idle if self.breakers.gate(now, &read.wanted.source) != Gate::Closed => {
                "the producer's return"
            }
            Phase::Idle if self.room.is_queued(at.request) => "room in the region",
            Phase::Idle => "its turn at the producer",
        }
    }

    fn say_ack_timeout(&mut self, id: ReadId, now: Nanos) {
        let Some(read) = self.reads.get(id) else { return };
        let since = read.waiters.iter().filter_map(|at| self.requests.item(*at)?.since).min();
        let waited = now.since(since.unwrap_or(now));
        self.events.push(Event::AckTimeout {
            source: read.wanted.source.clone(),
            hash: read.wanted.hash.clone(),
            attempt: read.attempts,
            waited,
            budget_left: self.config.wait_budget.saturating_sub(waited),
        });
    }

    /// Whether a read from this producer may be started now.
    #[must_use]
    pub fn gate(&self, now: Nanos, source: &Endpoint) -> Gate {
        self.breakers.gate(now, source)
    }

    /// Producers that have failed lately; [`Admission::gate`] says how their breakers stand.
    pub fn troubled_sources(&self) -> impl Iterator<Item = &Endpoint> {
        self.breakers.iter()
    }
}
