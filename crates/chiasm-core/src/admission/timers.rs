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
pub(super) struct Timers(BTreeSet<(Nanos, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Nanos, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn cancel(&mut self, at: Nanos, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Nanos {
        self.0.first().map_or(Nanos::NEVER, |(at, _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Timer> {
        if self.next() > now || self.0.is_empty() {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
