//! How much a benchmark does: all of it, enough for the order of things, or enough to see that it runs.

/// How much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// The figures.
    Full,
    /// The order of things.
    Quick,
    /// That it runs.
    Smoke,
}

impl Effort {
    /// So many; a tenth or a thousandth of it, but one at least.
    pub(super) fn of(self, count: usize) -> usize {
        let part = match self {
            Self::Full => 1,
            Self::Quick => 10,
            Self::Smoke => 1000,
        };
        (count / part).max(1)
    }

    /// One of three.
    pub(super) fn choose<T>(self, full: T, quick: T, smoke: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smoke => smoke,
        }
    }

    /// The flag by which a process of the fleet is told.
    pub(super) fn flag(self) -> Option<&'static str> {
        self.choose(None, Some("--quick"), Some("--smoke"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_is_a_part_and_never_nothing() {
        assert_eq!([25, 10, 3].map(|count| Effort::Quick.of(count)), [2, 1, 1]);
        assert_eq!([2000, 3].map(|count| Effort::Smoke.of(count)), [2, 1]);
        assert_eq!(Effort::Full.of(25), 25);
    }
}
