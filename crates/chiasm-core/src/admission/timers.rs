//! Every deadline of admission in one table.

use std::collections::BTreeSet;

use super::reads::ReadId;
use super::request::ItemRef;
use crate::endpoint::Endpoint;
use crate::time::Nanos;

/// What is due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The item has waited longer than its budget.
    Budget(ItemRef),
    /// A read's pause is over, or the time for which its unanswered attempt holds room.
    Read(ReadId),
    /// A breaker may be tried.
    Probe(Endpoint),
}

/// A timer fires when `now` has reached it.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(Nanos, Timer)>,
    /// Budgets among them: one for each item that waits.
    budgets: usize,
}

impl Timers {
    pub(super) fn set(&mut self, at: Nanos, timer: Timer) {
        let is_budget = matches!(timer, Timer::Budget(_));
        let is_new = self.due.insert((at, timer));
        self.budgets += usize::from(is_new && is_budget);
    }

    pub(super) fn cancel(&mut self, at: Nanos, timer: Timer) {
        let is_budget = matches!(timer, Timer::Budget(_));
        let was_set = self.due.remove(&(at, timer));
        self.budgets -= usize::from(was_set && is_budget);
    }

    pub(super) fn next(&self) -> Nanos {
        self.due.first().map_or(Nanos::NEVER, |(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Timer> {
        if self.next() > now || self.due.is_empty() {
            return None;
        }
        let (_, timer) = self.due.pop_first()?;
        self.budgets -= usize::from(matches!(timer, Timer::Budget(_)));
        Some(timer)
    }

    /// Items that wait.
    pub(super) fn budgets(&self) -> usize {
        self.budgets
    }
}
