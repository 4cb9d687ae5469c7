//! What admission is told once.

use std::time::Duration;

use super::limits;

/// Times and bounds. The defaults are the constants of [`limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// How long one (request, `mm_hash`) may wait in all (`wait_budget_s`).
    pub wait_budget: Duration,
    /// The pause before an attempt is repeated: first and longest. It doubles from one to the other.
    pub retry: (Duration, Duration),
    /// Outages in a row that open a producer's breaker; at least 1.
    pub breaker_failures: u32,
    /// How long a breaker stays open: first and longest. It doubles from one to the other.
    pub cool_down: (Duration, Duration),
    /// How long the blocks of an unanswered attempt count as taken.
    pub reservation: Duration,
    /// Transfers under way from one producer; at least 1.
    pub max_transfers_per_source: usize,
    /// Requests that are tracked at once.
    pub max_requests: usize,
    /// Items of one request.
    pub max_items_per_request: usize,
    /// Items of all requests together.
    pub max_items: usize,
    /// Events that wait to be logged.
    pub max_events: usize,
    /// Producers whose breaker is remembered; at least 1.
    pub max_breakers: usize,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            wait_budget: limits::WAIT_BUDGET,
            retry: (limits::FIRST_RETRY, limits::LONGEST_RETRY),
            breaker_failures: limits::BREAKER_FAILURES,
            cool_down: (limits::FIRST_COOL_DOWN, limits::LONGEST_COOL_DOWN),
            reservation: limits::RESERVATION,
            max_transfers_per_source: limits::MAX_TRANSFERS_PER_SOURCE,
            max_requests: limits::MAX_REQUESTS,
            max_items_per_request: limits::MAX_ITEMS_PER_REQUEST,
            max_items: limits::MAX_ITEMS,
            max_events: limits::MAX_EVENTS,
            max_breakers: limits::MAX_BREAKERS,
        }
    }
}
