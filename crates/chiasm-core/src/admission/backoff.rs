//! Pauses that double, with jitter. The only place of admission that uses randomness.

use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng as _};

#[derive(Clone, Debug)]
pub(super) struct Backoff(ChaCha12Rng);

impl Backoff {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha12Rng::from_seed(seed))
    }

    /// The pause after `earlier` others: `first` doubled that often, no more than `longest`, of which
    /// a random part between half and all. The jitter keeps consumers of one restarted producer from
    /// coming back in step.
    pub(super) fn pause(
        &mut self,
        (first, longest): (Duration, Duration),
        earlier: u32,
    ) -> Duration {
        let factor = 1_u32.checked_shl(earlier).unwrap_or(u32::MAX);
        let whole = first.checked_mul(factor).unwrap_or(longest).min(longest);
        let half = whole / 2;
        half + whole
            .saturating_sub(half)
            .mul_f64(f64::from(self.0.next_u32()) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_longest_and_keeps_at_least_half() {
        let range = (Duration::from_millis(50), Duration::from_secs(1));
        let mut backoff = Backoff::new([7; 32]);
        for earlier in [0, 1, 2, 3, 4, 5, 31, 32, u32::MAX] {
            let whole = Duration::from_millis(50 << earlier.min(10)).min(range.1);
            for _ in 0..100 {
                let pause = backoff.pause(range, earlier);
                assert!(whole / 2 <= pause && pause <= whole, "{earlier}: {pause:?} of {whole:?}");
            }
        }
        let mut again = Backoff::new([7; 32]);
        let mut other = Backoff::new([8; 32]);
        let pauses = |backoff: &mut Backoff| [0; 4].map(|earlier| backoff.pause(range, earlier));
        let first = pauses(&mut again);
        assert_ne!(first, pauses(&mut other), "another seed, other pauses");
        assert_eq!(first, pauses(&mut Backoff::new([7; 32])), "same seed, same pauses");
    }
}
