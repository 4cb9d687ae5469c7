//! One instance's core: cache, producer, consumer and allowlist as one machine.
//!
//! It only wires them together. Whoever owns sockets, planes and the clock drives it: one input with
//! `now`, then its actions until there are none, then back no later than its timeout.

use std::collections::BTreeMap;

use crate::allowlist::{Allowlist, Refusal, Verdict};
use crate::cache::{Cache, EvictionPolicy};
use crate::consumer::{
    Consumer, ConsumerAction, ConsumerConfig, FailureReason, Finished, ReadEnd, TransferId, Wanted,
};
use crate::endpoint::Endpoint;
use crate::producer::{GrantToken, PeerId, Producer, ProducerConfig, StreamId, StreamRead};
use crate::time::Nanos;

/// What an instance is told once.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Blocks of its region.
    pub blocks: u32,
    /// How it serves.
    pub producer: ProducerConfig,
    /// How it reads.
    pub consumer: ConsumerConfig,
    /// Producers that it may read from.
    pub allowed: Allowlist,
    /// Makes grant tokens.
    pub seed: [u8; 32],
}

/// The core of one instance.
#[derive(Debug)]
pub struct Instance {
    /// Who owns which blocks.
    pub cache: Cache,
    producer: Producer,
    consumer: Consumer,
    allowed: Allowlist,
    finished: BTreeMap<TransferId, Finished>,
}

impl Instance {
    /// An instance with an empty region.
    #[must_use]
    pub fn new(config: InstanceConfig) -> Self {
        Self {
            cache: Cache::new(config.blocks, EvictionPolicy::Fifo),
            producer: Producer::new(config.producer, config.seed),
            consumer: Consumer::new(config.consumer),
            allowed: config.allowed,
            finished: BTreeMap::new(),
        }
    }

    /// One request from a peer of the control socket; the answer, if there is one.
    pub fn handle_request(&mut self, now: Nanos, peer: PeerId, payload: &[u8]) -> Option<Vec<u8>> {
        self.producer.handle_request(now, peer, payload, &mut self.cache)
    }

    /// The peer's control connection is gone.
    pub fn peer_gone(&mut self, peer: PeerId) {
        self.producer.peer_gone(peer, &mut self.cache);
    }

    /// A data stream presents a token.
    pub fn open_stream(&mut self, now: Nanos, token: GrantToken) -> Option<StreamRead> {
        self.producer.open_stream(now, token)
    }

    /// A data stream has sent all its bytes, or is lost.
    pub fn stream_ended(&mut self, stream: StreamId, completed: bool) {
        self.producer.stream_ended(stream, completed, &mut self.cache);
    }

    /// Starts to read an entry, if its source is approved. Nothing has been allocated, resolved or
    /// connected before that is checked (S1).
    pub fn fetch(&mut self, now: Nanos, wanted: Wanted) -> Result<TransferId, Refusal> {
        match self.allowed.check(&wanted.source) {
            Verdict::Allowed => Ok(self.consumer.start(now, wanted)),
            Verdict::Refused(refusal) => Err(refusal),
        }
    }

    /// Whether the allowlist names this endpoint.
    #[must_use]
    pub fn is_allowed(&self, endpoint: &Endpoint) -> bool {
        self.allowed.check(endpoint) == Verdict::Allowed
    }

    /// The end of a fetch, once. Its entry is pinned for the caller, who unpins it.
    pub fn take_finished(&mut self, id: TransferId) -> Option<Finished> {
        self.finished.remove(&id)
    }

    /// Nobody wants this transfer any more.
    pub fn cancel(&mut self, id: TransferId) {
        self.consumer.cancel(id, &mut self.cache);
        if let Some(Finished { outcome: Ok(arrived), .. }) = self.finished.remove(&id) {
            let _ = self.cache.unpin(arrived.entry);
        }
    }

    /// The connection to a producer stands.
    pub fn link_up(&mut self, now: Nanos, endpoint: &Endpoint) {
        self.consumer.link_up(now, endpoint);
        self.collect();
    }

    /// The connection to a producer could not be made or is lost.
    pub fn link_down(&mut self, endpoint: &Endpoint, reason: &FailureReason) {
        self.consumer.link_down(endpoint, reason);
        self.collect();
    }

    /// One message from a producer.
    pub fn receive(&mut self, now: Nanos, endpoint: &Endpoint, payload: &[u8]) {
        self.consumer.receive(now, endpoint, payload, &mut self.cache);
        self.collect();
    }

    /// A plane has let go of a read's blocks.
    pub fn read_ended(&mut self, now: Nanos, id: TransferId, end: ReadEnd) {
        self.consumer.read_ended(now, id, end, &mut self.cache);
        self.collect();
    }

    /// Ends what has run out of time; the streams to close because their lease has ended.
    pub fn handle_timeout(&mut self, now: Nanos) -> Vec<StreamId> {
        self.consumer.handle_timeout(now, &mut self.cache);
        self.collect();
        self.producer.handle_timeout(now, &mut self.cache)
    }

    /// When [`Instance::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.consumer.poll_timeout().min(self.producer.poll_timeout())
    }

    /// The next thing to do for whoever owns sockets and planes.
    pub fn poll_action(&mut self) -> Option<ConsumerAction> {
        self.consumer.poll_action()
    }

    /// The serving side, to look at.
    #[must_use]
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The reading side, to look at.
    #[must_use]
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    fn collect(&mut self) {
        while let Some(finished) = self.consumer.poll_finished() {
            if let Ok(arrived) = &finished.outcome {
                let pinned = self.cache.pin(arrived.entry);
                debug_assert!(pinned.is_ok(), "an entry that has just arrived is ready");
            }
            self.finished.insert(finished.transfer, finished);
        }
    }
}
