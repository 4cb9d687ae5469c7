//! The workers as the node sees them: their reports, and whether they live.
//!
//! Reports are taken on every turn of the node's thread. Whether a worker lives is looked at when
//! something is dispatched to it, and at a tick while anything is out; an idle node does neither. The
//! tick is also the net under a wake-up that could not be sent.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chiasm_core::dispatch::{DispatchError, MAX_RANKS, Rank, RankSet};
use chiasm_core::instance::Instance;
use chiasm_core::time::Nanos;
use chiasm_region::{Completions, Region, WorkerLife};

use crate::shared::Shared;

/// How often workers with orders are looked at.
const TICK: Duration = Duration::from_millis(250);

/// Reports that are taken in while the core is locked once: as many as an engine's step makes, and a
/// small part of what all rings together hold.
const REPORTS_PER_LOCK: usize = 16;

/// Locked before the core where both are.
#[derive(Debug, Default)]
pub(crate) struct Workers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    completions: Completions,
    /// The process that each rank's orders went to; none where none are out for all that is known.
    lives: [Option<u64>; MAX_RANKS as usize],
    looked: Nanos,
}

impl Workers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the node's thread may sleep: no report is there, and for the next one it is woken.
    pub(crate) fn may_sleep(&self, region: &Region) -> bool {
        self.state().completions.may_sleep(region)
    }

    /// The node's thread is awake; it takes what the workers have reported.
    pub(crate) fn take_reports(&self, now: Nanos, shared: &Shared) {
        let mut state = self.state();
        state.completions.awake(&shared.region);
        if state.take_reports(now, &shared.region, || shared.core()) {
            drop(state);
            shared.notify();
        }
    }

    /// Looks at the workers that have orders, if it is time to.
    pub(crate) fn handle_timeout(&self, now: Nanos, shared: &Shared) {
        let mut state = self.state();
        if now < state.next_look(&shared.core()) {
            return;
        }
        state.looked = now;
        let region = &shared.region;
        let awaited = shared.core().dispatches().awaited();
        // First who lives, then the reports, then the consequence: what a worker said before it died
        // counts.
        let gone: RankSet = awaited.iter().filter(|&rank| state.is_gone(region, rank)).collect();
        let mut news = state.take_reports(now, region, || shared.core());
        for rank in gone.iter() {
            state.lives[rank.index()] = None;
            shared.core().worker_gone(now, rank);
            news = true;
        }
        drop(state);
        if news {
            shared.notify();
        }
    }

    /// When [`Workers::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self, shared: &Shared) -> Nanos {
        let state = self.state();
        state.next_look(&shared.core())
    }

    /// Calls `dispatch` if all of these ranks are there to take an order.
    pub(crate) fn dispatch<T>(
        &self,
        now: Nanos,
        ranks: RankSet,
        shared: &Shared,
        dispatch: impl FnOnce(&mut Instance) -> Result<T, DispatchError>,
    ) -> Result<T, DispatchError> {
        let mut state = self.state();
        for rank in ranks.iter() {
            let WorkerLife::Alive(life) = state.completions.worker(&shared.region, rank) else {
                return Err(DispatchError::NoWorker(rank));
            };
            // Another process than the one that has the earlier orders, which is dead then.
            if state.lives[rank.index()].is_some_and(|known| known != life) {
                state.take_reports(now, &shared.region, || shared.core());
                shared.core().worker_gone(now, rank);
            }
            state.lives[rank.index()] = Some(life);
        }
        let mut core = shared.core();
        let was_idle = core.dispatches().outstanding().is_empty();
        let result = dispatch(&mut core);
        let has_work = core.has_work();
        drop(core);
        // From nothing to something: the tick begins.
        if has_work || (was_idle && result.is_ok()) {
            shared.waker.wake();
        }
        result
    }

    /// Whether a live process is this rank.
    pub(crate) fn has_worker(&self, region: &Region, rank: Rank) -> bool {
        matches!(self.state().completions.worker(region, rank), WorkerLife::Alive(_))
    }

    /// Records of the rings that were no reports.
    pub(crate) fn garbage(&self) -> u64 {
        self.state().completions.garbage()
    }
}

impl State {
    /// Whether there were any.
    fn take_reports<'a>(
        &mut self,
        now: Nanos,
        region: &Region,
        core: impl Fn() -> MutexGuard<'a, Instance>,
    ) -> bool {
        let reports = self.completions.take(region);
        if reports.is_empty() {
            return false;
        }
        for few in reports.chunks(REPORTS_PER_LOCK) {
            let mut core = core();
            for report in few {
                core.reported(now, report);
            }
        }
        true
    }

    fn is_gone(&self, region: &Region, rank: Rank) -> bool {
        match self.completions.worker(region, rank) {
            WorkerLife::Absent => true,
            WorkerLife::Alive(life) => self.lives[rank.index()] != Some(life),
        }
    }

    fn next_look(&self, core: &Instance) -> Nanos {
        let idle = core.dispatches().outstanding().is_empty();
        if idle { Nanos::NEVER } else { self.looked.after(TICK) }
    }
}
