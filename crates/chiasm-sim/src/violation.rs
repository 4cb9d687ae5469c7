//! What a checker reports: which promise was broken, and how.

use std::fmt;

/// A promise of the product, by the name that the code cites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Nothing is touched for an endpoint that is not allowed.
    S1,
    /// Bytes under a live grant do not change; recycled blocks are never served under another hash.
    S2,
    /// Ready only after all bytes have landed.
    S3,
    /// Blocks are neither lost nor freed twice.
    S4,
    /// Every wait ends within its budget.
    S5,
    /// Failed or admitted, never both, reported once, and nobody else's answer changes.
    S6,
    /// No bytes from outside can panic or make memory grow past a limit.
    S7,
    /// A grant ends by its own completion or its lease.
    S8,
    /// Regions and helpers vanish, and a live region is never touched.
    S9,
    /// When nothing is wrong any more, everything works again.
    Liveness,
}

impl Promise {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S4 => "S4",
            Self::S5 => "S5",
            Self::S6 => "S6",
            Self::S7 => "S7",
            Self::S8 => "S8",
            Self::S9 => "S9",
            Self::Liveness => "liveness",
        }
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub promise: Promise,
    /// When, in nanoseconds of simulated time.
    pub at: u64,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanos) = (self.at / 1_000_000_000, self.at % 1_000_000_000);
        write!(f, "{} broken at {seconds}.{nanos:09}s: {}", self.promise.name(), self.what)
    }
}

/// What every step of a simulation gives.
pub(crate) type Step<T = ()> = Result<T, Broken>;

/// A broken promise before anybody has said when.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

/// An error unless `holds`.
pub(crate) fn ensure(holds: bool, promise: Promise, what: impl FnOnce() -> String) -> Step {
    if holds { Ok(()) } else { Err(broken(promise, what())) }
}

pub(crate) fn broken(promise: Promise, what: impl Into<String>) -> Broken {
    Broken { promise, what: what.into() }
}
