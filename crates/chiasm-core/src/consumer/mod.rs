//! The consumer: one attempt at a time, it asks a producer for an entry, takes the ack, has the bytes
//! read and publishes them.
//!
//! It must never publish bytes that it cannot vouch for: a read counts only if its digest proves it
//! or if it ended inside the lease as counted from the request (S2, S3). It must never free blocks
//! that a plane may still write into: they wait in quarantine until the plane has let go (S4). Which
//! transfers to start, how often and for whom is admission's to decide; this machine retries nothing.

mod ack_check;
mod action;
mod agent;
mod away;
mod config;
mod failure;
mod link;
mod outcome;
mod received;
mod release;
mod suspects;
mod take_ack;
mod transfer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use self::action::{ConsumerAction, ReadEnd, ReadOrder, RemoteAgent, RemoteRegion};
pub use self::config::ConsumerConfig;
pub use self::failure::{Failure, FailureClass, FailureReason};
pub use self::outcome::{Arrived, ConsumerCounters, Finished};
pub use self::received::ReceivedAck;
pub use self::suspects::SuspectAgents;
pub use self::transfer::{TransferId, Wanted};

use self::ack_check::AgreedRead;
use self::agent::Agents;
use self::away::Away;
use self::link::{Answer, Link};
use self::transfer::{Reading, State, Transfer};
use crate::cache::{Cache, Entry, EntryKey, PublishError};
use crate::digest::Digest;
use crate::endpoint::Endpoint;
use crate::entry::EntryMeta;
use crate::limits;
use crate::mm_hash::MmHash;
use crate::plane::Plane;
use crate::time::Nanos;
use crate::wire::{
    AckLimits, CONNECTOR_VERSION, DecodeError, ReqExtension, WIRE_REVISION, XferReq,
};

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
    away: Away,
    agents: Agents,
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
            away: Away::default(),
            agents: Agents::default(),
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
        if self.links.entry(source.clone()).or_default().wait(id) {
            self.actions.push_back(ConsumerAction::OpenLink(source));
        } else {
            self.ask_waiting(now, &source);
        }
        id
    }

    /// Nobody wants this transfer any more. A read under way is aborted; no end is reported.
    pub fn cancel(&mut self, id: TransferId, cache: &mut Cache) {
        match self.transfers.get(&id).map(|transfer| transfer.state) {
            Some(State::Asking { .. }) => self.forget(id),
            Some(State::Reading(reading)) => self.abort(id, &reading, cache),
            Some(State::Settling { .. }) | None => {}
        }
    }

    /// The connection to `endpoint` stands: what waited for it is asked now.
    pub fn link_up(&mut self, now: Nanos, endpoint: &Endpoint) {
        let Some(link) = self.links.get_mut(endpoint) else { return };
        self.next_session += 1;
        link.up(now, self.next_session, format!("{}.{}", self.config.session, self.next_session));
        self.ask_waiting(now, endpoint);
    }

    /// The connection could not be made or is lost. What waited for it or for an ack fails; reads go
    /// on, since their plane has its own way to the producer (S8).
    pub fn link_down(&mut self, endpoint: &Endpoint, reason: &FailureReason) {
        let Some(link) = self.links.remove(endpoint) else { return };
        for id in link.into_transfers() {
            self.fail(id, reason.clone());
        }
    }

    /// The links to these producers are given up, those included that nobody has opened yet: whoever
    /// owns the connections closes them, and a later transfer asks for a new one.
    pub fn leave(&mut self, gone: impl Fn(&Endpoint) -> bool) {
        let gone: Vec<Endpoint> = self.links.keys().filter(|it| gone(it)).cloned().collect();
        for endpoint in gone {
            let reason = FailureReason::Unreachable("not on the allowlist".into());
            self.link_down(&endpoint, &reason);
        }
    }

    /// This plane turns out not to be there: it is not offered any more.
    pub fn without_plane(&mut self, plane: Plane) {
        self.config.planes = self.config.planes.without(plane);
    }

    /// One message from the producer at `endpoint`. It is decoded here: whoever shares this machine with
    /// others decodes it before, and calls [`Consumer::receive_ack`].
    pub fn receive(&mut self, now: Nanos, endpoint: &Endpoint, payload: &[u8], cache: &mut Cache) {
        let limits = AckLimits { max_blocks: cache.usage().total as usize };
        self.receive_ack(now, endpoint, &ReceivedAck::decode(payload, &limits), cache);
    }

    /// One message from the producer at `endpoint`, or why it is none. Its limit should be the blocks of
    /// the cache: no entry has more.
    pub fn receive_ack(
        &mut self,
        now: Nanos,
        endpoint: &Endpoint,
        message: &Result<ReceivedAck<'_>, DecodeError>,
        cache: &mut Cache,
    ) {
        if !self.links.get(endpoint).is_some_and(Link::is_up) {
            self.counters.stray_acks += 1;
            return;
        }
        if let Some(link) = self.links.get_mut(endpoint) {
            link.hear(now);
        }
        match message {
            Ok(received) => {
                let ack = &received.ack;
                let attempt = ack.chiasm.as_ref().map(|extension| extension.attempt);
                if let Some(extension) = &ack.chiasm {
                    self.away.seen(endpoint, extension.epoch);
                }
                let answer = self.answered(endpoint, ack.mm_hash, attempt, ack.session_id);
                if let Some(answer) = &answer {
                    self.counters.ack_latency.observe(now.since(answer.sent));
                }
                match answer {
                    Some(answer) if answer.given_up => self.decline(endpoint, &answer, ack),
                    Some(answer) => self.take_ack(now, endpoint, &answer, received, cache),
                    None => {}
                }
            }
            Err(DecodeError::UnknownStatus { mm_hash, status, attempt }) => {
                let hash = mm_hash.as_ref().map_or("", MmHash::as_str);
                if let Some(answer) = self.answered(endpoint, hash, *attempt, "")
                    && !answer.given_up
                {
                    self.fail(answer.transfer, FailureReason::UnknownStatus(*status));
                }
            }
            Err(error) => self.close(endpoint, FailureReason::Garbage(error.to_string())),
        }
        self.ask_waiting(now, endpoint);
    }

    /// The request that a message answers. Attempts are numbered
    /// from 1: 0 is a peer that does not say which it answers.
    fn answered(
        &mut self,
        from: &Endpoint,
        hash: &str,
        attempt: Option<u32>,
        session: &str,
    ) -> Option<Answer> {
        let attempt = attempt.filter(|number| *number != 0);
        let link = self.links.get_mut(from)?;
        link.has_answered(attempt.is_some());
        let answer = link.answer(hash, attempt, session);
        self.counters.stray_acks += u64::from(answer.is_none_or(|answer| answer.given_up));
        answer
    }

    /// The plane has let go of the transfer's blocks.
    pub fn read_ended(&mut self, now: Nanos, id: TransferId, end: ReadEnd, cache: &mut Cache) {
        let Some(Transfer { wanted, state }) = self.transfers.get(&id) else { return };
        let (wanted, state) = (wanted.clone(), *state);
        let all_landed = matches!(end, ReadEnd::Landed { .. });
        // It may have come to harm on its way here: it is described again, and judged anew.
        if let ReadEnd::Failed(reason) = &end
            && reason.blames_agent()
        {
            self.agents.forget(&wanted.source);
        }
        let held = match state {
            State::Asking { .. } => return,
            State::Settling { entry, held } => {
                let released = cache.release_quarantined(entry);
                debug_assert!(released.is_ok(), "a settling transfer's blocks are in quarantine");
                self.transfers.remove(&id);
                held
            }
            State::Reading(reading) => {
                if let ReadEnd::Failed(FailureReason::PlaneAway { plane, why }) = &end {
                    self.away.note(&wanted.source, reading.agreed.epoch, *plane, why);
                }
                // A read over nixl that fails may fail again in the same way, and slowly.
                if reading.agreed.plane == Plane::Nixl && !all_landed {
                    self.away.next_time(&wanted, Plane::Nixl);
                }
                match verify(now, end, &reading) {
                    Ok(()) => self.publish(now, id, &reading, cache),
                    Err(reason) => {
                        discard(cache, reading.entry);
                        if reason.class() == FailureClass::ReadWrong {
                            self.away.next_time(&wanted, reading.agreed.plane);
                        }
                        self.fail(id, reason);
                    }
                }
                reading.held
            }
        };
        // On tcp the producer has seen its last byte go.
        if let Some(held) = held.filter(|held| held.plane != Some(Plane::Tcp) || !all_landed) {
            self.release(&wanted.source, &wanted.hash, held);
        }
    }

    fn publish(&mut self, now: Nanos, id: TransferId, reading: &Reading, cache: &mut Cache) {
        let AgreedRead { meta, digest, plane, .. } = reading.agreed;
        let (entry, conflict) = match cache.publish(reading.entry, digest) {
            Ok(()) => (reading.entry, false),
            Err(PublishError::AlreadyPublished(there)) => {
                discard(cache, reading.entry);
                match compare(cache.entry(there), meta, digest) {
                    Ok(conflict) => (there, conflict),
                    Err(reason) => return self.fail(id, reason),
                }
            }
            Err(PublishError::SavePending(_)) => {
                discard(cache, reading.entry);
                return self.fail(id, FailureReason::SavePending);
            }
            Err(PublishError::State(error)) => unreachable!("a staging entry publishes: {error}"),
        };
        let bytes = meta.bytes;
        self.counters.arrived += 1;
        *self.counters.bytes.entry(plane).or_default() += bytes;
        let took = now.since(reading.since);
        self.counters.read_latency.entry(plane).or_default().observe(took);
        self.report(id, Ok(Arrived { entry, bytes, plane, conflict }));
        self.forget(id);
    }

    /// Ends what has run out of time.
    pub fn handle_timeout(&mut self, now: Nanos, cache: &mut Cache) {
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && now > deadline
        {
            self.deadlines.pop_first();
            match self.transfers.get(&id).map(|transfer| transfer.state) {
                Some(State::Asking { .. }) => {
                    let mute = self.mute_link(id);
                    self.fail(id, FailureReason::AckTimeout);
                    if let Some(source) = mute {
                        self.close(&source, FailureReason::Mute);
                    }
                }
                Some(State::Reading(reading)) => {
                    let wanted = self.transfers.get(&id).map(|transfer| &transfer.wanted);
                    if let Some(wanted) = wanted.filter(|_| reading.agreed.plane == Plane::Nixl) {
                        self.away.next_time(wanted, Plane::Nixl);
                    }
                    self.abort(id, &reading, cache);
                    self.report_failure(id, FailureReason::ReadTimeout);
                }
                Some(State::Settling { .. }) | None => {}
            }
        }
    }

    /// The link of a transfer that waits for its ack, if it has brought nothing at all meanwhile: it
    /// may be stuck in a way that no heartbeat sees, and another connection may not be.
    fn mute_link(&self, id: TransferId) -> Option<Endpoint> {
        let source = &self.transfers.get(&id)?.wanted.source;
        self.links.get(source)?.is_mute_for(id).then(|| source.clone())
    }

    /// When [`Consumer::handle_timeout`] has something to do: just past the earliest deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.deadlines.first().map_or(Nanos::NEVER, |(at, _)| at.after(Duration::from_nanos(1)))
    }

    /// Whether [`Consumer::poll_action`] has something.
    #[must_use]
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
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

    /// Sends what waits for the link, as far as it may now.
    fn ask_waiting(&mut self, now: Nanos, endpoint: &Endpoint) {
        while let Some(id) = self.links.get_mut(endpoint).and_then(Link::next_to_ask) {
            self.ask(now, id);
        }
        if self.links.get(endpoint).is_some_and(Link::is_silent) {
            self.close(endpoint, FailureReason::Silent);
        }
    }

    fn close(&mut self, endpoint: &Endpoint, reason: FailureReason) {
        if self.links.get_mut(endpoint).is_some_and(Link::close) {
            self.actions.push_back(ConsumerAction::CloseLink(endpoint.clone(), reason));
        }
    }

    fn ask(&mut self, now: Nanos, id: TransferId) {
        let Some(Transfer { wanted, .. }) = self.transfers.get(&id) else { return };
        let planes = self.away.left(wanted, self.config.planes);
        if planes.is_empty() {
            let reasons = self.away.reasons(&wanted.source);
            let why = format!("none of this node's reaches the producer{reasons}");
            return self.fail(id, FailureReason::NoPlane(why));
        }
        let Some(link) = self.links.get_mut(&wanted.source) else { return };
        self.next_attempt = self.next_attempt.wrapping_add(1).max(1);
        let attempt = self.next_attempt;
        let (generation, repeated) = link.next_generation(&wanted.hash);
        let (transfer, sent, offered, given_up) = (id, now, planes, false);
        let answer = Answer { transfer, sent, attempt, generation, repeated, offered, given_up };
        link.asked(&wanted.hash, answer);
        let nixl = planes.contains(Plane::Nixl);
        let agent = if nixl { self.agents.known(&wanted.source) } else { 0 };
        let session = link.session(generation);
        let request = XferReq {
            mm_hash: wanted.hash.as_str(),
            compatibility_hash: &self.config.compat_hash,
            session_id: &session,
            connector_version: i128::from(CONNECTOR_VERSION),
            chiasm: Some(ReqExtension {
                rev: WIRE_REVISION,
                epoch: self.config.epoch,
                planes,
                attempt,
                fingerprint: self.config.fingerprint.as_deref(),
                host: self.config.host.filter(|_| planes.contains(Plane::Shm)),
                region: self.config.region.as_deref().filter(|_| planes.contains(Plane::Shm)),
                agent,
            }),
        };
        self.counters.requests += 1;
        self.actions.push_back(ConsumerAction::Send(wanted.source.clone(), request.encode()));
    }

    /// Takes the outcome away from the transfer and leaves its blocks in quarantine until the plane
    /// has let go.
    fn abort(&mut self, id: TransferId, reading: &Reading, cache: &mut Cache) {
        let Some(transfer) = self.transfers.get_mut(&id) else { return };
        transfer.state = State::Settling { entry: reading.entry, held: reading.held };
        self.by_wanted.remove(&transfer.wanted);
        self.deadlines.remove(&(reading.deadline, id));
        let quarantined = cache.quarantine(reading.entry);
        debug_assert!(quarantined.is_ok(), "blocks of a read under way are not ready");
        self.actions.push_back(ConsumerAction::AbortRead(id));
    }

    fn fail(&mut self, id: TransferId, reason: FailureReason) {
        self.report_failure(id, reason);
        self.forget(id);
    }

    fn report_failure(&mut self, id: TransferId, reason: FailureReason) {
        *self.counters.failed.entry(reason.word()).or_default() += 1;
        self.report(id, Err(reason.into()));
    }

    fn report(&mut self, id: TransferId, outcome: Result<Arrived, Failure>) {
        let Some(Transfer { wanted, .. }) = self.transfers.get(&id) else { return };
        let (hash, source) = (wanted.hash.clone(), wanted.source.clone());
        self.finished.push_back(Finished { transfer: id, hash, source, outcome });
    }

    /// Ends a transfer that no plane works for.
    fn forget(&mut self, id: TransferId) {
        let Some(Transfer { wanted, state }) = self.transfers.remove(&id) else { return };
        match state {
            State::Asking { deadline } => {
                self.deadlines.remove(&(deadline, id));
                if let Some(link) = self.links.get_mut(&wanted.source) {
                    link.give_up(id);
                }
            }
            State::Reading(reading) => {
                self.deadlines.remove(&(reading.deadline, id));
            }
            State::Settling { .. } => return,
        }
        self.by_wanted.remove(&wanted);
    }
}

/// Whether the landed bytes may be published (S2, S3, PROTOCOL 33).
fn verify(now: Nanos, end: ReadEnd, reading: &Reading) -> Result<(), FailureReason> {
    let expected = reading.agreed.meta.bytes;
    match end {
        ReadEnd::Failed(reason) => Err(reason),
        ReadEnd::Landed { bytes: landed, .. } if landed != expected => {
            Err(FailureReason::Length { landed, expected })
        }
        ReadEnd::Landed { digest, .. } => match reading.agreed.digest {
            Some(expected) if digest == Some(expected) => Ok(()),
            Some(_) => Err(FailureReason::Digest),
            None if now < reading.lease_end => Ok(()),
            None => Err(FailureReason::LeaseRanOut),
        },
    }
}

/// What has arrived, beside the entry of its hash that was there before. True if the contents are
/// known to differ; an error if the one that is there is not even of the form that was wanted.
fn compare(
    there: Option<&Entry>,
    meta: EntryMeta,
    digest: Option<Digest>,
) -> Result<bool, FailureReason> {
    let Some(there) = there else { return Ok(false) };
    let known = there.meta();
    if (known.rows, known.width, known.bytes) != (meta.rows, meta.width, meta.bytes) {
        return Err(FailureReason::AckMismatch(format!(
            "an entry of this hash is here already, of shape [{}, {}] and {} bytes",
            known.rows, known.width, known.bytes
        )));
    }
    Ok(digest.is_some() && there.digest().is_some_and(|known| Some(known) != digest))
}

fn discard(cache: &mut Cache, entry: EntryKey) {
    let discarded = cache.discard(entry);
    debug_assert!(discarded.is_ok(), "a staging entry that nothing writes into can be discarded");
}
