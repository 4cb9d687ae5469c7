//! Worker ranks of one instance on this host.

use std::fmt;

/// Most workers of one instance: as many as a region has completion rings.
pub const MAX_RANKS: u16 = 16;

/// The number of one worker: `tp_rank + tp_size * pcp_rank` in vLLM, below [`MAX_RANKS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u8);

impl Rank {
    /// Rank 0, which saves.
    pub const ZERO: Self = Self(0);

    /// The rank with this number; `None` from [`MAX_RANKS`] on.
    #[must_use]
    pub fn new(rank: u16) -> Option<Self> {
        u8::try_from(rank).ok().filter(|_| rank < MAX_RANKS).map(Self)
    }

    /// Its number.
    #[must_use]
    pub const fn as_u16(self) -> u16 {
        self.0 as u16
    }

    /// Its number, for places in tables of [`MAX_RANKS`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Every rank, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_RANKS).filter_map(Self::new)
    }
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Some of the ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RankSet(u16);

impl RankSet {
    /// Ranks `0 .. ranks`: every worker of an instance. `None` if there are none or more than
    /// [`MAX_RANKS`].
    #[must_use]
    pub fn first(ranks: u16) -> Option<Self> {
        (1..=MAX_RANKS).contains(&ranks).then(|| (0..ranks).filter_map(Rank::new).collect())
    }

    /// The set with these bits, the lowest for rank 0.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// One bit a rank, the lowest for rank 0.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether it has no rank.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has this rank.
    #[must_use]
    pub const fn has(self, rank: Rank) -> bool {
        self.0 & Self::bit(rank) != 0
    }

    /// Takes a rank out; whether it was there.
    pub fn remove(&mut self, rank: Rank) -> bool {
        let had = self.has(rank);
        self.0 &= !Self::bit(rank);
        had
    }

    /// Its ranks, in order.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        Rank::all().filter(move |&rank| self.has(rank))
    }

    const fn bit(rank: Rank) -> u16 {
        1 << rank.0
    }
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        Self(ranks.into_iter().fold(0, |bits, rank| bits | Self::bit(rank)))
    }
}

impl From<Rank> for RankSet {
    fn from(rank: Rank) -> Self {
        Self(Self::bit(rank))
    }
}

impl fmt::Debug for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_sixteen_ranks_and_no_seventeenth() {
        assert_eq!(Rank::all().count(), 16);
        assert_eq!(Rank::new(15).map(Rank::index), Some(15));
        for none in [16, 256, u16::MAX] {
            assert_eq!(Rank::new(none), None);
        }
        assert_eq!(RankSet::first(16).map(RankSet::bits), Some(u16::MAX));
        assert_eq!((RankSet::first(0), RankSet::first(17)), (None, None));
    }

    #[test]
    fn a_set_has_what_was_put_in_and_not_taken_out() {
        let (two, five) = (Rank::new(2).unwrap(), Rank::new(5).unwrap());
        let mut set: RankSet = [two, five].into_iter().collect();
        assert!(set.has(two) && set.has(five) && !set.has(Rank::ZERO));
        assert!(set.remove(two));
        assert!(!set.remove(two));
        assert_eq!(set, RankSet::from(five));
        assert_eq!(set.iter().collect::<Vec<_>>(), [five]);
    }
}
