//! The producer under any series of requests, streams, losses and times: nothing that is not ready is
//! granted, what is granted does not change, and nothing stays pinned when all have gone.

use std::collections::BTreeMap;
use std::time::Duration;

use chiasm_core::cache::{Cache, EntryState, EvictionPolicy};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::host_hint::HostHint;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{
    GrantToken, PeerId, Producer, ProducerConfig, ProducerLimits, SharedRegion, StreamId,
};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, AckStatus, Message, ReqExtension, XferAck, XferDone, XferReq};

use crate::input::Input;

const BLOCKS: u32 = 24;
const BLOCK_BYTES: u64 = 64;
const LEASE: Duration = Duration::from_secs(30);
const HOST: HostHint = HostHint([4; 16]);

/// Texts that read alike when they are put together.
const SESSIONS: &[&str] = &["s", "s:x", "", "t", "s:x:h1"];
const HASHES: &[&str] = &["h1", "x:h1", "h2", "h3", "h4", "h5"];

struct World {
    cache: Cache,
    producer: Producer,
    now: Nanos,
    /// The blocks under each token that was never opened, and until when they must not change. Of
    /// those that have ended in another way too: they open nothing.
    promised: BTreeMap<GrantToken, (Vec<Extent>, Nanos)>,
    tokens: Vec<GrantToken>,
    streams: Vec<(StreamId, Vec<Extent>)>,
}

/// A byte for the operation, then what it needs.
pub(crate) fn producer(bytes: &[u8]) {
    let config = ProducerConfig {
        compat_hash: "same".into(),
        fingerprint: Some("ours".into()),
        epoch: 5,
        block_size_bytes: BLOCK_BYTES,
        lease: LEASE,
        upstream_lease: LEASE,
        planes: PlaneList::from_iter([Plane::Shm, Plane::Tcp]),
        shm: Some(SharedRegion { host: HOST, name: "chiasm-ours".into() }),
        limits: ProducerLimits {
            max_grants: 8,
            max_grants_per_peer: 5,
            ..ProducerLimits::for_region(BLOCKS)
        },
    };
    let mut world = World {
        cache: Cache::new(BLOCKS, EvictionPolicy::Fifo),
        producer: Producer::new(config, [3; 32]),
        now: Nanos::from_nanos(1),
        promised: BTreeMap::new(),
        tokens: Vec::new(),
        streams: Vec::new(),
    };
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        world.step(&mut input);
        world.check();
    }
    world.end();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0 => {
                let hash = MmHash::new(input.pick::<&str>(HASHES)).expect("short");
                let blocks = u32::from(input.byte()) % 9;
                let meta = EntryMeta::new(blocks, 16, Dtype::Float32).expect("small");
                if let Ok(key) = self.cache.reserve(&hash, meta, blocks)
                    && input.flag()
                {
                    self.cache.mark_ready(key, None).expect("a save under way");
                }
            }
            1 => {
                if let Some((key, _)) = self.cache.find(input.pick::<&str>(HASHES)) {
                    let _ = self.cache.mark_ready(key, None);
                }
            }
            2 => {
                if let Some((key, _)) = self.cache.find(input.pick::<&str>(HASHES)) {
                    let _ = self.cache.evict(key);
                }
            }
            3..=5 => self.ask(input),
            6 => {
                let peer = PeerId(u64::from(input.byte() % 3));
                let bytes = input.bytes(200);
                if let Some(answer) = self.handle(peer, bytes) {
                    self.answered(&answer);
                }
            }
            7 => {
                let peer = PeerId(u64::from(input.byte() % 3));
                let (session_id, mm_hash) = (*input.pick(SESSIONS), *input.pick(HASHES));
                let done = XferDone { session_id, mm_hash, attempt: u32::from(input.byte() % 3) };
                assert_eq!(self.handle(peer, &done.encode()), None, "nobody answers a done");
            }
            8 => self.open(input),
            9 => {
                if !self.streams.is_empty() {
                    let (stream, _) =
                        self.streams.swap_remove(input.below(self.streams.len().min(256)));
                    self.producer.stream_ended(stream, input.flag(), &mut self.cache);
                    self.producer.stream_ended(stream, true, &mut self.cache);
                }
            }
            10 => {
                self.producer.peer_gone(PeerId(u64::from(input.byte() % 3)), &mut self.cache);
            }
            _ => {
                self.now = self.now.after(Duration::from_millis(u64::from(input.byte()) * 200));
                let closed = self.producer.handle_timeout(self.now, &mut self.cache);
                self.streams.retain(|(stream, _)| !closed.contains(stream));
            }
        }
    }

    fn handle(&mut self, peer: PeerId, bytes: &[u8]) -> Option<Vec<u8>> {
        let answer = self.producer.handle_request(self.now, peer, bytes, &mut self.cache);
        answer.map(Message::into_bytes)
    }

    fn ask(&mut self, input: &mut Input<'_>) {
        let peer = PeerId(u64::from(input.byte() % 3));
        let (session_id, mm_hash) = (*input.pick(SESSIONS), *input.pick(HASHES));
        let kind = input.byte();
        let planes = match kind & 3 {
            0 => PlaneList::from_iter([Plane::Tcp]),
            1 => PlaneList::from_iter([Plane::Shm, Plane::Tcp]),
            2 => PlaneList::from_iter([Plane::Nixl, Plane::Shm]),
            _ => PlaneList::EMPTY,
        };
        let extension = ReqExtension {
            planes,
            attempt: u32::from(kind >> 6),
            host: (kind & 4 == 4).then_some(HOST),
            fingerprint: (kind & 8 == 8).then_some("ours"),
            ..ReqExtension::default()
        };
        let request = XferReq {
            mm_hash,
            compatibility_hash: if kind & 0x30 == 0x30 { "other" } else { "same" },
            session_id,
            connector_version: 2,
            chiasm: (kind & 0x38 != 0x20).then_some(extension),
        };
        let answer = self.handle(peer, &request.encode()).expect("a request is answered");
        self.answered(&answer);
    }

    /// Whatever is said is an ack, small, and grants nothing that is not ready.
    fn answered(&mut self, answer: &[u8]) {
        assert!(answer.len() < 2048, "{} bytes", answer.len());
        let ack = XferAck::decode(answer, &AckLimits::default()).expect("our own ack");
        let Some(extension) = ack.chiasm.filter(|_| ack.status == AckStatus::Ok) else {
            assert!(ack.status != AckStatus::Ok || !ack.mem_descriptor.is_empty());
            return;
        };
        let (_, entry) = self.cache.find(ack.mm_hash).expect("a granted entry is there");
        assert_eq!(entry.state(), EntryState::Ready, "a granted entry is ready");
        assert!(entry.pins() > 0);
        assert_eq!(extension.extents, entry.extents());
        assert_eq!(extension.bytes, Some(entry.meta().bytes));
        if let Some(token) = extension.token.map(GrantToken) {
            self.promised.insert(token, (extension.extents, self.now.after(LEASE)));
            if !self.tokens.contains(&token) {
                self.tokens.push(token);
            }
        }
    }

    fn open(&mut self, input: &mut Input<'_>) {
        let place = input.below(self.tokens.len().clamp(1, 255) + 1);
        let made_up = GrantToken([input.byte(); 16]);
        let token = self.tokens.get(place).copied().unwrap_or(made_up);
        let Some(read) = self.producer.open_stream(self.now, token) else { return };
        let (extents, until) = self.promised.remove(&token).expect("it was granted and not opened");
        assert_eq!(read.extents, extents);
        assert!(read.deadline == until && self.now <= until);
        assert!(self.streams.iter().all(|(stream, _)| *stream != read.stream));
        self.streams.push((read.stream, extents));
    }

    fn check(&self) {
        self.cache.check().expect("the cache's own invariants");
        assert!(self.producer.live_grants() <= 8);
        assert!(self.producer.pinned_blocks() <= BLOCKS);
        // S2: blocks under a stream are those of an entry that is ready and pinned.
        for (_, extents) in &self.streams {
            let held = HASHES.iter().any(|hash| {
                self.cache.find(hash).is_some_and(|(_, entry)| {
                    entry.pins() > 0 && entry.extents() == extents.as_slice()
                })
            });
            assert!(held || extents.is_empty(), "blocks under a stream have gone to somebody else");
        }
    }

    fn end(&mut self) {
        for peer in 0..3 {
            self.producer.peer_gone(PeerId(peer), &mut self.cache);
        }
        self.now = self.now.after(LEASE + Duration::from_nanos(1));
        self.producer.handle_timeout(self.now, &mut self.cache);
        assert_eq!((self.producer.live_grants(), self.producer.pinned_blocks()), (0, 0));
        assert_eq!(self.cache.usage().pinned_entries, 0, "pins balance");
        assert_eq!(self.producer.poll_timeout(), Nanos::NEVER);
        self.cache.check().expect("the cache's own invariants");
    }
}
