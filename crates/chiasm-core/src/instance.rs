//! One instance's core: cache, producer, consumer and admission as one machine.
//!
//! It only wires them together, so that the order in which they hear of things is the same in a node
//! and in a simulator. Whoever owns sockets, planes and the clock drives it: one input with `now`,
//! then its actions until there are none, then back no later than its timeout.

mod dispatched;

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng as _, SeedableRng as _};

use crate::admission::{Admission, AdmissionConfig, Decision, Event, Item, ItemReport, Untracked};
use crate::allowlist::Allowlist;
use crate::cache::{Cache, EntryKey, EvictionPolicy, ReserveError, StateError, Usage};
use crate::consumer::{
    Consumer, ConsumerAction, ConsumerConfig, FailureReason, ReadEnd, ReceivedAck, TransferId,
};
use crate::digest::Digest;
use crate::dispatch::Dispatches;
use crate::endpoint::Endpoint;
use crate::entry::EntryMeta;
use crate::mm_hash::MmHash;
use crate::plane::Plane;
use crate::producer::{
    GrantToken, NixlAgent, PeerId, Producer, ProducerConfig, ReaderRegion, StreamId, StreamRead,
};
use crate::time::Nanos;
use crate::wire::{DecodeError, Message};

/// What an instance is told once.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Blocks of its region.
    pub blocks: u32,
    /// How it serves.
    pub producer: ProducerConfig,
    /// How it reads.
    pub consumer: ConsumerConfig,
    /// How it decides.
    pub admission: AdmissionConfig,
    /// How long a worker may take to report a save: `save_timeout_s`.
    pub save_timeout: Duration,
    /// How long the blocks of a dead worker's save rest: `quarantine_s`.
    pub quarantine: Duration,
    /// Producers that it may read from.
    pub allowed: Allowlist,
    /// Makes grant tokens, jitter and the ids of dispatches.
    pub seed: [u8; 32],
}

/// The core of one instance.
#[derive(Debug)]
pub struct Instance {
    cache: Cache,
    producer: Producer,
    consumer: Consumer,
    admission: Admission,
    dispatches: Dispatches,
    allowlist_version: u64,
}

impl Instance {
    /// An instance with an empty region.
    #[must_use]
    pub fn new(config: InstanceConfig) -> Self {
        // Peers can watch the jitter: it must not come out of the generator of the tokens.
        let mut rng = ChaCha12Rng::from_seed(config.seed);
        let mut seed = || {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            seed
        };
        Self {
            cache: Cache::new(config.blocks, EvictionPolicy::Fifo),
            producer: Producer::new(config.producer, seed()),
            consumer: Consumer::new(config.consumer),
            admission: Admission::new(config.admission, config.allowed, seed()),
            dispatches: Dispatches::new(config.save_timeout, config.quarantine, rng.next_u64()),
            allowlist_version: 0,
        }
    }

    fn settle(&mut self, now: Nanos) {
        self.admission.advance(now, &mut self.cache, &mut self.consumer);
    }
}

/// The serving side: what comes over connections that others made.
impl Instance {
    /// One message from a peer of the control socket; the answer, if there is one.
    pub fn handle_request(&mut self, now: Nanos, peer: PeerId, payload: &[u8]) -> Option<Message> {
        let answer = self.producer.handle_request(now, peer, payload, &mut self.cache);
        // Without an answer it may have been the end of a grant, whose blocks somebody waits for.
        if answer.is_none() {
            self.settle(now);
        }
        answer
    }

    /// [`Producer::drain`].
    pub fn drain(&mut self) {
        self.producer.drain();
    }

    /// [`Producer::agent_up`].
    pub fn agent_up(&mut self, agent: NixlAgent) {
        self.producer.agent_up(agent);
    }

    /// [`Producer::agent_down`].
    pub fn agent_down(&mut self) {
        self.producer.agent_down();
    }

    /// NIXL cannot be used here: nothing is offered or served over it any more.
    pub fn without_nixl(&mut self) {
        self.producer.without_plane(Plane::Nixl);
        self.consumer.without_plane(Plane::Nixl);
    }

    /// [`Producer::completed`].
    pub fn completed(&mut self, now: Nanos, agent: u64, text: &[u8]) {
        self.producer.completed(agent, text, &mut self.cache);
        self.settle(now);
    }

    /// The peer's control connection is gone.
    pub fn peer_gone(&mut self, now: Nanos, peer: PeerId) {
        self.producer.peer_gone(peer, &mut self.cache);
        self.settle(now);
    }

    /// [`Producer::take_new_reader`].
    pub fn take_new_reader(&mut self) -> Option<(PeerId, ReaderRegion)> {
        self.producer.take_new_reader()
    }

    /// [`Producer::reader_dead`].
    pub fn reader_dead(&mut self, now: Nanos, peer: PeerId) {
        self.producer.reader_dead(peer, &mut self.cache);
        self.settle(now);
    }

    /// A data stream presents a token.
    pub fn open_stream(&mut self, now: Nanos, token: GrantToken) -> Option<StreamRead> {
        self.producer.open_stream(now, token)
    }

    /// A data stream has sent all its bytes, or is lost.
    pub fn stream_ended(&mut self, now: Nanos, stream: StreamId, completed: bool) {
        self.producer.stream_ended(stream, completed, &mut self.cache);
        self.settle(now);
    }
}

/// The reading side: what comes over connections that this instance made.
impl Instance {
    /// The connection to a producer stands.
    pub fn link_up(&mut self, now: Nanos, endpoint: &Endpoint) {
        self.consumer.link_up(now, endpoint);
        self.settle(now);
    }

    /// The connection to a producer could not be made or is lost.
    pub fn link_down(&mut self, now: Nanos, endpoint: &Endpoint, reason: &FailureReason) {
        self.consumer.link_down(endpoint, reason);
        self.settle(now);
    }

    /// [`Consumer::receive`].
    pub fn receive(&mut self, now: Nanos, endpoint: &Endpoint, payload: &[u8]) {
        self.consumer.receive(now, endpoint, payload, &mut self.cache);
        self.settle(now);
    }

    /// [`Consumer::receive_ack`].
    pub fn receive_ack(
        &mut self,
        now: Nanos,
        endpoint: &Endpoint,
        message: &Result<ReceivedAck<'_>, DecodeError>,
    ) {
        self.consumer.receive_ack(now, endpoint, message, &mut self.cache);
        self.settle(now);
    }

    /// A plane has let go of a read's blocks.
    pub fn read_ended(&mut self, now: Nanos, id: TransferId, end: ReadEnd) {
        self.consumer.read_ended(now, id, end, &mut self.cache);
        self.settle(now);
    }

    /// The next thing to do for whoever owns sockets and planes.
    pub fn poll_action(&mut self) -> Option<ConsumerAction> {
        self.consumer.poll_action()
    }

    /// Whether there are actions to do or events to log.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.consumer.has_actions() || self.admission.has_events()
    }

    /// Changes whenever the allowlist does: whoever owns the connections then closes those that are
    /// not allowed any more.
    #[must_use]
    pub fn allowlist_version(&self) -> u64 {
        self.allowlist_version
    }

    /// Whether the allowlist names this endpoint.
    #[must_use]
    pub fn is_allowed(&self, endpoint: &Endpoint) -> bool {
        self.admission.is_allowed(endpoint)
    }
}

/// Time.
impl Instance {
    /// Ends what has run out of time; the streams to close because their lease has ended.
    pub fn handle_timeout(&mut self, now: Nanos) -> Vec<StreamId> {
        self.consumer.handle_timeout(now, &mut self.cache);
        let streams = self.producer.handle_timeout(now, &mut self.cache);
        self.dispatches_timeout(now);
        self.settle(now);
        streams
    }

    /// When [`Instance::handle_timeout`] has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        let machines = self.consumer.poll_timeout().min(self.producer.poll_timeout());
        machines.min(self.admission.poll_timeout()).min(self.dispatches.poll_timeout())
    }
}

/// The engine: saves.
impl Instance {
    /// Takes room for an encoder output that is about to be saved.
    pub fn reserve(
        &mut self,
        hash: &MmHash,
        meta: EntryMeta,
        blocks: u32,
    ) -> Result<EntryKey, ReserveError> {
        self.cache.reserve(hash, meta, blocks)
    }

    /// All bytes of a save have landed.
    pub fn mark_ready(
        &mut self,
        now: Nanos,
        key: EntryKey,
        digest: Option<Digest>,
    ) -> Result<(), StateError> {
        self.cache.mark_ready(key, digest)?;
        self.save_ended(now, self.hash_of(key));
        Ok(())
    }

    /// A save is given up; nothing writes into its blocks.
    pub fn discard(&mut self, now: Nanos, key: EntryKey) -> Result<(), StateError> {
        let hash = self.hash_of(key);
        self.cache.discard(key)?;
        self.save_ended(now, hash);
        Ok(())
    }

    fn hash_of(&self, key: EntryKey) -> Option<MmHash> {
        self.cache.entry(key).map(|entry| entry.hash().clone())
    }

    fn save_ended(&mut self, now: Nanos, hash: Option<MmHash>) {
        if let Some(hash) = hash {
            self.admission.entry_changed(now, &hash, &mut self.cache, &mut self.consumer);
        }
    }

    /// Forgets an entry. False if there is none that is ready and not pinned.
    #[must_use]
    pub fn evict(&mut self, hash: &str) -> bool {
        let found = self.cache.find(hash).map(|(key, _)| key);
        found.is_some_and(|key| self.cache.evict(key).is_ok())
    }

    /// Keeps a ready entry while it is being loaded.
    pub fn pin(&mut self, key: EntryKey) -> Result<(), StateError> {
        self.cache.pin(key)
    }

    /// A load is complete.
    pub fn unpin(&mut self, now: Nanos, key: EntryKey) -> Result<(), StateError> {
        self.cache.unpin(key)?;
        self.settle(now);
        Ok(())
    }
}

/// The engine: requests. See [`Admission`] for what each call means.
impl Instance {
    /// [`Admission::track`].
    pub fn track(&mut self, now: Nanos, id: &str, items: Vec<Item>) -> Result<(), Untracked> {
        self.admission.track(now, id, items, &mut self.cache, &mut self.consumer)
    }

    /// [`Admission::ensure`].
    pub fn ensure(
        &mut self,
        now: Nanos,
        id: &str,
        items: usize,
        computed: u32,
    ) -> Option<Decision> {
        self.admission.ensure(now, id, items, computed, &mut self.cache, &mut self.consumer)
    }

    /// [`Admission::promised`].
    #[must_use]
    pub fn promised(&self, hash: &str) -> Option<EntryKey> {
        self.admission.promised(hash)
    }

    /// [`Admission::release`].
    pub fn release(&mut self, now: Nanos, id: &str, hash: &str) {
        self.admission.release(now, id, hash, &mut self.cache, &mut self.consumer);
    }

    /// [`Admission::finish`].
    pub fn finish(&mut self, now: Nanos, id: &str) {
        self.admission.finish(now, id, &mut self.cache, &mut self.consumer);
    }

    /// [`Admission::set_allowlist`].
    pub fn set_allowlist(&mut self, now: Nanos, allowed: Allowlist) {
        self.admission.set_allowlist(now, allowed, &mut self.cache, &mut self.consumer);
        self.consumer.leave(|endpoint| !self.admission.is_allowed(endpoint));
        self.settle(now);
        self.allowlist_version += 1;
    }

    /// [`Admission::take_unavailable_requests`].
    pub fn take_unavailable_requests(&mut self) -> Vec<Arc<str>> {
        self.admission.take_unavailable_requests()
    }

    /// [`Admission::report`].
    pub fn report(&self, now: Nanos, id: &str) -> impl Iterator<Item = ItemReport<'_>> {
        self.admission.report(now, id)
    }

    /// [`Admission::poll_event`].
    pub fn poll_event(&mut self) -> Option<Event> {
        self.admission.poll_event()
    }
}

/// What can be looked at.
impl Instance {
    /// Who has the blocks.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.cache.usage()
    }

    /// Entries and blocks.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The serving side.
    #[must_use]
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// The reading side.
    #[must_use]
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// What decides.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }
}
