//! Which reads of a request are started, and when they are tried again.

use std::collections::BTreeMap;

use super::breaker::Gate;
use super::outcome::Trouble;
use super::reads::{Phase, ReadId};
use super::request::{ItemRef, RequestKey};
use super::timers::Timer;
use super::{Admission, Call, Reason};
use crate::endpoint::Endpoint;
use crate::time::Nanos;

/// What keeps a read from being started now.
enum Start {
    /// Nothing but perhaps room.
    Now,
    /// It is under way, or its pause is not over: a report or a timer comes.
    Later,
    /// Its producer is down, or busy enough with us: the request is woken when that changes.
    WhenFreed,
    /// Its producer is down, and the engine can encode the item.
    Never,
}

impl Admission {
    /// Starts the reads that the request still misses, if all that it misses fits together with what
    /// others have reserved. Nothing is evicted for that: the cache makes room when a producer has
    /// agreed.
    pub(super) fn start_reads(&mut self, key: RequestKey, call: &mut Call<'_>) {
        let Some(request) = self.requests.get(key) else { return };
        let items = request.items.len();
        let mut missing = 0_u64;
        let mut starting: Vec<ReadId> = Vec::new();
        let mut of_source: BTreeMap<Endpoint, usize> = BTreeMap::new();
        for at in (0..items).filter_map(|index| key.item(index)) {
            let Some((id, _)) = self.requests.item(at).and_then(|tracked| tracked.read) else {
                continue;
            };
            let Some(read) = self.reads.get(id) else { continue };
            if read.under_way() {
                continue;
            }
            let (source, blocks) = (read.wanted.source.clone(), read.wanted.blocks);
            match self.may_start(at, id, of_source.get(&source).copied().unwrap_or(0), call.now) {
                Start::Never => {
                    let last = read.last.clone();
                    let reason = Reason::ProducerDown { last };
                    self.resolve(at, Trouble::BreakerOpen, reason, call);
                    continue;
                }
                Start::Now => {
                    starting.push(id);
                    *of_source.entry(source).or_default() += 1;
                }
                Start::WhenFreed => self.wait_for_source(&source, key),
                Start::Later => {}
            }
            missing += u64::from(blocks);
        }
        if starting.is_empty() || self.is_failed(key) {
            self.room.unqueue(key);
            return;
        }
        // Stalled requests stand in no queue: whoever stands behind them would wait for a producer
        // that is perhaps dead. They try again when the stall ends.
        let stalled = self.is_stalled(key, call.now);
        let first_in_line = self.room.first().is_none_or(|first| key <= first);
        let fits = first_in_line
            && (self.has_room(missing, call) || self.make_room(key, missing, stalled, call));
        if !fits {
            if stalled {
                self.room.unqueue(key);
                for source in of_source.keys() {
                    self.wait_for_source(source, key);
                    if self.breakers.gate(call.now, source) == Gate::ProbeDue {
                        self.keep_probing(source, call.now);
                    }
                }
            } else {
                self.room.queue(key);
            }
            return;
        }
        self.room.unqueue(key);
        for id in starting {
            self.ask(id, call);
        }
    }

    /// `chosen` reads of the same producer are about to be started already.
    fn may_start(&self, at: ItemRef, id: ReadId, chosen: usize, now: Nanos) -> Start {
        let Some(read) = self.reads.get(id) else { return Start::Later };
        if let Phase::Pause { until } = read.phase
            && until > now
        {
            return Start::Later;
        }
        let source = self.reads.source(&read.wanted.source);
        let under_way = source.map_or(0, |source| source.under_way) + chosen;
        match self.breakers.gate(now, &read.wanted.source) {
            Gate::Closed if under_way < self.config.max_transfers_per_source.max(1) => Start::Now,
            Gate::ProbeDue if chosen == 0 => Start::Now,
            Gate::Closed | Gate::ProbeDue => Start::WhenFreed,
            Gate::Open => {
                let local_input = self.requests.item(at).is_some_and(|it| it.item.local_input);
                if local_input { Start::Never } else { Start::WhenFreed }
            }
        }
    }

    fn wait_for_source(&mut self, source: &Endpoint, key: RequestKey) {
        if let Some(source) = self.reads.source_mut(source) {
            source.waiting.insert(key);
        }
    }

    /// One attempt.
    fn ask(&mut self, id: ReadId, call: &mut Call<'_>) {
        let Some(read) = self.reads.get(id) else { return };
        let wanted = read.wanted.clone();
        if let Phase::Pause { until } = read.phase {
            self.timers.cancel(until, Timer::Read(id));
        }
        if self.breakers.gate(call.now, &wanted.source) == Gate::ProbeDue {
            self.breakers.probe(&wanted.source, id);
        }
        let transfer = call.consumer.start(call.now, wanted);
        let reserved_until = call.now.after(self.config.reservation);
        self.reads.asking(id, transfer, reserved_until);
        self.timers.set(reserved_until, Timer::Read(id));
    }

    /// Something may be started at this producer again: those who wait for that are looked at, the
    /// oldest first, as long as it lasts.
    pub(super) fn wake(&mut self, source: &Endpoint, call: &mut Call<'_>) {
        let Some(state) = self.reads.source_mut(source) else { return };
        let mut waiting = std::mem::take(&mut state.waiting);
        loop {
            let under_way = self.reads.source(source).map_or(0, |state| state.under_way);
            let gate = self.breakers.gate(call.now, source);
            if gate == Gate::Open
                || (gate == Gate::Closed
                    && under_way >= self.config.max_transfers_per_source.max(1))
            {
                break;
            }
            let Some(key) = waiting.pop_first() else { break };
            self.evaluate(key, call);
            if gate == Gate::ProbeDue {
                break;
            }
        }
        if let Some(state) = self.reads.source_mut(source) {
            state.waiting.append(&mut waiting);
        }
    }

    /// A probe is due and cannot be sent for want of room: somebody tries again later.
    fn keep_probing(&mut self, source: &Endpoint, now: Nanos) {
        if self.breakers.timer(source).is_none_or(|at| at <= now) {
            self.arm_probe(source, now.after(self.config.cool_down.0));
        }
    }

    /// Sets the timer for the next probe of a producer, in place of any set before.
    pub(super) fn arm_probe(&mut self, source: &Endpoint, at: Nanos) {
        if let Some(before) = self.breakers.set_timer(source, at) {
            self.timers.cancel(before, Timer::Probe(source.clone()));
        }
        self.timers.set(at, Timer::Probe(source.clone()));
    }

    /// A breaker may be tried. Should the first who waits be unable to, somebody else gets the chance
    /// later.
    pub(super) fn on_probe_due(&mut self, source: &Endpoint, now: Nanos) {
        self.freed.insert(source.clone());
        let waited_for = self.reads.source(source).is_some_and(|state| !state.waiting.is_empty());
        if waited_for && self.breakers.gate(now, source) == Gate::ProbeDue {
            self.keep_probing(source, now);
        }
    }
}
