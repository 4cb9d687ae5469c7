//! What an operator should hear about, as values. The owner turns them into log lines.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Reason;
use crate::allowlist::Refusal;
use crate::consumer::FailureReason;
use crate::endpoint::Endpoint;
use crate::mm_hash::MmHash;

/// One log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// WARN, once per endpoint: a request names a producer that is not approved.
    Refused(Refusal),
    /// WARN, once per ack time-out.
    AckTimeout {
        /// The producer that did not answer.
        source: Endpoint,
        /// What it was asked for.
        hash: MmHash,
        /// Which attempt of this read it was, from 1.
        attempt: u32,
        /// How long the request that waits longest has waited for it.
        waited: Duration,
        /// What is left of that request's budget.
        budget_left: Duration,
    },
    /// INFO, one per item: the engine encodes it.
    FellBack {
        /// The request.
        request: Arc<str>,
        /// The item.
        hash: MmHash,
        /// Why.
        reason: Reason,
        /// How long it had waited.
        waited: Duration,
    },
    /// WARN, one per request: it fails.
    Failed {
        /// The request.
        request: Arc<str>,
        /// The item that it fails for; none where the request has too many.
        hash: Option<MmHash>,
        /// Why.
        reason: Reason,
        /// How long the item had waited.
        waited: Duration,
    },
    /// ERROR: two sources hold different bytes under one hash. The first to arrive stays.
    Disagree {
        /// The hash.
        hash: MmHash,
        /// Where the entry in use came from; none if it was saved here or its source is forgotten.
        first: Option<Endpoint>,
        /// Who delivered something else.
        second: Endpoint,
    },
    /// WARN: a producer delivered wrong bytes.
    WrongBytes {
        /// The producer.
        source: Endpoint,
        /// The entry.
        hash: MmHash,
        /// In which way.
        reason: FailureReason,
    },
    /// WARN, once until it answers again: a producer is taken to be down.
    BreakerOpened {
        /// The producer.
        source: Endpoint,
        /// What showed it.
        reason: FailureReason,
        /// How long until it is tried again.
        pause: Duration,
    },
    /// INFO: it answers again.
    BreakerClosed {
        /// The producer.
        source: Endpoint,
    },
}

/// A bounded queue: a flood of failures must cost neither memory nor the first lines, which tell
/// most.
#[derive(Debug)]
pub(super) struct Events {
    queue: VecDeque<Event>,
    limit: usize,
    dropped: u64,
}

impl Events {
    pub(super) fn new(limit: usize) -> Self {
        Self { queue: VecDeque::new(), limit, dropped: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, event: Event) {
        if self.queue.len() < self.limit {
            self.queue.push_back(event);
        } else {
            self.dropped += 1;
        }
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.queue.pop_front()
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}
