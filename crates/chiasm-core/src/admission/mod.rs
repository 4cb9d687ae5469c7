//! Admission: per (request, `mm_hash`) and per engine step it decides *ready*, *wait*, *encode it
//! yourself* or *fail this request*. Nothing else in the product decides that.
//!
//! It must never let one request's failure change another's answer (S6), never touch an endpoint that
//! is not approved (S1), never keep anybody past its budget (S5), and never promise an entry that
//! something may evict. It moves no bytes: the [`Consumer`] makes one attempt at a time for it, and
//! the [`Cache`] keeps the blocks.
//!
//! ```text
//! track -> ensure: wait ... ensure: ready | fallback -> (release) -> finish
//!                    |  \-> unavailable ----------------------------> finish
//!                    reads, retries, room: advance
//! ```
//!
//! Whoever drives it calls [`Admission::advance`] after every input to the consumer and before the
//! next one, since only then are completed reads held; when [`Admission::poll_timeout`] says so; and
//! after anything else that frees blocks of the region. It drains the consumer's
//! [`poll_staged`](Consumer::poll_staged) and [`poll_finished`](Consumer::poll_finished); nobody
//! else may.

mod backoff;
mod breaker;
mod config;
mod decide;
mod event;
pub mod limits;
mod offer;
mod outcome;
mod reads;
mod reason;
mod report;
mod request;
mod room;
mod settle;
mod start;
mod timers;
mod transfers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexSet;

pub use self::breaker::Gate;
pub use self::config::AdmissionConfig;
pub use self::event::Event;
pub use self::offer::{Form, Item, Offer};
pub use self::outcome::{OUTCOMES, Outcome, Signal, Trouble};
pub use self::reason::Reason;
pub use self::report::{ItemReport, Lookups, Verdict};

use self::backoff::Backoff;
use self::breaker::Breakers;
use self::event::Events;
use self::reads::Reads;
use self::request::{RequestKey, Requests, TrackedItem};
use self::room::Room;
use self::timers::Timers;
use crate::allowlist::Allowlist;
use crate::cache::{Cache, EntryKey};
use crate::consumer::Consumer;
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;
use crate::time::Nanos;

/// What the engine is told about one request in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// Run it: what it needs is computed, in the region and pinned, or was never announced.
    Ready,
    /// Not in this step.
    Wait,
    /// Run it, and encode the items that [`Admission::fell_back`] names; the others are ready.
    Fallback,
    /// It fails: hold it back until it has been taken out of
    /// [`Admission::take_unavailable_requests`].
    Unavailable,
}

/// A request that cannot be tracked because of a limit. It is decided on the spot and not remembered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request is not tracked: {reason}")]
pub struct Untracked {
    /// Which limit.
    pub reason: Reason,
    /// [`Decision::Fallback`], for all of its items, if each has local input; else
    /// [`Decision::Unavailable`], and its id is reported like any other.
    pub decision: Decision,
}

/// When a call is made and what it may act upon.
#[derive(Debug)]
struct Call<'a> {
    now: Nanos,
    cache: &'a mut Cache,
    consumer: &'a mut Consumer,
}

/// The machine. Requests are known by the engine's id.
#[derive(Debug)]
pub struct Admission {
    config: AdmissionConfig,
    allowlist: Allowlist,
    requests: Requests,
    reads: Reads,
    breakers: Breakers,
    backoff: Backoff,
    room: Room,
    timers: Timers,
    events: Events,
    /// Failed requests that have not been reported.
    unavailable: IndexSet<Arc<str>>,
    /// Endpoints whose refusal has been logged, the latest last.
    refusals: IndexSet<Endpoint>,
    /// Requests to look at again in this call.
    pending: BTreeSet<RequestKey>,
    /// Producers for which something may be started again in this call.
    freed: BTreeSet<Endpoint>,
    steps: u64,
    lookups: Lookups,
}

impl Admission {
    /// Tracks nothing yet. `seed` is for the jitter of pauses.
    #[must_use]
    pub fn new(config: AdmissionConfig, allowlist: Allowlist, seed: [u8; 32]) -> Self {
        Self {
            allowlist,
            requests: Requests::default(),
            reads: Reads::default(),
            breakers: Breakers::new(config.breaker_failures, config.cool_down, config.max_breakers),
            backoff: Backoff::new(seed),
            room: Room::default(),
            timers: Timers::default(),
            events: Events::new(config.max_events),
            unavailable: IndexSet::new(),
            refusals: IndexSet::new(),
            pending: BTreeSet::new(),
            freed: BTreeSet::new(),
            steps: 0,
            lookups: Lookups::default(),
            config,
        }
    }

    /// Makes a request known with all items that the engine has named for it so far; nothing is
    /// started before the first [`ensure`](Self::ensure). Called again it adds what is new (a
    /// streaming session extends a live id) and changes nothing about the rest: what was announced
    /// first stands, so that a failed source is not tried again. After [`finish`](Self::finish) the
    /// id is free for another request.
    ///
    /// A live request that outgrows a limit fails.
    #[expect(clippy::missing_panics_doc, reason = "panics on a broken invariant only")]
    pub fn track(
        &mut self,
        now: Nanos,
        id: &str,
        items: Vec<Item>,
        cache: &mut Cache,
        consumer: &mut Consumer,
    ) -> Result<(), Untracked> {
        let known = self.requests.find(id);
        if let Some(reason) = self.over_limit(id, known, &items) {
            let needs_us = items.iter().any(|item| !item.local_input);
            let decision = match known {
                None if !needs_us => Decision::Fallback,
                _ => Decision::Unavailable,
            };
            if let Some(key) = known {
                self.fail_request(key, None, reason.clone(), &mut Call { now, cache, consumer });
                self.run(&mut Call { now, cache, consumer });
            } else if decision == Decision::Unavailable
                && id.len() <= limits::MAX_REQUEST_ID_BYTES
                && self.unavailable.len() < 2 * self.config.max_requests.max(1)
            {
                // Bounded even if the engine never takes its failed requests away.
                self.report_failed(id, None, reason.clone(), Duration::ZERO);
            }
            return Err(Untracked { reason, decision });
        }
        let key = known.unwrap_or_else(|| self.requests.add(id));
        let given = items.len();
        for item in items {
            self.requests.add_item(key, item);
        }
        self.requests.get_mut(key).expect("it was found or added just now").given = given;
        Ok(())
    }

    fn over_limit(&self, id: &str, known: Option<RequestKey>, items: &[Item]) -> Option<Reason> {
        let AdmissionConfig { max_requests, max_items_per_request, max_items, .. } = self.config;
        let tracked = known.and_then(|key| self.requests.get(key));
        let of_others = self.requests.items() - tracked.map_or(0, |request| request.items.len());
        let too_many = |what, limit| Some(Reason::TooMany { what, limit });
        if known.is_none() && self.requests.len() >= max_requests {
            too_many("requests at once", max_requests)
        } else if items.len() > max_items_per_request {
            too_many("items in one request", max_items_per_request)
        } else if of_others + items.len() > max_items {
            too_many("items of all requests", max_items)
        } else if id.len() > limits::MAX_REQUEST_ID_BYTES {
            too_many("bytes in a request id", limits::MAX_REQUEST_ID_BYTES)
        } else {
            None
        }
    }

    /// What to do with a request in this step: `items` is how many items the engine has named for it,
    /// `computed` its `num_computed_tokens`. Nothing about computed items is remembered: a preempted
    /// request that comes back with fewer tokens gets what it needs again.
    ///
    /// `None`: the request is not known, or not with so many items; [`track`](Self::track) it first.
    ///
    /// Costs a look-up while nothing has changed for the request, however many wait.
    pub fn ensure(
        &mut self,
        now: Nanos,
        id: &str,
        items: usize,
        computed: u32,
        cache: &mut Cache,
        consumer: &mut Consumer,
    ) -> Option<Decision> {
        let key = self.requests.find(id)?;
        if self.timers.next() <= now {
            self.run(&mut Call { now, cache, consumer });
        }
        let request = self.requests.get_mut(key)?;
        if request.given != items {
            return None;
        }
        let (from, to) = request.holds;
        let stale = request.dirty || computed < from || computed >= to;
        let may_start =
            request.watches && (self.room.first() == Some(key) || request.waits_for_save());
        request.computed = computed;
        if stale || may_start {
            self.pending.insert(key);
            self.run(&mut Call { now, cache, consumer });
        }
        Some(self.tell(key))
    }

    /// The decision; from here on the engine relies on what is pinned for it.
    fn tell(&mut self, key: RequestKey) -> Decision {
        let Some(request) = self.requests.get_mut(key) else { return Decision::Unavailable };
        let runs = matches!(request.decision, Decision::Ready | Decision::Fallback);
        if runs && !request.told {
            request.told = true;
            for tracked in &mut request.items {
                tracked.since = None;
            }
            self.room.unhold(key);
        }
        request.decision
    }

    /// The entry that the engine may load for `hash`: in the region, and pinned since a decision
    /// that has been told. This, not the cache, answers `has_cache_item` (hazard A9). The load takes
    /// a pin of its own when it is dispatched.
    #[must_use]
    pub fn promised(&self, hash: &str) -> Option<EntryKey> {
        let items = &self.requests.interest(hash)?.items;
        items.iter().find_map(|at| {
            let told = self.requests.get(at.request)?.told;
            self.requests.item(*at)?.pin.filter(|_| told)
        })
    }

    /// The engine has its own copy of the item: its pin is given back. A later
    /// [`ensure`](Self::ensure) that still needs the item pins it anew, or reads it anew if it is gone.
    /// Pins of computed items are given back without it.
    pub fn release(
        &mut self,
        now: Nanos,
        id: &str,
        hash: &str,
        cache: &mut Cache,
        consumer: &mut Consumer,
    ) {
        let Some(key) = self.requests.find(id) else { return };
        let Some(request) = self.requests.get_mut(key) else { return };
        let place = request.items.iter().position(|tracked| tracked.item.hash.as_str() == hash);
        let Some(at) = place.and_then(|index| key.item(index)) else { return };
        request.dirty = true;
        let mut call = Call { now, cache, consumer };
        self.unpin(at, &mut call);
        self.run(&mut call);
    }

    /// The request has ended, however: nothing is kept for it any more, and what was read for it alone
    /// is given up.
    pub fn finish(&mut self, now: Nanos, id: &str, cache: &mut Cache, consumer: &mut Consumer) {
        self.unavailable.shift_remove(id);
        let Some(key) = self.requests.find(id) else { return };
        let mut call = Call { now, cache, consumer };
        self.drop_all(key, &mut call);
        self.requests.remove(key);
        self.run(&mut call);
    }

    /// A local save of `hash` has become ready, or was given up.
    pub fn entry_changed(
        &mut self,
        now: Nanos,
        hash: &MmHash,
        cache: &mut Cache,
        consumer: &mut Consumer,
    ) {
        for at in self.requests.items_of(hash) {
            let waits = self.requests.item(at).is_some_and(TrackedItem::waits);
            if waits {
                self.pending.insert(at.request);
            } else if let Some(request) = self.requests.get_mut(at.request) {
                request.dirty = true;
            }
        }
        self.run(&mut Call { now, cache, consumer });
    }

    /// The operator has changed the list. What waits for an endpoint that is not on it any more is
    /// resolved as refused; what was refused before stays so.
    pub fn set_allowlist(
        &mut self,
        now: Nanos,
        allowlist: Allowlist,
        cache: &mut Cache,
        consumer: &mut Consumer,
    ) {
        self.allowlist = allowlist;
        self.refusals.clear();
        let mut call = Call { now, cache, consumer };
        self.refuse_waiting(&mut call);
        self.run(&mut call);
    }

    /// Whether the list names this endpoint.
    #[must_use]
    pub fn is_allowed(&self, endpoint: &Endpoint) -> bool {
        self.allowlist.check(endpoint) == crate::allowlist::Verdict::Allowed
    }

    /// Takes what the consumer has to report, what is due and what has become possible.
    pub fn advance(&mut self, now: Nanos, cache: &mut Cache, consumer: &mut Consumer) {
        self.run(&mut Call { now, cache, consumer });
    }

    /// When [`advance`](Self::advance) has something to do by itself.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.timers.next()
    }

    /// Whether [`poll_event`](Self::poll_event) has something.
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The next log line.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Log lines that were dropped because nobody fetched them in time.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.events.dropped()
    }

    /// The ids of requests that have failed since the last call, each exactly once. One that is
    /// [finished](Self::finish) before it was taken is not reported: its id may be in use again.
    pub fn take_unavailable_requests(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.unavailable).into_iter().collect()
    }

    /// Work done since the start, for tests of cost: one step is an item looked at.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs until nothing is left to do at this instant.
    fn run(&mut self, call: &mut Call<'_>) {
        loop {
            while let Some(transfer) = call.consumer.poll_staged() {
                self.on_staged(transfer);
            }
            if let Some(finished) = call.consumer.poll_finished() {
                self.on_finished(finished, call);
            } else if let Some(timer) = self.timers.pop_due(call.now) {
                self.on_timer(timer, call);
            } else if let Some(key) = self.pending.pop_first() {
                self.evaluate(key, call);
            } else if let Some(source) = self.freed.pop_first() {
                self.wake(&source, call);
            } else if !self.pump_room(call) {
                break;
            }
        }
    }
}
