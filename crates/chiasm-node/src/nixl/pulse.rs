//! Whether a helper that should be at work still is: it is asked, and has two periods to answer in.

use std::time::Duration;

use chiasm_core::time::Nanos;

/// Time between two questions, and half of what an answer may take.
///
/// Ending a serve helper can end an engine of upstream's that reads through it, so this is far above what
/// a starved machine does to a helper, and below the 20 s after which upstream gives a read up.
const PERIOD: Duration = Duration::from_secs(5);

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    Nothing,
    /// Ask it.
    Ask,
    /// It hangs.
    Hangs,
}

/// Time is counted in periods that the node has lived through: one that was frozen itself, for however
/// long, has seen one of them end and gives the helper another.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// When the period ends; `None` while the helper has nothing to do.
    until: Option<Nanos>,
    /// Periods that have ended without the answer, if one is awaited.
    missed: Option<u32>,
}

impl Pulse {
    /// `busy` is whether the helper has something to do: while it has not, it is not asked.
    pub(super) fn settle(&mut self, now: Nanos, busy: bool) -> Beat {
        if !busy && self.missed.is_none() {
            self.until = None;
            return Beat::Nothing;
        }
        if self.until.is_some_and(|until| now < until) {
            return Beat::Nothing;
        }
        self.until = Some(now.after(PERIOD));
        match self.missed {
            None => {
                self.missed = Some(0);
                Beat::Ask
            }
            Some(0) => {
                self.missed = Some(1);
                Beat::Nothing
            }
            Some(_) => Beat::Hangs,
        }
    }

    /// It has answered.
    pub(super) fn answered(&mut self) {
        self.missed = None;
    }

    /// When [`Pulse::settle`] has something to do.
    pub(super) fn poll_timeout(&self) -> Nanos {
        self.until.unwrap_or(Nanos::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_helper_that_answers_is_asked_once_a_period() {
        let mut pulse = Pulse::default();
        for period in 0..4 {
            assert_eq!(pulse.settle(at(period * 5000), true), Beat::Ask);
            assert_eq!(pulse.settle(at(period * 5000 + 1), true), Beat::Nothing);
            pulse.answered();
            assert_eq!(pulse.settle(at(period * 5000 + 4999), true), Beat::Nothing);
            assert_eq!(pulse.poll_timeout(), at((period + 1) * 5000));
        }
    }

    #[test]
    fn one_that_does_not_answer_hangs_after_two_periods() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.settle(at(0), true), Beat::Ask);
        assert_eq!(pulse.settle(at(5000), true), Beat::Nothing);
        assert_eq!(pulse.settle(at(9999), true), Beat::Nothing);
        // Also when the last grant has ended meanwhile: the next one would meet the same helper.
        assert_eq!(pulse.settle(at(10_000), false), Beat::Hangs);
    }

    #[test]
    fn one_that_answers_late_does_not_hang() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.settle(at(0), true), Beat::Ask);
        assert_eq!(pulse.settle(at(5000), true), Beat::Nothing);
        pulse.answered();
        assert_eq!(pulse.settle(at(10_000), true), Beat::Ask);
        assert_eq!(pulse.settle(at(15_000), true), Beat::Nothing, "the count begins anew");
    }

    #[test]
    fn a_node_that_was_frozen_gives_another_period() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.settle(at(0), true), Beat::Ask);
        assert_eq!(pulse.settle(at(3_600_000), true), Beat::Nothing);
        assert_eq!(pulse.settle(at(3_604_999), true), Beat::Nothing);
        assert_eq!(pulse.settle(at(3_605_000), true), Beat::Hangs);
    }

    #[test]
    fn one_without_work_is_not_asked_and_wakes_nobody() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.settle(at(0), false), Beat::Nothing);
        assert_eq!(pulse.poll_timeout(), Nanos::NEVER);
        assert_eq!(pulse.settle(at(1), true), Beat::Ask);
        pulse.answered();
        assert_eq!(pulse.settle(at(2), false), Beat::Nothing);
        assert_eq!(pulse.poll_timeout(), Nanos::NEVER);
        assert_eq!(pulse.settle(at(3), true), Beat::Ask, "at once: a reader waits");
    }
}
