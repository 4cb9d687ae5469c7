//! The simulator's own books of what a producer has promised: a naive model of grants, fed with the
//! messages themselves (S2, S8).
//!
//! It must never look into the producer: it is what the producer is held against.

use std::collections::BTreeMap;
use std::time::Duration;

use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_core::producer::{PeerId, StreamId};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckExtension, XferAck, XferDone};

use crate::memory::Memory;

/// What a request renews (PROTOCOL 22).
type Key = (String, String, Plane);

#[derive(Debug)]
struct Grant {
    key: Key,
    peer: PeerId,
    attempt: u32,
    deadline: Nanos,
    extents: Vec<Extent>,
    token: Option<[u8; 16]>,
    stream: Option<StreamId>,
    /// It has begun as an upstream consumer's, whose reads no message ends.
    upstream: bool,
}

/// Grants that are live, by the rules of the protocol.
#[derive(Debug, Default)]
pub(crate) struct GrantBook {
    live: BTreeMap<u64, Grant>,
    waiting: BTreeMap<Key, u64>,
    next: u64,
}

impl GrantBook {
    pub(crate) fn live(&self) -> usize {
        self.live.len()
    }

    /// The producer has answered OK: a grant begins or is renewed.
    pub(crate) fn granted(
        &mut self,
        now: Nanos,
        peer: PeerId,
        ack: &XferAck<'_>,
        lease: Duration,
        memory: &mut Memory,
    ) {
        // A request whose extension was spoilt on its way is an upstream consumer's: over nixl, and for
        // `lease`.
        let upstream = ack.chiasm.is_none();
        let extension = ack.chiasm.clone().unwrap_or_else(|| {
            let indices = ack.src_block_indices.iter();
            let blocks = indices.filter_map(|block| Extent::new(u32::try_from(*block).ok()?, 1));
            let lease_ms = u64::try_from(lease.as_millis()).ok();
            let (plane, extents) = (Some(Plane::Nixl), blocks.collect());
            AckExtension { plane, extents, lease_ms, ..AckExtension::default() }
        });
        let (Some(plane), Some(lease_ms)) = (extension.plane, extension.lease_ms) else { return };
        let deadline = now.after(Duration::from_millis(lease_ms));
        let key = (ack.session_id.to_owned(), ack.mm_hash.to_owned(), plane);
        let attempt = extension.attempt;
        if let Some(grant) = self.waiting.get(&key).and_then(|id| self.live.get_mut(id)) {
            grant.peer = peer;
            grant.attempt = attempt;
            // Whose lease was longer may still count on it.
            grant.deadline = grant.deadline.max(deadline);
            return;
        }
        self.next += 1;
        self.waiting.insert(key.clone(), self.next);
        memory.grant(&extension.extents, true);
        let (extents, token) = (extension.extents.clone(), extension.token);
        let stream = None;
        let grant = Grant { key, peer, attempt, deadline, extents, token, stream, upstream };
        self.live.insert(self.next, grant);
    }

    /// The peer says that it has let go. True if that ended a grant.
    pub(crate) fn done(&mut self, peer: PeerId, done: &XferDone<'_>, memory: &mut Memory) -> bool {
        let mine = Plane::ALL.into_iter().find_map(|plane| {
            let key = (done.session_id.to_owned(), done.mm_hash.to_owned(), plane);
            let id = self.waiting.get(&key)?;
            let grant = self.live.get(id)?;
            let means = grant.attempt == done.attempt && !grant.upstream;
            (grant.peer == peer && means).then_some(*id)
        });
        mine.is_some_and(|id| self.end(id, memory))
    }

    /// A stream has presented a token and was let in.
    pub(crate) fn opened(&mut self, token: [u8; 16], stream: StreamId) {
        for grant in self.live.values_mut() {
            if grant.token == Some(token) && grant.stream.is_none() {
                grant.stream = Some(stream);
                self.waiting.remove(&grant.key);
                return;
            }
        }
    }

    /// A stream has ended.
    pub(crate) fn stream_ended(&mut self, stream: StreamId, memory: &mut Memory) {
        let found = self.live.iter().find(|(_, grant)| grant.stream == Some(stream));
        if let Some(id) = found.map(|(id, _)| *id) {
            self.end(id, memory);
        }
    }

    /// A control connection is gone, and with it the tcp grants that no stream has opened.
    pub(crate) fn peer_gone(&mut self, peer: PeerId, memory: &mut Memory) {
        let lost = |grant: &Grant| {
            grant.peer == peer && grant.stream.is_none() && grant.key.2 == Plane::Tcp
        };
        self.end_all(lost, memory);
    }

    /// A reader over shm is dead.
    pub(crate) fn reader_dead(&mut self, peer: PeerId, memory: &mut Memory) {
        self.end_all(|grant| grant.peer == peer && grant.key.2 == Plane::Shm, memory);
    }

    /// Leases that have run out.
    pub(crate) fn expire(&mut self, now: Nanos, memory: &mut Memory) {
        self.end_all(|grant| grant.deadline < now, memory);
    }

    fn end_all(&mut self, over: impl Fn(&Grant) -> bool, memory: &mut Memory) {
        let ids = self.live.iter().filter(|(_, grant)| over(grant)).map(|(id, _)| *id);
        for id in ids.collect::<Vec<_>>() {
            self.end(id, memory);
        }
    }

    fn end(&mut self, id: u64, memory: &mut Memory) -> bool {
        let Some(grant) = self.live.remove(&id) else { return false };
        if grant.stream.is_none() {
            self.waiting.remove(&grant.key);
        }
        memory.grant(&grant.extents, false);
        true
    }
}
