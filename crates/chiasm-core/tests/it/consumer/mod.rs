//! The consumer: what upstream's own tests assert of its transfers, what is ours, and hostile
//! producers.

mod ack_checks;
mod cancel;
mod endings;
mod hostile;
mod lease;
mod limits;
mod links;
mod matching;
mod nixl;
mod release;

use std::time::Duration;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::consumer::{
    Consumer, ConsumerAction, ConsumerConfig, FailureClass, FailureReason, Finished, ReadEnd,
    ReadOrder, TransferId, Wanted,
};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckExtension, AckStatus, XferAck, XferDone, XferReq};

const SECOND: u64 = 1_000_000_000;
const DIGEST: Digest = Digest([7; 16]);

fn at(nanos: u64) -> Nanos {
    Nanos::from_nanos(nanos)
}

fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).expect("an endpoint")
}

fn near() -> Endpoint {
    endpoint("10.0.0.1:5601")
}

fn far() -> Endpoint {
    endpoint("10.0.0.2:5601")
}

fn wanted(hash: &str, blocks: u32) -> Wanted {
    let hash = MmHash::new(hash).expect("a short text");
    Wanted { hash, source: near(), rows: blocks, width: 16, blocks, dtype: None }
}

/// A request that went out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    to: Endpoint,
    hash: String,
    session: String,
    attempt: u32,
}

/// The OK ack that an honest producer gives; what a test changes in it is its point.
fn ack_for(sent: &Sent, blocks: u32) -> XferAck<'_> {
    let extension = AckExtension {
        epoch: 9,
        attempt: sent.attempt,
        plane: Some(Plane::Tcp),
        token: Some([1; 16]),
        extents: Extent::new(40, blocks).into_iter().collect(),
        dtype: Some(Dtype::Float32),
        shape: Some((blocks, 16)),
        bytes: Some(64 * u64::from(blocks)),
        block_size_bytes: Some(64),
        lease_ms: Some(30_000),
        digest: Some(DIGEST),
        ..AckExtension::default()
    };
    XferAck {
        session_id: &sent.session,
        chiasm: Some(extension),
        ..XferAck::bare(&sent.hash, AckStatus::Ok)
    }
}

fn nack<'a>(sent: &'a Sent, status: AckStatus, reason: &'a str) -> XferAck<'a> {
    let reason = Some(reason);
    let extension = AckExtension { attempt: sent.attempt, reason, ..AckExtension::default() };
    XferAck { chiasm: Some(extension), ..XferAck::bare(&sent.hash, status) }
}

fn landed(blocks: u32, digest: Option<Digest>) -> ReadEnd {
    ReadEnd::Landed { bytes: 64 * u64::from(blocks), digest }
}

/// A consumer with its cache, and the owner of sockets and planes, which the test plays.
#[derive(Debug)]
struct World {
    cache: Cache,
    consumer: Consumer,
    opened: Vec<Endpoint>,
    closed: Vec<(Endpoint, FailureReason)>,
    sent: Vec<Sent>,
    /// Grants that were given back.
    done: Vec<Sent>,
    /// By the last request.
    offered: Vec<Plane>,
    /// In the last request.
    known_agent: u64,
    reads: Vec<ReadOrder>,
    aborted: Vec<TransferId>,
    finished: Vec<Finished>,
}

impl World {
    fn new(blocks: u32) -> Self {
        Self::with_planes(blocks, [Plane::Shm, Plane::Tcp].into_iter().collect())
    }

    fn with_planes(blocks: u32, planes: PlaneList) -> Self {
        let consumer = Consumer::new(ConsumerConfig {
            compat_hash: "same".into(),
            fingerprint: Some("ours".into()),
            epoch: 4,
            session: "00000000000000aa".into(),
            block_size_bytes: 64,
            planes,
            host: None,
            region: None,
            verify: true,
            ack_timeout: Duration::from_secs(30),
            read_timeout: Duration::from_secs(20),
            lease_margin: Duration::from_secs(1),
        });
        Self {
            cache: Cache::new(blocks, EvictionPolicy::Fifo),
            consumer,
            opened: Vec::new(),
            closed: Vec::new(),
            sent: Vec::new(),
            done: Vec::new(),
            offered: Vec::new(),
            known_agent: 0,
            reads: Vec::new(),
            aborted: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// With the link to `near` up.
    fn connected(blocks: u32) -> Self {
        let mut world = Self::new(blocks);
        let probe = world.start(at(0), &wanted("probe", 1));
        world.up(at(0), &near());
        world.nack(at(0), &world.last_sent(), AckStatus::Missing);
        assert_eq!(world.failure().reason, FailureReason::NackMissing);
        assert_eq!(world.consumer.live_transfers(), 0, "{probe:?} is over");
        world.sent.clear();
        world
    }

    /// Drains everything.
    fn drain(&mut self) {
        while let Some(action) = self.consumer.poll_action() {
            match action {
                ConsumerAction::OpenLink(endpoint) => self.opened.push(endpoint),
                ConsumerAction::CloseLink(endpoint, reason) => self.closed.push((endpoint, reason)),
                ConsumerAction::Send(to, payload) if XferDone::decode(&payload).is_ok() => {
                    let done = XferDone::decode(&payload).expect("it has just been one");
                    self.done.push(Sent {
                        to,
                        hash: done.mm_hash.to_owned(),
                        session: done.session_id.to_owned(),
                        attempt: done.attempt,
                    });
                }
                ConsumerAction::Send(to, payload) => {
                    let request = XferReq::decode(&payload).expect("our own request decodes");
                    assert_eq!(request.compatibility_hash, "same");
                    let chiasm = request.chiasm.expect("a Chiasm consumer says so");
                    assert_eq!((chiasm.epoch, chiasm.fingerprint), (4, Some("ours")));
                    self.offered = chiasm.planes.iter().collect();
                    self.known_agent = chiasm.agent;
                    self.sent.push(Sent {
                        to,
                        hash: request.mm_hash.to_owned(),
                        session: request.session_id.to_owned(),
                        attempt: chiasm.attempt,
                    });
                }
                ConsumerAction::StartRead(order) => {
                    assert_eq!(self.consumer.poll_staged(), Some(order.transfer));
                    self.reads.push(order);
                }
                ConsumerAction::AbortRead(transfer) => self.aborted.push(transfer),
            }
        }
        assert_eq!(self.consumer.poll_staged(), None);
        while let Some(finished) = self.consumer.poll_finished() {
            self.finished.push(finished);
        }
        self.cache.check().unwrap();
    }

    fn start(&mut self, now: Nanos, wanted: &Wanted) -> TransferId {
        let id = self.consumer.start(now, wanted.clone());
        self.drain();
        id
    }

    fn up(&mut self, now: Nanos, endpoint: &Endpoint) {
        self.consumer.link_up(now, endpoint);
        self.drain();
    }

    fn down(&mut self, endpoint: &Endpoint, reason: &FailureReason) {
        self.consumer.link_down(endpoint, reason);
        self.drain();
    }

    fn receive(&mut self, now: Nanos, from: &Endpoint, payload: &[u8]) {
        self.consumer.receive(now, from, payload, &mut self.cache);
        self.drain();
    }

    fn ack(&mut self, now: Nanos, sent: &Sent, blocks: u32) {
        self.receive(now, &sent.to, &ack_for(sent, blocks).encode());
    }

    fn nack(&mut self, now: Nanos, sent: &Sent, status: AckStatus) {
        self.receive(now, &sent.to, &nack(sent, status, "word").encode());
    }

    fn ended(&mut self, now: Nanos, id: TransferId, end: ReadEnd) {
        self.consumer.read_ended(now, id, end, &mut self.cache);
        self.drain();
    }

    fn cancel(&mut self, id: TransferId) {
        self.consumer.cancel(id, &mut self.cache);
        self.drain();
    }

    fn timeout(&mut self, now: Nanos) {
        self.consumer.handle_timeout(now, &mut self.cache);
        self.drain();
    }

    /// Starts, is granted at once, and reads.
    fn reading(&mut self, now: Nanos, wanted: &Wanted) -> TransferId {
        let id = self.start(now, wanted);
        self.ack(now, &self.last_sent(), wanted.blocks);
        assert_eq!(self.reads.last().map(|read| read.transfer), Some(id), "{:?}", self.finished);
        id
    }

    fn last_sent(&self) -> Sent {
        self.sent.last().expect("a request went out").clone()
    }

    /// The one transfer that ended; `None` if none has.
    fn take_finished(&mut self) -> Option<Finished> {
        assert!(self.finished.len() <= 1, "{:?}", self.finished);
        self.finished.pop()
    }

    fn failure(&mut self) -> chiasm_core::consumer::Failure {
        let finished = self.take_finished().expect("a transfer has ended");
        finished.outcome.expect_err("it failed")
    }

    fn class(&mut self) -> FailureClass {
        self.failure().class
    }

    /// S4: nothing is held, nothing is waited for.
    fn at_rest(&self) {
        assert_eq!(self.consumer.live_transfers(), 0);
        assert!(!self.cache.has_held_entries());
        assert_eq!(self.cache.usage().quarantined, 0);
        assert_eq!(self.consumer.poll_timeout(), Nanos::NEVER);
        assert_eq!(self.finished, []);
    }

    fn holds(&self, hash: &str) -> bool {
        self.cache.find(hash).is_some()
    }
}

/// The meta of [`wanted`]'s entries.
fn meta(blocks: u32) -> EntryMeta {
    EntryMeta::new(blocks, 16, Dtype::Float32).expect("a small tensor")
}
