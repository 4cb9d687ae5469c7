//! The consumer: one attempt at a time, it asks a producer for an entry, takes the ack, has the bytes
//! read and publishes them.
//!
//! It must never publish bytes that it cannot vouch for: a read counts only if its digest proves it
//! or if it ended inside the lease as counted from the request (S2, S3). It must never free blocks
//! that a plane may still write into: they wait in quarantine until the plane has let go (S4). Which
//! transfers to start, how often and for whom is admission's to decide; this machine retries nothing.

mod ack_check;
mod failure;
mod link;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use self::failure::{Failure, FailureClass, FailureReason};

use self::ack_check::AgreedRead;
use self::link::{Answer, Link};
use crate::cache::{Cache, EntryKey, PublishError, ReserveError};
use crate::digest::Digest;
use crate::dtype::Dtype;
use crate::endpoint::Endpoint;
use crate::entry::EntryMeta;
use crate::extent::Extent;
use crate::limits;
use crate::mm_hash::MmHash;
use crate::plane::{Plane, PlaneList};
use crate::producer::GrantToken;
use crate::time::Nanos;
use crate::wire::{
    AckLimits, CONNECTOR_VERSION, DecodeError, ReqExtension, WIRE_REVISION, XferAck, XferReq,
};

/// One transfer: one attempt to read one entry from one source. Never used again in one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub u64);

/// What a consumer is told once.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// The compatibility hash that its requests carry.
    pub compat_hash: String,
    /// What the compatibility hash leaves out, for Chiasm peers.
    pub fingerprint: Option<String>,
    /// Random number of this node's life.
    pub epoch: u64,
    /// Random text of this node's life that its session ids begin with. Each connection has a session
    /// of its own: a producer that has not yet noticed the loss of the old one would refuse to see
    /// its session on a second live connection.
    pub session: String,
    /// Bytes of one block.
    pub block_size_bytes: u64,
    /// Planes in the operator's order of preference.
    pub planes: PlaneList,
    /// One attempt's wait for its ack (`consumer_ack_timeout_s`).
    pub ack_timeout: Duration,
    /// One read's time (`read_timeout_s`).
    pub read_timeout: Duration,
    /// Part of the lease that is left unused.
    pub lease_margin: Duration,
}

/// What is to be read, from an announcement that has been checked and a source that is approved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wanted {
    /// Its identifier.
    pub hash: MmHash,
    /// The endpoint that the announcement names, which is on the allowlist.
    pub source: Endpoint,
    /// Announced rows.
    pub rows: u32,
    /// Announced elements per row.
    pub width: u32,
    /// Announced size in blocks.
    pub blocks: u32,
    /// The model's element type, where known.
    pub dtype: Option<Dtype>,
}

/// What the owner of sockets and planes is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsumerAction {
    /// Connect to the endpoint, then report [`Consumer::link_up`] or [`Consumer::link_down`].
    OpenLink(Endpoint),
    /// Close the connection, for this reason, then report [`Consumer::link_down`].
    CloseLink(Endpoint, FailureReason),
    /// Send one message on the endpoint's connection.
    Send(Endpoint, Vec<u8>),
    /// Read the bytes, then report [`Consumer::read_ended`], in every case exactly once.
    StartRead(ReadOrder),
    /// Stop that read as fast as its plane can; its end is still reported.
    AbortRead(TransferId),
}

/// One read for a plane to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOrder {
    /// The transfer that it is for.
    pub transfer: TransferId,
    /// The approved producer.
    pub source: Endpoint,
    /// The plane that the producer chose out of those offered.
    pub plane: Plane,
    /// Opens the stream, on tcp.
    pub token: Option<GrantToken>,
    /// Where the bytes go, in order.
    pub local: Vec<Extent>,
    /// Exact length.
    pub bytes: u64,
    /// Whether the digest of the landed bytes is wanted.
    pub digest: bool,
}

/// How a read ended. Once reported, the plane writes nothing more into the blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// All bytes have landed.
    Landed {
        /// How many.
        bytes: u64,
        /// Of the bytes as they landed, if it was wanted.
        digest: Option<Digest>,
    },
    /// The plane could not do it, or was told to stop.
    Failed(FailureReason),
}

/// A transfer's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which.
    pub transfer: TransferId,
    /// Its identifier.
    pub hash: MmHash,
    /// Its producer.
    pub source: Endpoint,
    /// A published entry, or why there is none.
    pub outcome: Result<Arrived, Failure>,
}

/// An entry that has arrived and is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The published entry: this transfer's, or the one that was published before.
    pub entry: EntryKey,
    /// Its exact length.
    pub bytes: u64,
    /// The plane that moved the bytes.
    pub plane: Plane,
    /// Set if the entry that was there already has another digest: two sources disagree.
    pub conflict: bool,
}

#[derive(Debug)]
enum State {
    /// The request waits for the link, or for its ack.
    Asking {
        deadline: Nanos,
    },
    Reading {
        entry: EntryKey,
        plane: Plane,
        agreed: AgreedRead,
        lease_end: Nanos,
        deadline: Nanos,
    },
    /// The outcome has been told; the plane has not let go of the blocks yet.
    Settling {
        entry: EntryKey,
    },
}

#[derive(Debug)]
struct Transfer {
    wanted: Wanted,
    state: State,
}

/// How often each end came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerCounters {
    /// Requests sent.
    pub requests: u64,
    /// Entries that arrived.
    pub arrived: u64,
    /// Bytes of them, by plane.
    pub bytes: BTreeMap<Plane, u64>,
    /// Transfers that failed, by reason.
    pub failed: BTreeMap<&'static str, u64>,
    /// Acks that answer nothing that is waited for.
    pub stray_acks: u64,
}

/// The consumer's side of the control protocol.
#[derive(Debug)]
pub struct Consumer {
    config: ConsumerConfig,
    next_transfer: u64,
    next_attempt: u32,
    next_session: u64,
    transfers: BTreeMap<TransferId, Transfer>,
    /// By the whole form: two requests may name one source with different shapes, and the wrong
    /// one's failure is not the other's.
    by_wanted: BTreeMap<Wanted, TransferId>,
    links: BTreeMap<Endpoint, Link>,
    deadlines: BTreeSet<(Nanos, TransferId)>,
    actions: VecDeque<ConsumerAction>,
    staged: VecDeque<TransferId>,
    finished: VecDeque<Finished>,
    counters: ConsumerCounters,
}

impl Consumer {
    /// A consumer without links.
    #[must_use]
    pub fn new(config: ConsumerConfig) -> Self {
        Self {
            config,
            next_transfer: 0,
            next_attempt: 0,
            next_session: 0,
            transfers: BTreeMap::new(),
            by_wanted: BTreeMap::new(),
            links: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            actions: VecDeque::new(),
            staged: VecDeque::new(),
            finished: VecDeque::new(),
            counters: ConsumerCounters::default(),
        }
    }

    /// Starts one attempt, or gives the one that is under way for exactly the same.
    pub fn start(&mut self, now: Nanos, wanted: Wanted) -> TransferId {
        if let Some(running) = self.by_wanted.get(&wanted) {
            return *running;
        }
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let source = wanted.source.clone();
        let deadline = now.after(self.config.ack_timeout);
        self.by_wanted.insert(wanted.clone(), id);
        self.deadlines.insert((deadline, id));
        self.transfers.insert(id, Transfer { wanted, state: State::Asking { deadline } });
        if !self.links.contains_key(&source) && self.links.len() >= limits::MAX_LINKS {
            self.fail(id, FailureReason::TooManyLinks);
            return id;
        }
        let link = self.links.entry(source.clone()).or_default();
        if link.is_up() {
            self.request(now, id);
        } else if link.wait(id) {
            self.actions.push_back(ConsumerAction::OpenLink(source));
        }
        id
    }

    /// Nobody wants this transfer any more. A read under way is aborted; no end is reported.
    pub fn cancel(&mut self, id: TransferId, cache: &mut Cache) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        match transfer.state {
            State::Asking { .. } => self.forget(id),
            State::Reading { .. } => self.abort(id, cache),
            State::Settling { .. } => {}
        }
    }

    /// The connection to `endpoint` stands: what waited for it is asked now.
    pub fn link_up(&mut self, now: Nanos, endpoint: &Endpoint) {
        let Some(link) = self.links.get_mut(endpoint) else { return };
        self.next_session += 1;
        for id in link.up(format!("{}.{}", self.config.session, self.next_session)) {
            self.request(now, id);
        }
    }

    /// The connection could not be made or is lost. What waited for it or for an ack fails; reads go
    /// on, since their plane has its own way to the producer (S8).
    pub fn link_down(&mut self, endpoint: &Endpoint, reason: &FailureReason) {
        let Some(link) = self.links.remove(endpoint) else { return };
        for id in link.into_transfers() {
            self.fail(id, reason.clone());
        }
    }

    /// One message from the producer at `endpoint`.
    pub fn receive(&mut self, now: Nanos, endpoint: &Endpoint, payload: &[u8], cache: &mut Cache) {
        let limits = AckLimits { max_blocks: cache.usage().total as usize };
        let ack = match XferAck::decode(payload, &limits) {
            Ok(ack) => ack,
            Err(DecodeError::UnknownStatus { mm_hash, status, attempt }) => {
                let hash = mm_hash.as_ref().map_or("", MmHash::as_str);
                if let Some(answer) = self.answered(endpoint, hash, attempt) {
                    self.fail(answer.transfer, FailureReason::UnknownStatus(status));
                }
                return;
            }
            Err(error) => {
                let reason = FailureReason::Garbage(error.to_string());
                self.actions.push_back(ConsumerAction::CloseLink(endpoint.clone(), reason));
                return;
            }
        };
        let attempt = ack.chiasm.as_ref().map(|extension| extension.attempt);
        if let Some(answer) = self.answered(endpoint, ack.mm_hash, attempt) {
            self.take_ack(now, &answer, &ack, cache);
        }
    }

    /// The request that a message answers, if its transfer still waits for it.
    fn answered(&mut self, from: &Endpoint, hash: &str, attempt: Option<u32>) -> Option<Answer> {
        let answer = self.links.get_mut(from).and_then(|link| link.answer(hash, attempt));
        let live = answer.filter(|answer| {
            let transfer = self.transfers.get(&answer.transfer);
            transfer.is_some_and(|transfer| matches!(transfer.state, State::Asking { .. }))
        });
        self.counters.stray_acks += u64::from(live.is_none());
        live
    }

    fn take_ack(&mut self, now: Nanos, answer: &Answer, ack: &XferAck<'_>, cache: &mut Cache) {
        let id = answer.transfer;
        let wanted = &self.transfers[&id].wanted;
        let session = self.links.get(&wanted.source).map_or("", Link::session);
        let agreed = match ack_check::check(wanted, ack, session, &self.config) {
            Ok(agreed) => agreed,
            Err(reason) => return self.fail(id, reason),
        };
        let lease_end = answer.sent.after(agreed.lease.saturating_sub(self.config.lease_margin));
        if now >= lease_end {
            return self.fail(id, FailureReason::LeaseRanOut);
        }
        let entry = match cache.stage(&wanted.hash, agreed.meta, wanted.blocks) {
            Ok(entry) => entry,
            Err(ReserveError::TooLarge { .. }) => return self.fail(id, FailureReason::TooLarge),
            Err(_) => return self.fail(id, FailureReason::NoRoom),
        };
        self.read(now, id, entry, agreed, lease_end, cache);
    }

    fn read(
        &mut self,
        now: Nanos,
        id: TransferId,
        entry: EntryKey,
        agreed: AgreedRead,
        lease_end: Nanos,
        cache: &Cache,
    ) {
        let deadline = now.after(self.config.read_timeout);
        let local = cache.entry(entry).map(|entry| entry.extents().to_vec()).unwrap_or_default();
        let transfer = self.transfers.get_mut(&id).expect("a live answer names a live transfer");
        if let State::Asking { deadline } = transfer.state {
            self.deadlines.remove(&(deadline, id));
        }
        self.deadlines.insert((deadline, id));
        self.actions.push_back(ConsumerAction::StartRead(ReadOrder {
            transfer: id,
            source: transfer.wanted.source.clone(),
            plane: agreed.plane,
            token: agreed.token,
            local,
            bytes: agreed.meta.bytes,
            digest: agreed.digest.is_some(),
        }));
        transfer.state = State::Reading { entry, plane: agreed.plane, agreed, lease_end, deadline };
        self.staged.push_back(id);
    }

    /// The plane has let go of the transfer's blocks.
    pub fn read_ended(&mut self, now: Nanos, id: TransferId, end: ReadEnd, cache: &mut Cache) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        match &transfer.state {
            State::Asking { .. } => {}
            State::Settling { entry } => {
                let released = cache.release_quarantined(*entry);
                debug_assert!(released.is_ok(), "a settling transfer's blocks are in quarantine");
                self.transfers.remove(&id);
            }
            State::Reading { entry, plane, agreed, lease_end, .. } => {
                let (entry, plane) = (*entry, *plane);
                let (bytes, digest) = (agreed.meta.bytes, agreed.digest);
                match verify(now, end, bytes, digest, *lease_end) {
                    Ok(()) => self.publish(id, entry, plane, bytes, digest, cache),
                    Err(reason) => {
                        discard(cache, entry);
                        self.fail(id, reason);
                    }
                }
            }
        }
    }

    fn publish(
        &mut self,
        id: TransferId,
        entry: EntryKey,
        plane: Plane,
        bytes: u64,
        digest: Option<Digest>,
        cache: &mut Cache,
    ) {
        let (entry, conflict) = match cache.publish(entry, digest) {
            Ok(()) => (entry, false),
            Err(PublishError::AlreadyPublished(there)) => {
                discard(cache, entry);
                let known = cache.entry(there).and_then(crate::cache::Entry::digest);
                (there, known.is_some() && digest.is_some() && known != digest)
            }
            Err(PublishError::SavePending(_)) => {
                discard(cache, entry);
                return self.fail(id, FailureReason::SavePending);
            }
            Err(PublishError::State(error)) => unreachable!("a staging entry publishes: {error}"),
        };
        self.counters.arrived += 1;
        *self.counters.bytes.entry(plane).or_default() += bytes;
        self.finish(id, Ok(Arrived { entry, bytes, plane, conflict }));
    }

    /// Ends what has run out of time.
    pub fn handle_timeout(&mut self, now: Nanos, cache: &mut Cache) {
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && now > deadline
        {
            self.deadlines.pop_first();
            match self.transfers.get(&id).map(|transfer| &transfer.state) {
                Some(State::Asking { .. }) => self.fail(id, FailureReason::AckTimeout),
                Some(State::Reading { .. }) => self.time_out_read(id, cache),
                _ => {}
            }
        }
    }

    fn time_out_read(&mut self, id: TransferId, cache: &mut Cache) {
        let transfer = &self.transfers[&id];
        let (hash, source) = (transfer.wanted.hash.clone(), transfer.wanted.source.clone());
        let reason = FailureReason::ReadTimeout;
        *self.counters.failed.entry(reason.word()).or_default() += 1;
        self.abort(id, cache);
        self.finished.push_back(Finished {
            transfer: id,
            hash,
            source,
            outcome: Err(reason.into()),
        });
    }

    /// When [`Consumer::handle_timeout`] has something to do: just past the earliest deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.deadlines.first().map_or(Nanos::NEVER, |(at, _)| at.after(Duration::from_nanos(1)))
    }

    /// The next thing to do. Drain it after every input.
    pub fn poll_action(&mut self) -> Option<ConsumerAction> {
        self.actions.pop_front()
    }

    /// The next transfer that has taken its blocks: the cache counts them from now on. Drain it
    /// before [`Consumer::poll_finished`].
    pub fn poll_staged(&mut self) -> Option<TransferId> {
        self.staged.pop_front()
    }

    /// The next transfer that has ended.
    pub fn poll_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Transfers that have not ended, those in quarantine included.
    #[must_use]
    pub fn live_transfers(&self) -> usize {
        self.transfers.len()
    }

    /// What came of all transfers so far.
    #[must_use]
    pub fn counters(&self) -> &ConsumerCounters {
        &self.counters
    }

    fn request(&mut self, now: Nanos, id: TransferId) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        let wanted = &transfer.wanted;
        let Some(link) = self.links.get_mut(&wanted.source) else { return };
        self.next_attempt = self.next_attempt.wrapping_add(1).max(1);
        if !link.ask(now, id, &wanted.hash, self.next_attempt) {
            let close = ConsumerAction::CloseLink(wanted.source.clone(), FailureReason::Silent);
            self.actions.push_back(close);
            return self.fail(id, FailureReason::Silent);
        }
        let request = XferReq {
            mm_hash: wanted.hash.as_str(),
            compatibility_hash: &self.config.compat_hash,
            session_id: link.session(),
            connector_version: i128::from(CONNECTOR_VERSION),
            chiasm: Some(ReqExtension {
                rev: WIRE_REVISION,
                epoch: self.config.epoch,
                planes: self.config.planes,
                attempt: self.next_attempt,
                fingerprint: self.config.fingerprint.as_deref(),
            }),
        };
        self.counters.requests += 1;
        self.actions.push_back(ConsumerAction::Send(wanted.source.clone(), request.encode()));
    }

    /// Takes the outcome away from the transfer and leaves its blocks in quarantine until the plane
    /// has let go.
    fn abort(&mut self, id: TransferId, cache: &mut Cache) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        let State::Reading { entry, deadline, .. } = transfer.state else { return };
        transfer.state = State::Settling { entry };
        self.by_wanted.remove(&transfer.wanted);
        self.deadlines.remove(&(deadline, id));
        let quarantined = cache.quarantine(entry);
        debug_assert!(quarantined.is_ok(), "blocks of a read under way are not ready");
        self.actions.push_back(ConsumerAction::AbortRead(id));
    }

    fn fail(&mut self, id: TransferId, reason: FailureReason) {
        if !self.transfers.contains_key(&id) {
            // Given up before; only its request was still unanswered.
            return;
        }
        *self.counters.failed.entry(reason.word()).or_default() += 1;
        self.finish(id, Err(reason.into()));
    }

    fn finish(&mut self, id: TransferId, outcome: Result<Arrived, Failure>) {
        let Some(transfer) = self.transfers.get(&id) else { return };
        let (hash, source) = (transfer.wanted.hash.clone(), transfer.wanted.source.clone());
        self.forget(id);
        self.finished.push_back(Finished { transfer: id, hash, source, outcome });
    }

    fn forget(&mut self, id: TransferId) {
        let Some(Transfer { wanted, state }) = self.transfers.remove(&id) else { return };
        if let State::Asking { deadline } | State::Reading { deadline, .. } = state {
            self.deadlines.remove(&(deadline, id));
        }
        self.by_wanted.remove(&wanted);
    }
}

/// Whether the landed bytes may be published (S2, S3).
fn verify(
    now: Nanos,
    end: ReadEnd,
    bytes: u64,
    expected: Option<Digest>,
    lease_end: Nanos,
) -> Result<(), FailureReason> {
    match end {
        ReadEnd::Failed(reason) => Err(reason),
        ReadEnd::Landed { bytes: landed, .. } if landed != bytes => {
            Err(FailureReason::Length { landed, expected: bytes })
        }
        ReadEnd::Landed { digest, .. } => match expected {
            Some(expected) if digest == Some(expected) => Ok(()),
            Some(_) => Err(FailureReason::Digest),
            None if now < lease_end => Ok(()),
            None => Err(FailureReason::LeaseRanOut),
        },
    }
}

fn discard(cache: &mut Cache, entry: EntryKey) {
    let discarded = cache.discard(entry);
    debug_assert!(discarded.is_ok(), "a staging entry that nothing writes into can be discarded");
}

/// The form of an entry as agreed, for those who show it.
#[must_use]
pub fn meta_of(cache: &Cache, entry: EntryKey) -> Option<EntryMeta> {
    cache.entry(entry).map(|entry| *entry.meta())
}
