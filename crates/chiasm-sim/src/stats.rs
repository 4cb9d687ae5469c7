//! What came of requests and items, in numbers.

use std::time::Duration;

use chiasm_core::admission::{Decision, Verdict};

/// Counts and times of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests that have reached an engine.
    pub requests: u64,
    /// Admissions with everything that was needed.
    pub ready: u64,
    /// Admissions with items to be encoded.
    pub fallback: u64,
    /// Requests that have failed.
    pub failed: u64,
    /// Requests that their clients gave up.
    pub aborted: u64,
    /// Requests that a restart has swept away, or that found their engine down.
    pub lost: u64,
    /// Items that were in the region when they were first asked for.
    pub local_hits: u64,
    /// Items that were read from a producer.
    pub remote_hits: u64,
    /// Items that were encoded by the engine that needed them.
    pub encoded: u64,
    /// From a request's arrival to its admission or failure, in nanoseconds.
    pub waits: Vec<u64>,
}

impl Stats {
    pub(crate) fn item(&mut self, verdict: Verdict, attempts: u32, waited: Duration) {
        match verdict {
            Verdict::Ready if attempts == 0 && waited.is_zero() => self.local_hits += 1,
            Verdict::Ready => self.remote_hits += 1,
            Verdict::Fallback | Verdict::NotAnnounced => self.encoded += 1,
            Verdict::Computed | Verdict::Waiting | Verdict::Unavailable => {}
        }
    }

    pub(crate) fn admitted(&mut self, decision: Decision, waited: u64) {
        if decision == Decision::Ready {
            self.ready += 1;
        } else {
            self.fallback += 1;
        }
        self.waits.push(waited);
    }

    pub(crate) fn failed(&mut self, waited: u64) {
        self.failed += 1;
        self.waits.push(waited);
    }

    /// The wait that this share of requests, in thousandths, did not exceed, in nanoseconds.
    #[must_use]
    pub fn wait_quantile(&self, per_mille: usize) -> u64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let at = (waits.len() * per_mille / 1000).min(waits.len().saturating_sub(1));
        waits.get(at).copied().unwrap_or(0)
    }
}
