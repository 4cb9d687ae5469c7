//! Log lines that peers can cause: one a second at most, with the number of those that were left out.

use std::time::Duration;

use chiasm_core::time::Nanos;

/// How often one kind of line may be written.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    quiet_until: Nanos,
    left_out: u64,
}

impl Throttle {
    /// The number of lines left out since the last one, if one may be written now.
    pub(crate) fn pass(&mut self, now: Nanos) -> Option<u64> {
        if now < self.quiet_until {
            self.left_out += 1;
            return None;
        }
        self.quiet_until = now.after(PAUSE);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_becomes_one_line_a_second_that_counts_the_others() {
        let mut throttle = Throttle::default();
        let at = |nanos| Nanos::from_nanos(nanos);
        assert_eq!(throttle.pass(at(0)), Some(0));
        for nanos in [1, 2, 999_999_999] {
            assert_eq!(throttle.pass(at(nanos)), None);
        }
        assert_eq!(throttle.pass(at(1_000_000_000)), Some(3));
        assert_eq!(throttle.pass(at(2_000_000_000)), Some(0));
    }
}
