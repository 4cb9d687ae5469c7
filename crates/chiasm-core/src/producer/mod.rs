//! The producer: answers transfer requests with grants and NACKs, in upstream's order of checks.
//!
//! It must never grant bytes that could change: a grant pins its entry until it ends (S2), and it
//! ends by its own completion, by its lease, or when nobody can read under it any more (S8). Nobody but
//! the connection that it was given to can complete it (hazard D7). It must never let one peer take
//! everything: each peer has quotas (S7).

mod agent;
mod grants;
mod reply;

use std::time::Duration;

use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng as _;

pub use self::agent::NixlAgent;
pub use self::grants::{GrantToken, StreamId, StreamRead};
pub use self::reply::RefusalReason;

use self::grants::{Completed, Grant, Grants};
use crate::cache::{Cache, EntryState};
use crate::host_hint::HostHint;
use crate::limits;
use crate::mm_hash::MmHash;
use crate::plane::{Plane, PlaneList};
use crate::time::Nanos;
use crate::wire::{CONNECTOR_VERSION, DecodeError, Message, XferDone, XferReq};

/// A peer of the control socket: one live connection, numbered by whoever owns the sockets. Numbers
/// are never used again in one node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// What a producer is told once.
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// The compatibility hash that every request must carry.
    pub compat_hash: String,
    /// What the compatibility hash leaves out; compared only where the peer sends one as well.
    pub fingerprint: Option<String>,
    /// Random number of this node's life.
    pub epoch: u64,
    /// Bytes of one block.
    pub block_size_bytes: u64,
    /// How long a grant lives if its reader never comes (`pin_lease_s`).
    pub lease: Duration,
    /// How long a grant to an upstream consumer lives at least:
    /// [`UPSTREAM_LEASE`](limits::UPSTREAM_LEASE), which it counts on and is not told otherwise (S2).
    pub upstream_lease: Duration,
    /// Planes that this producer serves.
    pub planes: PlaneList,
    /// What consumers read through shm; `None` if that plane is not served.
    pub shm: Option<SharedRegion>,
    /// Bounds on what peers may hold.
    pub limits: ProducerLimits,
}

/// A region that consumers on this host can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRegion {
    /// Who can.
    pub host: HostHint,
    /// Name of the file in the directory that both have.
    pub name: String,
}

/// The region of a consumer on this host, as it says itself. Nothing of it has been checked; whoever owns
/// files sees by its lock whether its node lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderRegion {
    /// Name of the file in the directory that both have.
    pub name: String,
    /// Random id of that node's life.
    pub epoch: u64,
}

/// Bounds on what peers may hold. Where one of grants or blocks bites the answer is `NOT_READY`, which
/// every consumer takes as "ask again": grants end. Sessions last as long as their connection, so one
/// too many is `INTERNAL`.
#[derive(Clone, Copy, Debug)]
pub struct ProducerLimits {
    /// Live grants and streams of all peers together.
    pub max_grants: usize,
    /// Live grants and streams of one peer.
    pub max_grants_per_peer: usize,
    /// Sessions that one peer may use on one connection; upstream uses one.
    pub max_sessions_per_peer: usize,
    /// Blocks that the grants and streams of one peer may pin, one grant always excepted.
    pub max_blocks_per_peer: u32,
    /// Blocks that all grants and streams may pin, one grant always excepted: the rest stays free
    /// for saves, so that peers cannot stop the encoder's work (hazard D2).
    pub max_blocks: u32,
}

impl ProducerLimits {
    /// The defaults for a region of `blocks` blocks: three quarters for all peers, half for one.
    #[must_use]
    pub fn for_region(blocks: u32) -> Self {
        Self {
            max_grants: limits::MAX_GRANTS,
            max_grants_per_peer: limits::MAX_GRANTS_PER_PEER,
            max_sessions_per_peer: limits::MAX_SESSIONS_PER_PEER,
            max_blocks_per_peer: blocks / 2,
            max_blocks: blocks - blocks / 4,
        }
    }
}

/// How often each answer was given; the rest of the counters follow from these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerCounters {
    /// OK acks: grants given or renewed.
    pub granted: u64,
    /// NACKs by status, indexed by [`AckStatus`](crate::wire::AckStatus) as a number.
    pub nacks: [u64; 6],
    /// Requests that could not be decoded, dropped without an answer as upstream does.
    pub malformed: u64,
    /// Answers `NOT_READY` because a quota was reached.
    pub over_quota: u64,
    /// Grants that ended because their bytes had been sent.
    pub completed: u64,
    /// Grants that ended because their reader said that it was done.
    pub done: u64,
    /// What was said to be done and was not there to be ended: stale, repeated, or another peer's.
    pub stray_dones: u64,
    /// Grants that ended because their lease ran out.
    pub expired: u64,
    /// Grants that ended because their connection or stream was lost.
    pub lost: u64,
    /// Data streams that presented a token which opens nothing.
    pub bad_tokens: u64,
    /// OK acks with the descriptor list of the whole region, for upstream consumers.
    pub full_lists: u64,
    /// NIXL completions that could mean several grants.
    pub ambiguous_completions: u64,
    /// NIXL completions that mean no live grant.
    pub stray_completions: u64,
}

/// The producer's side of the control protocol.
#[derive(Debug)]
pub struct Producer {
    config: ProducerConfig,
    grants: Grants,
    counters: ProducerCounters,
    draining: bool,
    /// A peer whose first grant on shm was the last answer, if it names its region.
    new_reader: Option<(PeerId, ReaderRegion)>,
    /// What is read through, while it lives.
    agent: Option<NixlAgent>,
}

impl Producer {
    /// A producer without grants. `seed` makes its tokens; a node takes it from the system's
    /// randomness, a simulator from its own seed.
    #[must_use]
    pub fn new(config: ProducerConfig, seed: [u8; 32]) -> Self {
        let grants = Grants::new(config.limits, ChaCha12Rng::from_seed(seed));
        let counters = ProducerCounters::default();
        Self { config, grants, counters, draining: false, new_reader: None, agent: None }
    }

    /// Answers one message. `None`: it was no request but the end of a grant, which has no answer
    /// (PROTOCOL 50), or it could not be decoded, and as with upstream there is none (PROTOCOL 21).
    /// Costs four small allocations where it is granted, one where it is not, and
    /// nothing that grows with the region.
    pub fn handle_request(
        &mut self,
        now: Nanos,
        peer: PeerId,
        payload: &[u8],
        cache: &mut Cache,
    ) -> Option<Message> {
        let request = match XferReq::decode(payload) {
            Ok(request) => request,
            Err(error) => {
                self.take_other(peer, payload, &error, cache);
                return None;
            }
        };
        let ack = match self.grant(now, peer, &request, cache) {
            Ok(grant) => {
                self.counters.granted += 1;
                self.answer(&request, &grant, now)
            }
            Err(refusal) => {
                let slot = self.counters.nacks.get_mut(usize::from(refusal.status().code()));
                if let Some(count) = slot {
                    *count += 1;
                }
                self.counters.over_quota += u64::from(refusal == RefusalReason::Quota);
                reply::refused(&self.config, &request, refusal).into()
            }
        };
        Some(ack)
    }

    fn answer(&mut self, request: &XferReq<'_>, grant: &Grant, now: Nanos) -> Message {
        let agent = self.agent.as_ref().filter(|_| grant.plane == Plane::Nixl);
        match agent {
            // A Chiasm consumer is told its lease, also where it has renewed an upstream one's grant.
            Some(agent) if grant.upstream && request.chiasm.is_none() => {
                let has_list = self.grants.has_proven(&grant.session, agent.life);
                self.counters.full_lists += u64::from(!has_list);
                reply::granted_upstream(request, grant, agent, has_list)
            }
            _ => reply::granted(&self.config, request, grant, agent, now).into(),
        }
    }

    /// A message that is no request: the end of a grant, or nothing that is known.
    fn take_other(
        &mut self,
        peer: PeerId,
        payload: &[u8],
        no_request: &DecodeError,
        cache: &mut Cache,
    ) {
        let done = matches!(no_request, DecodeError::Tag { .. }).then(|| XferDone::decode(payload));
        match done {
            Some(Ok(done)) if self.grants.release(peer, &done, cache) => self.counters.done += 1,
            Some(Ok(_)) => self.counters.stray_dones += 1,
            Some(Err(_)) | None => self.counters.malformed += 1,
        }
    }

    /// Upstream's order of checks: version, compatibility hash, session id, cache. Ours (fingerprint,
    /// session in use) stand between the last two, where they change no answer of the first three
    /// (PROTOCOL 20).
    fn grant(
        &mut self,
        now: Nanos,
        peer: PeerId,
        request: &XferReq<'_>,
        cache: &mut Cache,
    ) -> Result<Grant, RefusalReason> {
        if request.connector_version != i128::from(CONNECTOR_VERSION) {
            return Err(RefusalReason::Version);
        }
        if request.compatibility_hash != self.config.compat_hash {
            return Err(RefusalReason::CompatHash);
        }
        if request.session_id.is_empty() || request.session_id.len() > limits::MAX_SESSION_ID_BYTES
        {
            return Err(RefusalReason::SessionId);
        }
        let theirs = request.chiasm.as_ref().and_then(|extension| extension.fingerprint);
        if let (Some(theirs), Some(ours)) = (theirs, self.config.fingerprint.as_deref())
            && theirs != ours
        {
            return Err(RefusalReason::Fingerprint);
        }
        if self.draining {
            return Err(RefusalReason::Draining);
        }
        let session = self.grants.claim_session(request.session_id, peer)?;
        let (key, entry) = cache.find(request.mm_hash).ok_or(RefusalReason::Missing)?;
        if entry.state() != EntryState::Ready {
            return Err(RefusalReason::NotReady);
        }
        let plane = self.common_plane(request)?;
        let agent = self.agent.as_ref().filter(|_| plane == Plane::Nixl);
        let hash: MmHash = entry.hash().clone();
        let wanted = Grant {
            peer,
            session,
            hash,
            entry: key,
            plane,
            attempt: request.chiasm.map_or(0, |extension| extension.attempt),
            token: GrantToken::default(),
            deadline: now.after(self.lease(request)),
            extents: entry.extents().to_vec(),
            meta: *entry.meta(),
            digest: entry.digest(),
            agent: agent.map_or(0, |agent| agent.life),
            upstream: request.chiasm.is_none(),
        };
        let granted = self.grants.give(wanted, cache)?;
        if granted.plane == Plane::Shm
            && let Some(extension) = &request.chiasm
            && let Some(name) = extension.region
            && self.grants.is_first_on_shm(peer)
        {
            let region = ReaderRegion { name: name.to_owned(), epoch: extension.epoch };
            self.new_reader = Some((peer, region));
        }
        Ok(granted)
    }

    /// How long this consumer may take for granted that the bytes do not change: a Chiasm one is told.
    fn lease(&self, request: &XferReq<'_>) -> Duration {
        match request.chiasm {
            Some(_) => self.config.lease,
            None => self.config.lease.max(self.config.upstream_lease),
        }
    }

    /// The region of a peer that has just got its first grant on shm. To be asked for after each
    /// request: whoever owns files can then see whether the peer lives (PROTOCOL 51).
    pub fn take_new_reader(&mut self) -> Option<(PeerId, ReaderRegion)> {
        self.new_reader.take()
    }

    /// Whether grants or streams of this peer are live, also after its connection is gone.
    #[must_use]
    pub fn holds(&self, peer: PeerId) -> bool {
        self.grants.holds(peer)
    }

    /// The node behind this peer's connection is proven dead, so that nobody reads under its grants on
    /// shm any more: they end (S8).
    pub fn reader_dead(&mut self, peer: PeerId, cache: &mut Cache) {
        self.counters.lost += self.grants.drop_shm(peer, cache);
    }

    /// The first plane of the consumer's order that this producer serves it (PROTOCOL 47). An upstream
    /// consumer has nixl and nothing else.
    fn common_plane(&self, request: &XferReq<'_>) -> Result<Plane, RefusalReason> {
        let upstream = PlaneList::from_iter([Plane::Nixl]);
        let offered = request.chiasm.map_or(upstream, |extension| extension.planes);
        let host = request.chiasm.and_then(|extension| extension.host);
        let serves = |plane: &Plane| {
            let reaches = match plane {
                Plane::Shm => self.config.shm.as_ref().is_some_and(|shm| host == Some(shm.host)),
                Plane::Nixl => self.agent.is_some(),
                Plane::Tcp => true,
            };
            reaches && self.config.planes.contains(*plane)
        };
        offered.iter().find(serves).ok_or_else(|| {
            let nixl = Plane::Nixl;
            let will_serve = self.config.planes.contains(nixl) && offered.contains(nixl);
            if will_serve { RefusalReason::AgentDown } else { RefusalReason::NoPlane }
        })
    }

    /// This plane turns out not to be there: it is not granted any more.
    pub fn without_plane(&mut self, plane: Plane) {
        self.config.planes = self.config.planes.without(plane);
    }

    /// The NIXL agent lives: from here on it is read through, and grants made through an earlier one
    /// that is not there any more can be completed no more.
    pub fn agent_up(&mut self, agent: NixlAgent) {
        self.agent = Some(agent);
    }

    /// The NIXL agent has ended. What it granted ends by its leases (S8).
    pub fn agent_down(&mut self) {
        self.agent = None;
    }

    /// Whether [`Producer::agent_up`] was called last.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// A completion that the agent of this life was sent. Anybody may have sent it, and anything
    /// (hazard D7): it ends an upstream consumer's grant if it means exactly one.
    pub fn completed(&mut self, agent: u64, text: &[u8], cache: &mut Cache) {
        match self.grants.complete(agent, text, cache) {
            Completed::Ended => self.counters.done += 1,
            Completed::OthersMayRead => {}
            Completed::Ambiguous => self.counters.ambiguous_completions += 1,
            Completed::Stray => self.counters.stray_completions += 1,
        }
    }

    /// Live grants on nixl: while there are any the agent has to make progress.
    #[must_use]
    pub fn nixl_grants(&self) -> usize {
        self.grants.nixl()
    }

    /// A data stream presents a token. It opens once; the grant's pin goes over to the stream, which
    /// must be reported by [`Producer::stream_ended`]. `None`: the token opens nothing (any more).
    pub fn open_stream(&mut self, now: Nanos, token: GrantToken) -> Option<StreamRead> {
        let opened = self.grants.open(now, token);
        self.counters.bad_tokens += u64::from(opened.is_none());
        opened
    }

    /// The stream has handed all its bytes over (`completed`) or is lost. Ends exactly one grant;
    /// a stream that has ended already is ignored.
    pub fn stream_ended(&mut self, stream: StreamId, completed: bool, cache: &mut Cache) {
        if !self.grants.end_stream(stream, cache) {
            return;
        }
        if completed {
            self.counters.completed += 1;
        } else {
            self.counters.lost += 1;
        }
    }

    /// The peer's control connection is gone: its sessions are free again, and its tcp grants end,
    /// since only that connection could have told their token (S8). Streams go on by themselves.
    pub fn peer_gone(&mut self, peer: PeerId, cache: &mut Cache) {
        self.counters.lost += self.grants.drop_peer(peer, cache);
    }

    /// Ends what has outlived its lease. Gives the streams that must be closed because they ran into
    /// the end of theirs.
    pub fn handle_timeout(&mut self, now: Nanos, cache: &mut Cache) -> Vec<StreamId> {
        let (expired, streams) = self.grants.expire(now, cache);
        self.counters.expired += expired;
        streams
    }

    /// When [`Producer::handle_timeout`] has something to do: just past the earliest lease.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.grants.next_deadline().map_or(Nanos::NEVER, |at| at.after(Duration::from_nanos(1)))
    }

    /// This producer is about to stop: from here on every request is refused, renewals too. What is
    /// granted may still be read.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether [`Producer::drain`] was called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Ends every grant and stream, for shutdown.
    pub fn close(&mut self, cache: &mut Cache) {
        self.grants.drop_all(cache);
    }

    /// Live grants and streams.
    #[must_use]
    pub fn live_grants(&self) -> usize {
        self.grants.live()
    }

    /// Blocks that grants and streams pin, each block once.
    #[must_use]
    pub fn pinned_blocks(&self) -> u32 {
        self.grants.pinned_blocks()
    }

    /// What was answered so far.
    #[must_use]
    pub fn counters(&self) -> ProducerCounters {
        self.counters
    }
}
