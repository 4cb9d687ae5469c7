//! The producer: what upstream's own tests assert of theirs, what is ours, and a naive model of it.

mod done;
mod drain;
mod grants;
mod model;
mod nixl;
mod order;
mod quotas;
mod sessions;
mod streams;

use std::time::Duration;

use chiasm_core::cache::{Cache, EntryKey, EvictionPolicy};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::host_hint::HostHint;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{
    GrantToken, PeerId, Producer, ProducerConfig, ProducerLimits, SharedRegion,
};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, AckStatus, ReqExtension, XferAck, XferReq};

const COMPAT: &str = "same";
const BLOCK_BYTES: u64 = 64;
const LEASE: Duration = Duration::from_secs(30);
const LEASE_NANOS: u64 = 30_000_000_000;

/// What every request is numbered as where a test says nothing else.
const ATTEMPT: u32 = 7;
const HOST: HostHint = HostHint([4; 16]);

const ALICE: PeerId = PeerId(1);
const BOB: PeerId = PeerId(2);

fn at(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

fn planes<const N: usize>(planes: [Plane; N]) -> PlaneList {
    planes.into_iter().collect()
}

/// A tensor of as many rows as blocks.
fn meta(blocks: u32) -> EntryMeta {
    EntryMeta::new(blocks, 16, Dtype::Float32).expect("a small tensor")
}

fn request<'a>(session: &'a str, hash: &'a str) -> XferReq<'a> {
    let planes = planes([Plane::Tcp]);
    XferReq {
        mm_hash: hash,
        compatibility_hash: COMPAT,
        session_id: session,
        connector_version: 2,
        chiasm: Some(ReqExtension {
            planes,
            attempt: ATTEMPT,
            host: Some(HOST),
            ..ReqExtension::default()
        }),
    }
}

/// An answer, out of its bytes.
#[derive(Debug)]
struct Reply {
    status: AckStatus,
    session: String,
    token: Option<GrantToken>,
    extents: Vec<Extent>,
    lease_ms: Option<u64>,
    reason: Option<String>,
    bytes: Vec<u8>,
}

impl Reply {
    fn of(bytes: &[u8]) -> Self {
        let ack = XferAck::decode(bytes, &AckLimits::default()).expect("our own ack decodes");
        let extension = ack.chiasm.as_ref();
        Self {
            status: ack.status,
            session: ack.session_id.to_owned(),
            token: extension.and_then(|extension| extension.token).map(GrantToken),
            extents: extension.map(|extension| extension.extents.clone()).unwrap_or_default(),
            lease_ms: extension.and_then(|extension| extension.lease_ms),
            reason: extension.and_then(|extension| extension.reason).map(str::to_owned),
            bytes: bytes.to_vec(),
        }
    }
}

/// A producer with its cache.
#[derive(Debug)]
struct World {
    cache: Cache,
    producer: Producer,
}

impl World {
    fn new(blocks: u32) -> Self {
        Self::with(blocks, ProducerLimits::for_region(blocks))
    }

    fn with(blocks: u32, limits: ProducerLimits) -> Self {
        let config = ProducerConfig {
            compat_hash: COMPAT.into(),
            fingerprint: Some("ours".into()),
            epoch: 5,
            block_size_bytes: BLOCK_BYTES,
            lease: LEASE,
            upstream_lease: LEASE,
            planes: planes([Plane::Shm, Plane::Tcp]),
            shm: Some(SharedRegion { host: HOST, name: "chiasm-ours".into() }),
            limits,
        };
        let cache = Cache::new(blocks, EvictionPolicy::Fifo);
        Self { cache, producer: Producer::new(config, [3; 32]) }
    }

    fn saving(&mut self, name: &str, blocks: u32) -> EntryKey {
        let hash = MmHash::new(name).expect("a short text");
        self.cache.reserve(&hash, meta(blocks), blocks).expect("room")
    }

    fn saved(&mut self, name: &str, blocks: u32) -> EntryKey {
        let key = self.saving(name, blocks);
        self.cache.mark_ready(key, Some(Digest([9; 16]))).expect("a save under way");
        key
    }

    fn send(&mut self, now: Nanos, peer: PeerId, request: &XferReq<'_>) -> Reply {
        let answer = self.producer.handle_request(now, peer, &request.encode(), &mut self.cache);
        self.check();
        Reply::of(&answer.expect("a request that decodes is answered").into_bytes())
    }

    fn ask(&mut self, now: Nanos, peer: PeerId, session: &str, hash: &str) -> Reply {
        self.send(now, peer, &request(session, hash))
    }

    /// The token of a grant that is given.
    fn granted(&mut self, now: Nanos, peer: PeerId, session: &str, hash: &str) -> GrantToken {
        let reply = self.ask(now, peer, session, hash);
        assert_eq!(reply.status, AckStatus::Ok, "{:?}", reply.reason);
        reply.token.expect("a tcp grant has a token")
    }

    /// Grants, pinned blocks.
    fn held(&self) -> (usize, u32) {
        (self.producer.live_grants(), self.producer.pinned_blocks())
    }

    fn pins(&self, key: EntryKey) -> u32 {
        self.cache.entry(key).expect("an entry").pins()
    }

    fn check(&self) {
        self.cache.check().unwrap();
    }

    fn at_rest(&self) {
        assert_eq!(self.held(), (0, 0));
        assert!(!self.cache.has_held_entries());
        assert_eq!(self.producer.poll_timeout(), Nanos::NEVER);
        self.check();
    }
}
