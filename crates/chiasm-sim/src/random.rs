//! The simulator's only source of chance: one seed, the same numbers on every machine (S10).

/// `SplitMix64` (Steele, Lea, Flood 2014): small, fast, and good enough to choose what happens next.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// The step between two states.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Spreads the bits of one number over all of its bits.
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The generator of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x6368_6961_736d))
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `bound`; 0 if that is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// A place in a list of this length; 0 if it is empty.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// The same in 32 bits.
    pub fn between_u32(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(u64::from(low), u64::from(high))).unwrap_or(high)
    }

    /// True so many times in a thousand.
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille as u64
    }

    /// One of these; `None` of none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.index(all.len()))
    }

    /// From `low` to `high`, small numbers as likely as large ones: what delays are like.
    pub fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let octaves = u64::from(64 - (high.max(low) / low).leading_zeros());
        let scale = low.saturating_shl_capped(self.below(octaves));
        self.between(scale, scale.saturating_mul(2)).clamp(low, high.max(low))
    }

    /// Another generator, which shares nothing with this one from now on.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self::new(self.next())
    }
}

trait SaturatingShl {
    fn saturating_shl_capped(self, bits: u64) -> Self;
}

impl SaturatingShl for u64 {
    fn saturating_shl_capped(self, bits: u64) -> Self {
        let factor = u32::try_from(bits).ok().and_then(|bits| 1_u64.checked_shl(bits));
        self.saturating_mul(factor.unwrap_or(Self::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_another_seed_another() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.next())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_stay_in_their_bounds() {
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            assert!(random.below(3) < 3);
            assert!((5..=9).contains(&random.between(5, 9)));
            assert!((10..=1_000_000).contains(&random.skewed(10, 1_000_000)));
        }
        assert_eq!((random.below(0), random.index(0)), (0, 0));
        assert!((0..1000).all(|_| !random.chance(0)));
        assert!((0..1000).all(|_| random.chance(1000)));
    }
}
