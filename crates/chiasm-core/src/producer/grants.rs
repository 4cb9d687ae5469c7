//! The table of live grants and of the streams that they opened, with the quotas of their holders.
//!
//! A grant holds exactly one pin on its entry from `give` until it ends. Opening a stream hands the
//! pin over; nothing here pins twice or unpins twice for one grant (S4, S8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_core::Rng as _;
use slab::Slab;

use super::agent::{Completions, Meant};
use super::reply::RefusalReason;
use super::{PeerId, ProducerLimits};
use crate::cache::{Cache, EntryKey};
use crate::digest::Digest;
use crate::entry::EntryMeta;
use crate::extent::{Extent, blocks_in};
use crate::mm_hash::MmHash;
use crate::plane::Plane;
use crate::time::Nanos;
use crate::wire::XferDone;

/// Sixteen random bytes that open one data stream for one grant, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GrantToken(pub [u8; 16]);

/// A stream that serves one grant's bytes. Never used again in one producer's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(u64);

/// What a stream may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRead {
    /// To report its end.
    pub stream: StreamId,
    /// The entry's blocks, in order.
    pub extents: Vec<Extent>,
    /// Exact length: no more than this is sent.
    pub bytes: u64,
    /// No byte may be sent after this instant.
    pub deadline: Nanos,
}

/// A promise that an entry's blocks do not change until `deadline`.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub(super) peer: PeerId,
    pub(super) session: Arc<str>,
    pub(super) hash: MmHash,
    pub(super) entry: EntryKey,
    pub(super) plane: Plane,
    /// The request that it answers, as its peer numbers them; 0 if it does not.
    pub(super) attempt: u32,
    pub(super) token: GrantToken,
    pub(super) deadline: Nanos,
    pub(super) extents: Vec<Extent>,
    pub(super) meta: EntryMeta,
    pub(super) digest: Option<Digest>,
    /// The life of the NIXL agent that it is read through; 0 on other planes.
    pub(super) agent: u64,
    /// Its peer is an upstream consumer: its end is a completion, not a message.
    pub(super) upstream: bool,
}

impl Grant {
    fn key(&self) -> GrantKey {
        (Arc::clone(&self.session), self.hash.clone(), self.plane)
    }
}

/// Something that holds a pin: a grant that waits for its reader, or a stream.
#[derive(Debug)]
struct Holder {
    grant: Grant,
    stream: Option<StreamId>,
    /// OK acks that an upstream consumer may still complete: each of them can be read under, and the
    /// first completion says nothing about the others (S8).
    answers: u32,
}

/// What is known of a session while its connection lives, or grants of it do.
#[derive(Clone, Copy, Debug)]
struct Session {
    peer: PeerId,
    /// Live grants of a Chiasm consumer's.
    grants: usize,
    /// Its connection is gone. Nobody else may use it until its last grant has ended: a copy of its
    /// requests could end what is still being read (S2, S8).
    lost: bool,
    /// The life of our NIXL agent that this session has completed a read through; 0 for none. Only
    /// that shows that it has the agent's descriptor list.
    proven: u64,
}

/// What a request renews (PROTOCOL 22). A tuple, never one joined text (hazard B7). The plane is part
/// of it: a grant on shm keeps its promise to the end of its lease, whatever becomes of one on tcp
/// that the same session asked for later (S8).
type GrantKey = (Arc<str>, MmHash, Plane);

/// What a completion has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// The end of a grant.
    Ended,
    /// The end of one read; the grant has answered other requests that may still be read under.
    OthersMayRead,
    /// It could mean several grants: they end by their leases.
    Ambiguous,
    /// No live grant is meant.
    Stray,
}

#[derive(Debug, Default)]
struct PeerUsage {
    grants: usize,
    /// Its grants and streams by entry: one that it reads again counts once.
    entries: BTreeMap<EntryKey, u32>,
    blocks: u64,
    sessions: BTreeSet<Arc<str>>,
    /// It has had a grant on shm.
    on_shm: bool,
}

#[derive(Debug)]
pub(super) struct Grants {
    limits: ProducerLimits,
    rng: ChaCha12Rng,
    next_stream: u64,
    holders: Slab<Holder>,
    /// Grants that wait for their reader.
    waiting: BTreeMap<GrantKey, usize>,
    tokens: BTreeMap<GrantToken, usize>,
    streams: BTreeMap<StreamId, usize>,
    deadlines: BTreeSet<(Nanos, usize)>,
    peers: BTreeMap<PeerId, PeerUsage>,
    sessions: BTreeMap<Arc<str>, Session>,
    completions: Completions,
    /// Live grants on nixl.
    nixl: usize,
    /// Holders per entry, so that an entry that many peers read counts once.
    entries: BTreeMap<EntryKey, u32>,
    pinned_blocks: u32,
}

impl Grants {
    pub(super) fn new(limits: ProducerLimits, rng: ChaCha12Rng) -> Self {
        Self {
            limits,
            rng,
            next_stream: 0,
            holders: Slab::new(),
            waiting: BTreeMap::new(),
            tokens: BTreeMap::new(),
            streams: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            completions: Completions::default(),
            nixl: 0,
            entries: BTreeMap::new(),
            pinned_blocks: 0,
        }
    }

    pub(super) fn live(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn pinned_blocks(&self) -> u32 {
        self.pinned_blocks
    }

    pub(super) fn nixl(&self) -> usize {
        self.nixl
    }

    /// Whether the session has read through this life of our NIXL agent.
    pub(super) fn has_proven(&self, session: &str, agent: u64) -> bool {
        self.sessions.get(session).is_some_and(|session| session.proven == agent)
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A session id belongs to the connection that used it first: while that lives, and while a
    /// grant does that a Chiasm consumer got under it. An upstream consumer's comes back on another
    /// connection, with its grants.
    pub(super) fn claim_session(
        &mut self,
        session: &str,
        peer: PeerId,
    ) -> Result<Arc<str>, RefusalReason> {
        match self.sessions.get_key_value(session) {
            Some((known, owner)) if owner.peer == peer => return Ok(Arc::clone(known)),
            Some(_) => return Err(RefusalReason::SessionInUse),
            None => {}
        }
        let usage = self.peers.entry(peer).or_default();
        if usage.sessions.len() >= self.limits.max_sessions_per_peer {
            return Err(RefusalReason::SessionId);
        }
        let session: Arc<str> = Arc::from(session);
        usage.sessions.insert(Arc::clone(&session));
        self.sessions
            .insert(Arc::clone(&session), Session { peer, grants: 0, lost: false, proven: 0 });
        Ok(session)
    }

    /// Gives the grant that is wanted, or renews the one that is there: one pin, one token, a new
    /// lease. The token stays, since two requests of one session may differ in what they expect of the
    /// entry: the one that will not read must not void the other's.
    pub(super) fn give(
        &mut self,
        wanted: Grant,
        cache: &mut Cache,
    ) -> Result<Grant, RefusalReason> {
        let key = wanted.key();
        if let Some(slot) = self.waiting.get(&key).copied() {
            return Ok(self.renew(slot, &wanted));
        }
        self.check_quota(&wanted)?;
        cache.pin(wanted.entry).map_err(|_| RefusalReason::NotReady)?;
        Ok(self.insert(wanted, key))
    }

    fn check_quota(&self, wanted: &Grant) -> Result<(), RefusalReason> {
        let blocks = blocks_in(&wanted.extents);
        if self.holders.len() >= self.limits.max_grants {
            return Err(RefusalReason::Quota);
        }
        if let Some(usage) = self.peers.get(&wanted.peer)
            && usage.grants > 0
        {
            let more = if usage.entries.contains_key(&wanted.entry) { 0 } else { blocks };
            let full = usage.blocks + more > u64::from(self.limits.max_blocks_per_peer);
            if full || usage.grants >= self.limits.max_grants_per_peer {
                return Err(RefusalReason::Quota);
            }
        }
        let more = if self.entries.contains_key(&wanted.entry) { 0 } else { blocks };
        let pinned = u64::from(self.pinned_blocks) + more;
        if more > 0 && !self.holders.is_empty() && pinned > u64::from(self.limits.max_blocks) {
            return Err(RefusalReason::Quota);
        }
        Ok(())
    }

    fn renew(&mut self, slot: usize, wanted: &Grant) -> Grant {
        let holder = self.holders.get_mut(slot).expect("the table names live holders only");
        // Nobody can read any more through an agent that has ended: its answers are void.
        let same_agent = holder.grant.agent == wanted.agent;
        holder.answers = if same_agent { holder.answers.saturating_add(1) } else { 1 };
        let grant = &mut holder.grant;
        debug_assert!(grant.entry == wanted.entry, "a pinned entry keeps its name");
        grant.agent = wanted.agent;
        self.deadlines.remove(&(grant.deadline, slot));
        grant.attempt = wanted.attempt;
        // Never earlier: who was granted it first may count on a longer lease than who asks now (S2).
        grant.deadline = grant.deadline.max(wanted.deadline);
        self.deadlines.insert((grant.deadline, slot));
        // The session has come back on another connection, which answers for it from now on.
        let before = std::mem::replace(&mut grant.peer, wanted.peer);
        let renewed = grant.clone();
        if before != wanted.peer {
            self.discharge(before, &renewed);
            self.charge(wanted.peer, &renewed);
        }
        renewed
    }

    fn insert(&mut self, mut grant: Grant, key: GrantKey) -> Grant {
        grant.token = self.new_token();
        let blocks = blocks_in(&grant.extents);
        self.charge(grant.peer, &grant);
        let holders = self.entries.entry(grant.entry).or_insert(0);
        if *holders == 0 {
            self.pinned_blocks += narrow(blocks);
        }
        *holders += 1;
        let slot = self.holders.insert(Holder { grant: grant.clone(), stream: None, answers: 1 });
        self.nixl += usize::from(grant.plane == Plane::Nixl);
        if !grant.upstream
            && let Some(session) = self.sessions.get_mut(&grant.session)
        {
            session.grants += 1;
        }
        if grant.upstream {
            let late = self.completions.expect(&grant, slot);
            let holder = self.holders.get_mut(slot).expect("it was just inserted");
            holder.answers = holder.answers.saturating_add(late);
        }
        self.waiting.insert(key, slot);
        self.tokens.insert(grant.token, slot);
        self.deadlines.insert((grant.deadline, slot));
        grant
    }

    /// A token opens once and only before its grant's end.
    pub(super) fn open(&mut self, now: Nanos, token: GrantToken) -> Option<StreamRead> {
        let slot = *self.tokens.get(&token)?;
        if now > self.holder(slot).deadline {
            return None;
        }
        self.tokens.remove(&token);
        let stream = StreamId(self.next_stream);
        self.next_stream += 1;
        self.streams.insert(stream, slot);
        let holder = self.holders.get_mut(slot).expect("tokens name live holders only");
        holder.stream = Some(stream);
        let grant = &holder.grant;
        self.waiting.remove(&grant.key());
        Some(StreamRead {
            stream,
            extents: grant.extents.clone(),
            bytes: grant.meta.bytes,
            deadline: grant.deadline,
        })
    }

    /// The peer has let go of the grant that answered this attempt. Ends exactly that one, and only for
    /// the connection that it belongs to; false if there is none that waits for its reader (a stream
    /// ends by itself).
    pub(super) fn release(&mut self, peer: PeerId, done: &XferDone<'_>, cache: &mut Cache) -> bool {
        let Some((session, known)) = self.sessions.get_key_value(done.session_id) else {
            return false;
        };
        if known.lost {
            return false;
        }
        let Ok(hash) = MmHash::new(done.mm_hash) else { return false };
        let slots = Plane::ALL.into_iter().filter_map(|plane| {
            let key = (Arc::clone(session), hash.clone(), plane);
            self.waiting.get(&key).copied()
        });
        let mine = |slot: &usize| {
            let grant = self.holder(*slot);
            grant.peer == peer && grant.attempt == done.attempt && !grant.upstream
        };
        let found = slots.into_iter().find(mine);
        if let Some(slot) = found {
            self.end(slot, cache);
        }
        found.is_some()
    }

    /// A read over NIXL is complete, as its reader's agent has told the `agent` life of ours. It ends
    /// exactly one answer of the one grant that it can mean.
    pub(super) fn complete(&mut self, agent: u64, text: &[u8], cache: &mut Cache) -> Completed {
        let slot = match self.completions.meant(text) {
            Meant::None => {
                self.completions.came_late(text);
                return Completed::Stray;
            }
            Meant::Several => return Completed::Ambiguous,
            Meant::One(slot) => slot,
        };
        let holder = self.holders.get_mut(slot).expect("the table names live holders only");
        // What was answered through one life cannot have been read through another: whoever says so
        // shows nothing of the session, and must not end what is read through the grant's own.
        if holder.grant.agent != agent {
            return Completed::Stray;
        }
        if let Some(session) = self.sessions.get_mut(&holder.grant.session) {
            session.proven = agent;
        }
        holder.answers = holder.answers.saturating_sub(1);
        if holder.answers > 0 {
            return Completed::OthersMayRead;
        }
        self.end(slot, cache);
        Completed::Ended
    }

    /// False if that stream has ended before.
    pub(super) fn end_stream(&mut self, stream: StreamId, cache: &mut Cache) -> bool {
        let Some(slot) = self.streams.get(&stream).copied() else { return false };
        self.end(slot, cache);
        true
    }

    /// Ends the peer's tcp grants that no stream has opened (PROTOCOL 23); the number of them.
    pub(super) fn drop_peer(&mut self, peer: PeerId, cache: &mut Cache) -> u64 {
        let ended = self.drop_waiting(peer, Plane::Tcp, cache);
        if let Some(usage) = self.peers.get_mut(&peer) {
            for session in std::mem::take(&mut usage.sessions) {
                match self.sessions.get_mut(&session) {
                    Some(known) if known.grants > 0 => known.lost = true,
                    _ => drop(self.sessions.remove(&session)),
                }
            }
        }
        self.forget_peer_if_idle(peer);
        ended
    }

    /// Ends the peer's grants on shm; the number of them.
    pub(super) fn drop_shm(&mut self, peer: PeerId, cache: &mut Cache) -> u64 {
        self.drop_waiting(peer, Plane::Shm, cache)
    }

    fn drop_waiting(&mut self, peer: PeerId, plane: Plane, cache: &mut Cache) -> u64 {
        let mine = |(slot, holder): (usize, &Holder)| {
            let waits = holder.stream.is_none() && holder.grant.plane == plane;
            (waits && holder.grant.peer == peer).then_some(slot)
        };
        let slots: Vec<usize> = self.holders.iter().filter_map(mine).collect();
        for slot in &slots {
            self.end(*slot, cache);
        }
        slots.len() as u64
    }

    /// True once for each connection: with its first grant on shm.
    pub(super) fn is_first_on_shm(&mut self, peer: PeerId) -> bool {
        let usage = self.peers.entry(peer).or_default();
        !std::mem::replace(&mut usage.on_shm, true)
    }

    /// Whether anything of the peer's is live.
    pub(super) fn holds(&self, peer: PeerId) -> bool {
        self.peers.get(&peer).is_some_and(|usage| usage.grants > 0)
    }

    /// Ends everything whose deadline has passed; how many, and the streams among them.
    pub(super) fn expire(&mut self, now: Nanos, cache: &mut Cache) -> (u64, Vec<StreamId>) {
        let (mut expired, mut streams) = (0, Vec::new());
        while let Some((deadline, slot)) = self.deadlines.first().copied()
            && now > deadline
        {
            if let Some(holder) = self.holders.get(slot) {
                streams.extend(holder.stream);
                if holder.grant.upstream {
                    self.completions.expired(&holder.grant, holder.answers);
                }
            }
            self.end(slot, cache);
            expired += 1;
        }
        (expired, streams)
    }

    pub(super) fn drop_all(&mut self, cache: &mut Cache) {
        let slots: Vec<usize> = self.holders.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.end(slot, cache);
        }
    }

    fn end(&mut self, slot: usize, cache: &mut Cache) {
        let Holder { grant, stream, .. } = self.holders.remove(slot);
        self.deadlines.remove(&(grant.deadline, slot));
        self.nixl -= usize::from(grant.plane == Plane::Nixl);
        if grant.upstream {
            self.completions.forget(&grant.session, grant.hash.as_str(), slot);
        } else if let Some(session) = self.sessions.get_mut(&grant.session) {
            session.grants -= 1;
            if session.lost && session.grants == 0 {
                self.sessions.remove(&grant.session);
            }
        }
        if let Some(stream) = stream {
            self.streams.remove(&stream);
        } else {
            self.tokens.remove(&grant.token);
            self.waiting.remove(&grant.key());
        }
        let blocks = blocks_in(&grant.extents);
        self.discharge(grant.peer, &grant);
        if let Some(holders) = self.entries.get_mut(&grant.entry) {
            *holders -= 1;
            if *holders == 0 {
                self.entries.remove(&grant.entry);
                self.pinned_blocks -= narrow(blocks);
            }
        }
        let unpinned = cache.unpin(grant.entry);
        debug_assert!(unpinned.is_ok(), "a grant holds one pin until it ends");
    }

    fn charge(&mut self, peer: PeerId, grant: &Grant) {
        let usage = self.peers.entry(peer).or_default();
        usage.grants += 1;
        let holders = usage.entries.entry(grant.entry).or_insert(0);
        *holders += 1;
        if *holders == 1 {
            usage.blocks += blocks_in(&grant.extents);
        }
    }

    fn discharge(&mut self, peer: PeerId, grant: &Grant) {
        if let Some(usage) = self.peers.get_mut(&peer) {
            usage.grants -= 1;
            if let Some(holders) = usage.entries.get_mut(&grant.entry) {
                *holders -= 1;
                if *holders == 0 {
                    usage.entries.remove(&grant.entry);
                    usage.blocks -= blocks_in(&grant.extents);
                }
            }
        }
        self.forget_peer_if_idle(peer);
    }

    fn forget_peer_if_idle(&mut self, peer: PeerId) {
        if let Some(usage) = self.peers.get(&peer)
            && usage.grants == 0
            && usage.sessions.is_empty()
        {
            self.peers.remove(&peer);
        }
    }

    fn holder(&self, slot: usize) -> &Grant {
        &self.holders.get(slot).expect("the table names live holders only").grant
    }

    fn new_token(&mut self) -> GrantToken {
        let mut token = GrantToken::default();
        self.rng.fill_bytes(&mut token.0);
        token
    }
}

fn narrow(blocks: u64) -> u32 {
    u32::try_from(blocks).expect("one region has at most u32::MAX blocks")
}
