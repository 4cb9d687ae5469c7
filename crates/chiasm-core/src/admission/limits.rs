//! Every bound and default of admission, by name, with the reason for its value.

use std::time::Duration;

/// How long one (request, `mm_hash`) may wait in all: `_ADMIT_DEFER_TIMEOUT_S` of vLLM 0.33.
pub const WAIT_BUDGET: Duration = Duration::from_mins(1);

/// First pause before an attempt is repeated. Three refused connects take less than 200 ms with it.
pub const FIRST_RETRY: Duration = Duration::from_millis(50);

/// Longest pause before an attempt is repeated: what an encoding that has become ready at last waits
/// in vain.
pub const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// Outages of one producer in a row that open its breaker. One restart of a producer is one.
pub const BREAKER_FAILURES: u32 = 3;

/// How long a breaker stays open at first.
pub const FIRST_COOL_DOWN: Duration = Duration::from_secs(1);

/// How long a breaker stays open at most: what a producer that is back waits for its first request.
pub const LONGEST_COOL_DOWN: Duration = Duration::from_secs(10);

/// How long the blocks of an unanswered attempt count as taken. A producer answers within one step
/// of its engine at the latest (upstream: 1.4 s at worst as measured, for steps of 2 s); what is
/// silent for longer must not keep others out of the region.
pub const RESERVATION: Duration = Duration::from_secs(2);

/// Transfers under way from one producer. Below what a producer grants one peer
/// ([`MAX_GRANTS_PER_PEER`](crate::limits::MAX_GRANTS_PER_PEER)) and what a link leaves unanswered
/// ([`MAX_UNANSWERED_PER_LINK`](crate::limits::MAX_UNANSWERED_PER_LINK)).
pub const MAX_TRANSFERS_PER_SOURCE: usize = 256;

/// Requests that are tracked at once: six times the 10,000 that the benchmark lets wait.
pub const MAX_REQUESTS: usize = 65_536;

/// Items of one request, as many as one `ec_transfer_params` has.
pub const MAX_ITEMS_PER_REQUEST: usize = crate::limits::MAX_PARAMS_ITEMS;

/// Items of all requests together: eight for each of [`MAX_REQUESTS`]. About 300 bytes each.
pub const MAX_ITEMS: usize = 524_288;

/// Longest request id in bytes. Clients may choose it.
pub const MAX_REQUEST_ID_BYTES: usize = 1024;

/// Events that wait to be logged. More are counted and dropped.
pub const MAX_EVENTS: usize = 1024;

/// Producers whose breaker is remembered. Beyond it the one that failed longest ago is forgotten,
/// which costs one more attempt.
pub const MAX_BREAKERS: usize = 1024;

/// Refused endpoints that are remembered as logged. Beyond it the oldest is forgotten, and logged
/// again if it comes again.
pub const MAX_REFUSALS_REMEMBERED: usize = 1024;
