//! Metadata that has ended the helper that loaded it: it is not loaded again for a while.
//!
//! A producer that comes with it again and again would cost everybody else's reads a retry each time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chiasm_core::endpoint::Endpoint;
use chiasm_core::time::Nanos;

/// How long it is not loaded: two wait budgets.
const LIMIT: Duration = Duration::from_mins(2);

/// Most that are remembered; each is 64 KiB at most. Forgetting one costs one helper.
const MAX_SUSPECTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Suspects(VecDeque<(Nanos, Endpoint, Arc<[u8]>)>);

impl Suspects {
    /// This metadata, as this producer sent it, has ended a helper.
    pub(super) fn add(&mut self, now: Nanos, endpoint: &Endpoint, metadata: &Arc<[u8]>) {
        if self.0.len() >= MAX_SUSPECTS {
            self.0.pop_front();
        }
        self.0.push_back((now.after(LIMIT), endpoint.clone(), Arc::clone(metadata)));
    }

    pub(super) fn contains(&mut self, now: Nanos, endpoint: &Endpoint, metadata: &[u8]) -> bool {
        while self.0.front().is_some_and(|(until, ..)| *until <= now) {
            self.0.pop_front();
        }
        self.0.iter().any(|(_, known, bytes)| known == endpoint && **bytes == *metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_a_helper_is_remembered_for_a_while_and_for_its_producer() {
        let at = |seconds: u64| Nanos::from_nanos(seconds * 1_000_000_000);
        let endpoint = |port: usize| Endpoint::parse(&format!("10.0.0.1:{port}")).unwrap();
        let bytes: Arc<[u8]> = vec![7; 100].into();
        let mut suspects = Suspects::default();
        suspects.add(at(0), &endpoint(1), &bytes);
        assert!(suspects.contains(at(119), &endpoint(1), &bytes));
        assert!(!suspects.contains(at(119), &endpoint(2), &bytes));
        assert!(!suspects.contains(at(119), &endpoint(1), &[7; 99]));
        assert!(!suspects.contains(at(120), &endpoint(1), &bytes));
        for port in 1..1000 {
            suspects.add(at(200), &endpoint(port), &bytes);
        }
        assert_eq!(suspects.0.len(), MAX_SUSPECTS);
        assert!(suspects.contains(at(200), &endpoint(999), &bytes));
    }
}
