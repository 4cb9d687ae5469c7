//! The producer with a real cache against a list of grants that is searched for everything.

use std::collections::BTreeSet;

use chiasm_core::cache::EntryState;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::producer::{GrantToken, PeerId, ProducerLimits, StreamId};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckStatus, XferDone};
use proptest::prelude::*;

use super::{COMPAT, LEASE, LEASE_NANOS, World, at, meta, planes, request};

const BLOCKS: u32 = 24;
const PEERS: usize = 3;
const LIMITS: ProducerLimits = ProducerLimits {
    max_grants: 6,
    max_grants_per_peer: 4,
    max_sessions_per_peer: 2,
    max_blocks_per_peer: 12,
    max_blocks: 18,
};

#[derive(Clone, Debug)]
enum Op {
    Save {
        name: u8,
        blocks: u32,
    },
    MarkReady(u8),
    Evict(u8),
    Ask {
        peer: usize,
        session: u8,
        name: u8,
        shm: bool,
        compatible: bool,
        attempt: u32,
    },
    Open(usize),
    EndStream(usize, bool),
    /// With the number that the grant was asked under, or another one.
    Done {
        peer: usize,
        session: u8,
        name: u8,
        attempt: u32,
    },
    PeerGone(usize),
    Pass(u64),
    Close,
}

#[derive(Clone, Debug)]
struct Held {
    peer: PeerId,
    session: String,
    name: String,
    blocks: u32,
    plane: Plane,
    attempt: u32,
    deadline: Nanos,
    token: Option<GrantToken>,
    stream: Option<StreamId>,
}

#[derive(Debug, Default)]
struct Model {
    held: Vec<Held>,
    /// Every stream and token there ever was: those that ended are tried again.
    streams: Vec<StreamId>,
    tokens: Vec<GrantToken>,
    sessions: Vec<(String, PeerId)>,
}

impl Model {
    fn pinned(&self) -> u32 {
        let entries: BTreeSet<_> = self.held.iter().map(|held| (&held.name, held.blocks)).collect();
        entries.iter().map(|(_, blocks)| blocks).sum()
    }

    /// The status, and whether it is a renewal.
    fn answer(&self, world: &World, wanted: &Held, compatible: bool) -> (AckStatus, Option<usize>) {
        let refused = |status| (status, None);
        if !compatible {
            return refused(AckStatus::Incompat);
        }
        let owner = self.sessions.iter().find(|(session, _)| *session == wanted.session);
        match owner {
            Some((_, owner)) if *owner != wanted.peer => return refused(AckStatus::Internal),
            None if self.sessions.iter().filter(|(_, peer)| *peer == wanted.peer).count() >= 2 => {
                return refused(AckStatus::Internal);
            }
            _ => {}
        }
        let Some((_, entry)) = world.cache.find(&wanted.name) else {
            return refused(AckStatus::Missing);
        };
        if entry.state() != EntryState::Ready {
            return refused(AckStatus::NotReady);
        }
        let same = self.held.iter().position(|held| {
            held.stream.is_none()
                && (&held.session, &held.name, held.plane)
                    == (&wanted.session, &wanted.name, wanted.plane)
        });
        if same.is_some() {
            return (AckStatus::Ok, same);
        }
        let theirs: Vec<&Held> = self.held.iter().filter(|held| held.peer == wanted.peer).collect();
        let entries: BTreeSet<_> = theirs.iter().map(|held| (&held.name, held.blocks)).collect();
        let their_blocks: u32 = entries.iter().map(|(_, blocks)| blocks).sum();
        let theirs_already = theirs.iter().any(|held| held.name == wanted.name);
        let more = if theirs_already { 0 } else { wanted.blocks };
        let pinned_already = self.held.iter().any(|held| held.name == wanted.name);
        let pinned = self.pinned() + if pinned_already { 0 } else { wanted.blocks };
        let too_many = self.held.len() >= LIMITS.max_grants
            || theirs.len() >= LIMITS.max_grants_per_peer
            || !theirs.is_empty() && their_blocks + more > LIMITS.max_blocks_per_peer
            || !self.held.is_empty() && pinned > LIMITS.max_blocks;
        (if too_many { AckStatus::NotReady } else { AckStatus::Ok }, None)
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let name = 0..4_u8;
    let index = 0..64_usize;
    let op = prop_oneof![
        2 => (name.clone(), 0..9_u32).prop_map(|(name, blocks)| Op::Save { name, blocks }),
        3 => name.clone().prop_map(Op::MarkReady),
        1 => name.clone().prop_map(Op::Evict),
        8 => (0..PEERS, 0..4_u8, name, any::<bool>(), prop::bool::weighted(0.95), 1..4_u32).prop_map(
            |(peer, session, name, shm, compatible, attempt)| {
                Op::Ask { peer, session, name, shm, compatible, attempt }
            }
        ),
        4 => index.clone().prop_map(Op::Open),
        4 => (index, any::<bool>()).prop_map(|(index, completed)| Op::EndStream(index, completed)),
        4 => (0..PEERS, 0..4_u8, 0..4_u8, 1..4_u32).prop_map(
            |(peer, session, name, attempt)| Op::Done { peer, session, name, attempt }
        ),
        1 => (0..PEERS).prop_map(Op::PeerGone),
        2 => prop_oneof![0..LEASE_NANOS, Just(1), Just(LEASE_NANOS)].prop_map(Op::Pass),
        1 => prop::bool::weighted(0.1).prop_map(|yes| if yes { Op::Close } else { Op::Pass(1) }),
    ];
    prop::collection::vec(op, 0..120)
}

struct Run {
    world: World,
    model: Model,
    now: u64,
    /// The number of each peer's connection; never used again.
    peers: [u64; PEERS],
}

impl Run {
    fn new() -> Self {
        let world = World::with(BLOCKS, LIMITS);
        Self { world, model: Model::default(), now: 0, peers: [0, 1, 2] }
    }

    fn step(&mut self, op: &Op) {
        self.apply(op);
        // A session is its connection's, and then its grants'.
        let (held, peers) = (&self.model.held, &self.peers);
        self.model.sessions.retain(|(session, owner)| {
            peers.contains(&owner.0) || held.iter().any(|held| held.session == *session)
        });
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Save { name, blocks } => {
                let hash = MmHash::new(&format!("h{name}")).unwrap();
                let _ = self.world.cache.reserve(&hash, meta(*blocks), *blocks);
            }
            Op::MarkReady(name) => {
                if let Some((key, _)) = self.world.cache.find(&format!("h{name}")) {
                    let _ = self.world.cache.mark_ready(key, None);
                }
            }
            Op::Evict(name) => {
                if let Some((key, _)) = self.world.cache.find(&format!("h{name}")) {
                    let _ = self.world.cache.evict(key);
                }
            }
            Op::Ask { peer, session, name, shm, compatible, attempt } => {
                let peer = PeerId(self.peers[*peer]);
                let plane = if *shm { Plane::Shm } else { Plane::Tcp };
                self.ask(peer, (*session, *name), plane, *compatible, *attempt);
            }
            Op::Open(index) => self.open(*index),
            Op::EndStream(index, completed) => {
                let all = &self.model.streams;
                let Some(stream) = all.get(index % all.len().max(1)).copied() else { return };
                self.world.producer.stream_ended(stream, *completed, &mut self.world.cache);
                self.model.held.retain(|held| held.stream != Some(stream));
            }
            Op::Done { peer, session, name, attempt } => {
                self.done(PeerId(self.peers[*peer]), *session, *name, *attempt);
            }
            Op::PeerGone(peer) => {
                let gone = PeerId(self.peers[*peer]);
                self.world.producer.peer_gone(gone, &mut self.world.cache);
                self.model.held.retain(|held| {
                    held.peer != gone || held.plane != Plane::Tcp || held.stream.is_some()
                });
                self.peers[*peer] += 10;
            }
            Op::Pass(nanos) => {
                self.now += nanos;
                let now = at(self.now);
                let closed = self.world.producer.handle_timeout(now, &mut self.world.cache);
                let expired = |held: &&Held| now > held.deadline;
                let expected: BTreeSet<StreamId> =
                    self.model.held.iter().filter(expired).filter_map(|held| held.stream).collect();
                assert_eq!(closed.into_iter().collect::<BTreeSet<_>>(), expected);
                self.model.held.retain(|held| now <= held.deadline);
            }
            Op::Close => {
                self.world.producer.close(&mut self.world.cache);
                self.model.held.clear();
            }
        }
    }

    fn ask(
        &mut self,
        peer: PeerId,
        (session, name): (u8, u8),
        plane: Plane,
        compatible: bool,
        attempt: u32,
    ) {
        let (session, name) = (format!("s{session}"), format!("h{name}"));
        let entry = self.world.cache.find(&name).map(|(_, entry)| entry.blocks());
        let deadline = at(self.now).after(LEASE);
        let blocks = entry.unwrap_or(0);
        let (token, stream) = (None, None);
        let mut wanted =
            Held { peer, session, name, blocks, plane, attempt, deadline, token, stream };
        let (expected, renewed) = self.model.answer(&self.world, &wanted, compatible);
        let mut request = request(&wanted.session, &wanted.name);
        request.compatibility_hash = if compatible { COMPAT } else { "other" };
        let chiasm = request.chiasm.as_mut().unwrap();
        (chiasm.planes, chiasm.attempt) = (planes([plane]), attempt);
        let reply = self.world.send(at(self.now), peer, &request);
        assert_eq!(reply.status, expected, "{wanted:?} {reply:?}");

        let known = self.model.sessions.iter().any(|(session, _)| *session == wanted.session);
        if compatible && !known && expected != AckStatus::Internal {
            self.model.sessions.push((wanted.session.clone(), peer));
        }
        if expected == AckStatus::Ok {
            wanted.token = reply.token;
            self.model.tokens.extend(reply.token);
            match renewed {
                Some(at) => self.model.held[at] = wanted,
                None => self.model.held.push(wanted),
            }
        }
    }

    /// Ends exactly the grant that this very connection got for this very attempt.
    fn done(&mut self, peer: PeerId, session: u8, name: u8, attempt: u32) {
        let (session, name) = (format!("s{session}"), format!("h{name}"));
        let done = XferDone { session_id: &session, mm_hash: &name, attempt };
        let before = self.world.producer.counters();
        let answer = self.world.producer.handle_request(
            at(self.now),
            peer,
            &done.encode(),
            &mut self.world.cache,
        );
        assert_eq!(answer, None);
        let owns = self.model.sessions.contains(&(session.clone(), peer));
        let ended = self.model.held.iter().position(|held| {
            owns && held.stream.is_none()
                && (held.peer, &held.session, &held.name, held.attempt)
                    == (peer, &session, &name, attempt)
        });
        // Of two planes under one number, which no consumer of ours makes, one is ended: the model
        // follows the producer's order.
        let ended = ended.map(|first| {
            let same = |held: &Held| {
                held.stream.is_none()
                    && (held.peer, &held.session, &held.name, held.attempt)
                        == (peer, &session, &name, attempt)
            };
            let shm = self.model.held.iter().position(|it| same(it) && it.plane == Plane::Shm);
            shm.unwrap_or(first)
        });
        let after = self.world.producer.counters();
        let counted = (after.done - before.done, after.stray_dones - before.stray_dones);
        assert_eq!(counted, if ended.is_some() { (1, 0) } else { (0, 1) });
        if let Some(index) = ended {
            self.model.held.remove(index);
        }
    }

    fn open(&mut self, index: usize) {
        let all = &self.model.tokens;
        let Some(token) = all.get(index % all.len().max(1)).copied() else { return };
        let now = at(self.now);
        let opened = self.world.producer.open_stream(now, token);
        let holder = self.model.held.iter_mut().find(|held| held.token == Some(token));
        let expected = holder.filter(|held| held.stream.is_none() && now <= held.deadline);
        assert_eq!(opened.is_some(), expected.is_some());
        if let (Some(opened), Some(held)) = (opened, expected) {
            assert_eq!(opened.deadline, held.deadline);
            assert_eq!(opened.bytes, u64::from(held.blocks) * 64);
            assert!(!self.model.streams.contains(&opened.stream), "never used again");
            held.stream = Some(opened.stream);
            self.model.streams.push(opened.stream);
        }
    }

    fn check(&self) {
        self.world.check();
        assert_eq!(self.world.held(), (self.model.held.len(), self.model.pinned()));
        for name in 0..4 {
            let name = format!("h{name}");
            let pins = self.world.cache.find(&name).map_or(0, |(_, entry)| entry.pins());
            let held = self.model.held.iter().filter(|held| held.name == name).count();
            assert_eq!(pins as usize, held, "pins of {name} balance (S4)");
        }
        let due = self.model.held.iter().map(|held| held.deadline).min();
        let due = due.map_or(Nanos::NEVER, |at| Nanos::from_nanos(at.as_nanos() + 1));
        assert_eq!(self.world.producer.poll_timeout(), due);
    }

    /// S4 at rest: all peers are gone and all leases are over.
    fn end(&mut self) {
        for peer in 0..PEERS {
            self.step(&Op::PeerGone(peer));
        }
        self.check();
        self.step(&Op::Pass(LEASE_NANOS + 1));
        self.check();
        assert_eq!(self.world.held(), (0, 0));
        assert_eq!(self.world.cache.usage().pinned_entries, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn the_producer_agrees_with_a_naive_model(ops in ops()) {
        let mut run = Run::new();
        for op in &ops {
            run.step(op);
            run.check();
        }
        run.end();
    }
}
