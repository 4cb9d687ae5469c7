//! Metadata that has ended the helper that loaded it: it is not loaded again for a while.
//!
//! The owner of the helpers asks here before it loads anything. It must never have a say in whether what
//! has been read counts.
//!
//! A producer that comes with it again and again would cost everybody else's reads a retry each time. But
//! the helper may have died of something else just then: the first suspicion is over long before a request
//! that waits has spent its budget, and each further one lasts twice as long.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::Endpoint;
use crate::time::Nanos;

/// How long it is not loaded after the first time: a sixth of the default wait budget.
const FIRST: Duration = Duration::from_secs(10);

/// Longest suspicion: two default wait budgets. What has not come up again for as long is forgotten.
const LONGEST: Duration = Duration::from_mins(2);

/// Most that are remembered; each is 64 KiB at most. Forgetting one costs one helper.
const MAX_SUSPECTS: usize = 64;

#[derive(Debug)]
struct Suspect {
    endpoint: Endpoint,
    metadata: Arc<[u8]>,
    /// Helpers that it has ended.
    times: u32,
    until: Nanos,
}

/// What has ended helpers, longest known first.
#[derive(Debug, Default)]
pub struct SuspectAgents(VecDeque<Suspect>);

impl SuspectAgents {
    /// This metadata, as this producer sent it, has ended a helper. How long it is suspected now.
    pub fn add(&mut self, now: Nanos, endpoint: &Endpoint, metadata: &Arc<[u8]>) -> Duration {
        self.0.retain(|it| now < it.until.after(LONGEST));
        let same = |it: &Suspect| it.endpoint == *endpoint && it.metadata == *metadata;
        let before = self.0.iter().position(same).and_then(|at| self.0.remove(at));
        let times = before.map_or(0, |it| it.times);
        if self.0.len() >= MAX_SUSPECTS {
            self.0.pop_front();
        }
        let lasts = FIRST.saturating_mul(1 << times.min(16)).min(LONGEST);
        self.0.push_back(Suspect {
            endpoint: endpoint.clone(),
            metadata: Arc::clone(metadata),
            times: times.saturating_add(1),
            until: now.after(lasts),
        });
        lasts
    }

    /// How long this metadata of this producer's is not to be loaded; `None` if it may be.
    #[must_use]
    pub fn remaining(&self, now: Nanos, endpoint: &Endpoint, metadata: &[u8]) -> Option<Duration> {
        let same = |it: &&Suspect| it.endpoint == *endpoint && *it.metadata == *metadata;
        let known = self.0.iter().find(same).filter(|it| now < it.until)?;
        Some(known.until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos::from_nanos(seconds * 1_000_000_000)
    }

    fn endpoint(port: usize) -> Endpoint {
        Endpoint::parse(&format!("10.0.0.1:{port}")).unwrap()
    }

    #[test]
    fn what_has_ended_a_helper_is_remembered_for_a_while_and_for_its_producer() {
        let bytes: Arc<[u8]> = vec![7; 100].into();
        let mut suspects = SuspectAgents::default();
        suspects.add(at(0), &endpoint(1), &bytes);
        let left = |at, port, bytes: &[u8]| suspects.remaining(at, &endpoint(port), bytes);
        assert_eq!(left(at(9), 1, &bytes), Some(Duration::from_secs(1)));
        assert_eq!(left(at(9), 2, &bytes), None);
        assert_eq!(left(at(9), 1, &[7; 99]), None);
        assert_eq!(left(at(10), 1, &bytes), None);
        for port in 1..1000 {
            suspects.add(at(200), &endpoint(port), &bytes);
        }
        assert_eq!(suspects.0.len(), MAX_SUSPECTS);
        assert!(suspects.remaining(at(200), &endpoint(999), &bytes).is_some());
    }

    #[test]
    fn each_time_it_is_suspected_for_longer_and_after_good_conduct_anew() {
        let bytes: Arc<[u8]> = vec![7; 100].into();
        let mut suspects = SuspectAgents::default();
        let mut now = 0;
        for seconds in [10, 20, 40, 80, 120, 120] {
            let lasts = suspects.add(at(now), &endpoint(1), &bytes);
            assert_eq!(lasts, Duration::from_secs(seconds));
            now += seconds;
            assert!(suspects.remaining(at(now - 1), &endpoint(1), &bytes).is_some());
            assert_eq!(suspects.remaining(at(now), &endpoint(1), &bytes), None);
        }
        let lasts = suspects.add(at(now + 119), &endpoint(1), &bytes);
        assert_eq!(lasts, LONGEST, "it is remembered for as long again");
        let lasts = suspects.add(at(now + 119 + 240), &endpoint(1), &bytes);
        assert_eq!(lasts, FIRST, "and no longer");
    }
}
