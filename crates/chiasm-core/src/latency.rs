//! How long things took, counted in fixed steps: what a histogram of a metrics system is made of.
//!
//! It must never allocate, and never forget: counts only grow.

use std::time::Duration;

/// Upper ends of the steps in microseconds, from an ack between two nodes at rest (about 100 us) to the
/// longest lease; one more step is for what took longer.
pub const UPPER_ENDS_US: [u64; 18] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000,
];

/// Durations, by step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    steps: [u64; UPPER_ENDS_US.len() + 1],
    sum: Duration,
}

impl LatencyHistogram {
    /// Counts one duration.
    pub fn observe(&mut self, duration: Duration) {
        let ends = UPPER_ENDS_US.map(Duration::from_micros);
        let step = ends.partition_point(|end| *end < duration);
        if let Some(count) = self.steps.get_mut(step) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(duration);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.steps.iter().sum()
    }

    /// All of them together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Each step's upper end, `None` for the last, and how many fell into it.
    pub fn steps(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let ends = UPPER_ENDS_US.into_iter().map(|end| Some(Duration::from_micros(end)));
        ends.chain([None]).zip(self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step_of(duration: Duration) -> Option<Duration> {
        let mut histogram = LatencyHistogram::default();
        histogram.observe(duration);
        assert_eq!((histogram.count(), histogram.sum()), (1, duration));
        let counted: Vec<_> = histogram.steps().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted.len(), 1);
        counted[0].0
    }

    #[test]
    fn a_duration_is_counted_in_the_first_step_that_reaches_it() {
        let micros = Duration::from_micros;
        assert_eq!(step_of(Duration::ZERO), Some(micros(50)));
        assert_eq!(step_of(micros(50)), Some(micros(50)));
        assert_eq!(step_of(micros(50) + Duration::from_nanos(1)), Some(micros(100)));
        assert_eq!(step_of(Duration::from_secs(30)), Some(Duration::from_secs(30)));
        assert_eq!(step_of(Duration::from_secs(31)), None);
    }

    #[test]
    fn the_steps_rise() {
        assert!(UPPER_ENDS_US.is_sorted_by(|one, other| one < other));
    }
}
