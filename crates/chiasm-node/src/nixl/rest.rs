//! How long a helper that has died rests before it is started again.

use std::time::Duration;

use chiasm_core::time::Nanos;

/// First rest; it doubles with each death.
const FIRST: Duration = Duration::from_millis(200);
/// Longest rest.
const LONGEST: Duration = Duration::from_secs(30);
/// A helper that has lived so long is not taken for one that cannot live.
const SETTLED: Duration = Duration::from_mins(1);

/// Counts the deaths that follow each other closely.
#[derive(Debug, Default)]
pub(super) struct Rest {
    deaths: u32,
    until: Option<Nanos>,
}

impl Rest {
    /// A helper that was started at `started` has died.
    pub(super) fn died(&mut self, now: Nanos, started: Nanos) {
        if now.since(started) >= SETTLED {
            self.deaths = 0;
        }
        let rest = FIRST.saturating_mul(1 << self.deaths.min(16)).min(LONGEST);
        self.deaths = self.deaths.saturating_add(1);
        self.until = Some(now.after(rest));
    }

    /// Until when there is none to be started.
    pub(super) fn until(&self) -> Option<Nanos> {
        self.until
    }

    /// Whether one may be started.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        self.until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Nanos {
        Nanos::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn rests_grow_while_deaths_follow_closely() {
        let mut rest = Rest::default();
        assert!(rest.is_over(at(0)));
        let mut now = 0;
        for expected in [200, 400, 800, 1600] {
            rest.died(at(now), at(now));
            assert!(!rest.is_over(at(now + expected - 1)) && rest.is_over(at(now + expected)));
            now += expected;
        }
        for _ in 0..40 {
            rest.died(at(now), at(now));
        }
        assert_eq!(rest.until(), Some(at(now + 30_000)), "and stop growing");
        rest.died(at(now + 60_000), at(now));
        assert_eq!(
            rest.until(),
            Some(at(now + 60_200)),
            "one that has lived for a while is new luck"
        );
    }
}
