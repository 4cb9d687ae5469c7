//! Per-endpoint circuit breakers: whether it makes sense to ask a producer at all.
//!
//! Only producers that have failed lately are remembered. Forgetting one costs one attempt, so the
//! table is bounded without harm.

use std::time::Duration;

use indexmap::IndexMap;

use super::backoff::Backoff;
use super::outcome::Signal;
use super::reads::ReadId;
use crate::endpoint::Endpoint;
use crate::time::Nanos;

/// Whether a read from a producer may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// It may.
    Closed,
    /// One may, to see whether the producer is back.
    ProbeDue,
    /// None may: the pause is not over, or the one that may is under way.
    Open,
}

/// A breaker opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// Until the next probe.
    pub(super) pause: Duration,
    /// Not after a probe that failed.
    pub(super) first: bool,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Nanos },
    HalfOpen { probe: ReadId },
}

#[derive(Debug)]
struct Breaker {
    state: State,
    /// Pauses since it was closed.
    pauses: u32,
    /// The number of the latest attempt at the latest failure that counted. Those up to it belong to
    /// that outage. Not a time: what fails frees room, and the next attempt begins at that instant.
    begun: u64,
    /// When the owner's timer for the next probe is set.
    timer: Option<Nanos>,
}

#[derive(Debug)]
pub(super) struct Breakers {
    by_source: IndexMap<Endpoint, Breaker>,
    failures: u32,
    cool_down: (Duration, Duration),
    limit: usize,
}

impl Breakers {
    pub(super) fn new(failures: u32, cool_down: (Duration, Duration), limit: usize) -> Self {
        Self {
            by_source: IndexMap::new(),
            failures: failures.max(1),
            cool_down,
            limit: limit.max(1),
        }
    }

    pub(super) fn gate(&self, now: Nanos, source: &Endpoint) -> Gate {
        match self.by_source.get(source).map(|breaker| &breaker.state) {
            None | Some(State::Closed { .. }) => Gate::Closed,
            Some(State::Open { until }) if *until <= now => Gate::ProbeDue,
            Some(State::Open { .. } | State::HalfOpen { .. }) => Gate::Open,
        }
    }

    /// `read` is started while a probe is due: it is the probe.
    pub(super) fn probe(&mut self, source: &Endpoint, read: ReadId) {
        if let Some(breaker) = self.by_source.get_mut(source)
            && matches!(breaker.state, State::Open { .. })
        {
            breaker.state = State::HalfOpen { probe: read };
        }
    }

    /// `read` was given up before it showed anything. True if it was the probe: another is due.
    pub(super) fn probe_gone(&mut self, now: Nanos, source: &Endpoint, read: ReadId) -> bool {
        let Some(breaker) = self.by_source.get_mut(source) else { return false };
        let was = matches!(breaker.state, State::HalfOpen { probe } if probe == read);
        if was {
            breaker.state = State::Open { until: now };
        }
        was
    }

    /// The producer answers. True if its breaker was not closed.
    pub(super) fn answered(&mut self, source: &Endpoint) -> bool {
        let known = self.by_source.swap_remove(source);
        known.is_some_and(|breaker| !matches!(breaker.state, State::Closed { .. }))
    }

    /// The attempt of this number of `read` failed in a way that speaks against its producer, when so
    /// many had `begun`. Says whether that opens the breaker.
    pub(super) fn failed(
        &mut self,
        now: Nanos,
        source: &Endpoint,
        (read, number): (ReadId, u64),
        begun: u64,
        signal: Signal,
        backoff: &mut Backoff,
    ) -> Option<Opened> {
        let known = self.by_source.get(source);
        let (failures, pauses) = match known.map(|breaker| &breaker.state) {
            None => (0, 0),
            Some(State::Open { .. }) => return None,
            Some(State::HalfOpen { probe }) if *probe != read => return None,
            Some(State::HalfOpen { .. }) => (self.failures, known?.pauses),
            Some(State::Closed { failures }) => {
                let one_outage = signal == Signal::Down && number <= known?.begun;
                (if one_outage { failures.saturating_sub(1) } else { *failures }, 0)
            }
        };
        let failures =
            if signal == Signal::Unreachable { self.failures } else { failures.saturating_add(1) };
        let timer = known.and_then(|breaker| breaker.timer);
        let opens = failures >= self.failures;
        let pause = backoff.pause(self.cool_down, pauses);
        let breaker = if opens {
            let state = State::Open { until: now.after(pause) };
            Breaker { state, pauses: pauses.saturating_add(1), begun, timer }
        } else {
            Breaker { state: State::Closed { failures }, pauses, begun, timer }
        };
        self.remember(source, breaker);
        opens.then_some(Opened { pause, first: pauses == 0 })
    }

    /// The one that failed last stands last, so the first is the one to forget.
    fn remember(&mut self, source: &Endpoint, breaker: Breaker) {
        self.by_source.shift_remove(source);
        if self.by_source.len() >= self.limit {
            self.by_source.shift_remove_index(0);
        }
        self.by_source.insert(source.clone(), breaker);
    }

    /// When the owner's timer for the next probe of `source` was set for. It may have fired.
    pub(super) fn timer(&self, source: &Endpoint) -> Option<Nanos> {
        self.by_source.get(source).and_then(|breaker| breaker.timer)
    }

    /// The owner has set its timer for the next probe of `source`; gives the one it had set before.
    pub(super) fn set_timer(&mut self, source: &Endpoint, at: Nanos) -> Option<Nanos> {
        self.by_source.get_mut(source).and_then(|breaker| breaker.timer.replace(at))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.by_source.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Nanos {
        Nanos::from_nanos(seconds * 1_000_000_000)
    }

    fn breakers(limit: usize) -> (Breakers, Backoff) {
        (Breakers::new(3, (SECOND, 8 * SECOND), limit), Backoff::new([1; 32]))
    }

    fn source(port: u16) -> Endpoint {
        Endpoint::parse(&format!("10.0.0.5:{port}")).unwrap()
    }

    #[test]
    fn three_outages_in_a_row_open_it_and_one_answer_closes_it() {
        let (mut breakers, mut backoff) = breakers(4);
        let producer = source(1);
        let mut down = |breakers: &mut Breakers, now, number, begun| {
            let attempt = (ReadId(1), number);
            breakers.failed(now, &producer, attempt, begun, Signal::Down, &mut backoff)
        };
        assert_eq!(down(&mut breakers, at(10), 1, 3), None);
        assert_eq!(down(&mut breakers, at(10), 2, 3), None, "eight items, one lost link");
        assert_eq!(down(&mut breakers, at(10), 3, 3), None);
        assert_eq!(breakers.gate(at(10), &producer), Gate::Closed);
        assert_eq!(down(&mut breakers, at(12), 4, 4), None);
        assert!(!breakers.answered(&producer), "it was closed");
        assert_eq!(down(&mut breakers, at(14), 5, 5), None, "and counts from none again");
        assert_eq!(down(&mut breakers, at(16), 6, 6), None);
        let opened = down(&mut breakers, at(18), 7, 7).expect("the third in a row opens it");
        assert_eq!(breakers.gate(at(18), &producer), Gate::Open);
        assert!(opened.first);
        assert_eq!(breakers.gate(at(18).after(opened.pause), &producer), Gate::ProbeDue);
        assert_eq!(breakers.gate(at(18), &source(2)), Gate::Closed, "of this producer only");
        assert!(breakers.answered(&producer));
        assert_eq!(breakers.gate(at(18), &producer), Gate::Closed);
        assert_eq!(breakers.iter().count(), 0);
    }

    #[test]
    fn a_producer_out_of_reach_opens_it_at_once_and_a_probe_decides() {
        let (mut breakers, mut backoff) = breakers(4);
        let producer = source(1);
        let attempt = (ReadId(1), 1);
        let unreachable = Signal::Unreachable;
        let opened = breakers.failed(at(4), &producer, attempt, 1, unreachable, &mut backoff);
        assert!(opened.is_some_and(|opened| opened.pause <= SECOND && opened.first));
        breakers.probe(&producer, ReadId(2));
        assert_eq!(breakers.gate(at(60), &producer), Gate::Open, "one probe at a time");
        let stray = breakers.failed(at(60), &producer, attempt, 3, Signal::Down, &mut backoff);
        assert_eq!(stray, None, "an older attempt decides nothing");
        assert!(!breakers.probe_gone(at(60), &producer, ReadId(1)));
        assert!(breakers.probe_gone(at(60), &producer, ReadId(2)));
        assert_eq!(breakers.gate(at(60), &producer), Gate::ProbeDue);
        breakers.probe(&producer, ReadId(3));
        let probe = (ReadId(3), 3);
        let again = breakers.failed(at(60), &producer, probe, 3, Signal::Down, &mut backoff);
        let longer = again.is_some_and(|opened| opened.pause >= SECOND && !opened.first);
        assert!(longer, "twice as long, less jitter");
    }

    #[test]
    fn the_table_is_bounded_and_forgets_what_failed_longest_ago() {
        let (mut breakers, mut backoff) = breakers(2);
        let mut fails = |breakers: &mut Breakers, port| {
            let attempt = (ReadId(1), 1);
            breakers.failed(at(4), &source(port), attempt, 1, Signal::Misbehaves, &mut backoff);
            assert!(breakers.iter().count() <= 2);
        };
        for port in [1, 2, 1, 3] {
            fails(&mut breakers, port);
        }
        assert_eq!(breakers.iter().collect::<Vec<_>>(), [&source(1), &source(3)]);
        for port in 10..2000 {
            fails(&mut breakers, port);
        }
    }
}
