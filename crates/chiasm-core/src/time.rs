//! The core's own instant: nanoseconds since an origin that whoever drives the core has chosen.
//!
//! The node feeds it `CLOCK_BOOTTIME`, the simulator its own clock. Nothing below the node reads a
//! clock.

use std::fmt;
use std::time::Duration;

/// An instant in nanoseconds since the driver's origin. 64 bits last 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any instant that a machine computes: "no timeout".
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant plus `duration`; [`Nanos::NEVER`] where that overflows.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("never");
        }
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        let late = Nanos::from_nanos(u64::MAX - 1);
        assert_eq!(late.after(Duration::from_secs(1)), Nanos::NEVER);
        assert_eq!(Nanos::ZERO.since(late), Duration::ZERO);
        assert_eq!(Nanos::ZERO.after(Duration::MAX), Nanos::NEVER);
        assert_eq!(Nanos::from_nanos(7).since(Nanos::from_nanos(2)), Duration::from_nanos(5));
    }
}
