//! A producer and a consumer, both real instances, that exchange the wire's bytes and the JSON of
//! announcements in simulated time. Only sockets, planes and the engine are played here.

use std::collections::VecDeque;
use std::time::Duration;

use chiasm_core::admission::{AdmissionConfig, Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{
    Expectation, OutgoingAnnouncement, ParamsLimits, RemoteAnnouncement, parse_params_text,
};
use chiasm_core::cache::EntryKey;
use chiasm_core::consumer::{
    ConsumerAction, ConsumerConfig, FailureReason, ReadEnd, ReadOrder, TransferId,
};
use chiasm_core::digest::Digest;
use chiasm_core::dispatch::{QUARANTINE, SAVE_TIMEOUT};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::instance::{Instance, InstanceConfig};
use chiasm_core::limits;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{PeerId, ProducerConfig, ProducerLimits, StreamId};
use chiasm_core::time::Nanos;
use chiasm_core::wire::XferReq;
use serde_json::{Map, Value};

/// One row is one block.
pub(crate) const WIDTH: u32 = 16;
pub(crate) const BLOCK_BYTES: u64 = 64;
/// The producer's endpoint, which the consumer's operator has approved.
pub(crate) const SOURCE: &str = "10.0.0.1:5601";
/// One nanosecond: what lies between at a deadline and after it.
pub(crate) const TICK: Duration = Duration::from_nanos(1);
/// The consumer's control connection, as the producer sees it.
pub(crate) const PEER: PeerId = PeerId(1);

const DIGEST: Digest = Digest([7; 16]);

/// What the owner of the sockets and planes does with what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// Everything arrives at once.
    Fast,
    /// Requests arrive; bytes land when a test says so, and an abort is heeded as late.
    SlowBytes,
    /// What the consumer sends gets lost.
    Mute,
}

/// Two instances.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) now: Nanos,
    pub(crate) producer: Instance,
    pub(crate) consumer: Instance,
    pub(crate) network: Network,
    /// The hashes that were asked for, in order.
    pub(crate) asked: Vec<String>,
    /// Answers that are held back while this is set.
    pub(crate) late: Option<Vec<Vec<u8>>>,
    /// Reads whose plane has not let go of their blocks.
    pub(crate) reading: VecDeque<(ReadOrder, Option<StreamId>)>,
    pub(crate) aborted: Vec<TransferId>,
    /// Failed requests that were taken.
    pub(crate) failed: Vec<String>,
    counts: Vec<(String, usize)>,
}

pub(crate) fn hash(name: &str) -> MmHash {
    MmHash::new(name).expect("a short text")
}

pub(crate) fn meta(rows: u32) -> EntryMeta {
    EntryMeta::new(rows, WIDTH, Dtype::Float32).expect("a small tensor")
}

pub(crate) fn source() -> Endpoint {
    Endpoint::parse(SOURCE).expect("an endpoint")
}

/// An instance of `blocks` blocks with upstream's times, but for the lease that it gives.
pub(crate) fn instance_for_test(blocks: u32, lease: Duration) -> Instance {
    let planes: PlaneList = [Plane::Tcp].into_iter().collect();
    Instance::new(InstanceConfig {
        blocks,
        producer: ProducerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: 5,
            block_size_bytes: BLOCK_BYTES,
            lease,
            upstream_lease: lease,
            planes,
            shm: None,
            limits: ProducerLimits::for_region(blocks),
        },
        consumer: ConsumerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: 4,
            session: "00000000000000aa".into(),
            block_size_bytes: BLOCK_BYTES,
            planes,
            host: None,
            region: None,
            verify: true,
            ack_timeout: limits::ACK_TIMEOUT,
            read_timeout: limits::READ_TIMEOUT,
            lease_margin: limits::LEASE_MARGIN,
        },
        admission: AdmissionConfig::default(),
        save_timeout: SAVE_TIMEOUT,
        quarantine: QUARANTINE,
        allowed: Allowlist::parse([SOURCE]).expect("an endpoint"),
        seed: [3; 32],
    })
}

/// An item as a request names it: where its tokens end, and what `ec_transfer_params` say about it.
pub(crate) fn item(
    name: &str,
    (rows, end): (u32, u32),
    local_input: bool,
    params: &Value,
    region_blocks: u32,
) -> Item {
    let params =
        parse_params_text(&params.to_string(), &ParamsLimits::default()).expect("an object");
    let expected = Expectation {
        rows: Some(rows),
        width: Some(WIDTH),
        dtype: Some(Dtype::Float32),
        block_size_bytes: BLOCK_BYTES,
        region_blocks,
    };
    let announced = params.items.iter().find(|(known, _)| known.as_str() == name);
    Item::new(hash(name), end, local_input, announced.map(|(_, it)| it), &expected)
}

impl Pair {
    /// Both with a region of `blocks`.
    pub(crate) fn new(blocks: u32) -> Self {
        Self::with_lease(blocks, limits::UPSTREAM_LEASE)
    }

    pub(crate) fn with_lease(blocks: u32, lease: Duration) -> Self {
        Self {
            now: Nanos::from_nanos(1_000_000_000),
            producer: instance_for_test(blocks, lease),
            consumer: instance_for_test(blocks, lease),
            network: Network::Fast,
            asked: Vec::new(),
            late: None,
            reading: VecDeque::new(),
            aborted: Vec::new(),
            failed: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// The producer encodes: the entry, its bytes still on their way.
    pub(crate) fn encoding(&mut self, name: &str, rows: u32) -> EntryKey {
        self.producer.reserve(&hash(name), meta(rows), rows).expect("room")
    }

    pub(crate) fn encoded(&mut self, name: &str, rows: u32) -> EntryKey {
        let key = self.encoding(name, rows);
        self.producer.mark_ready(self.now, key, Some(DIGEST)).expect("a save under way");
        key
    }

    /// What the producer announces of its entry.
    pub(crate) fn announce(&self, name: &str) -> Value {
        let mut outgoing = OutgoingAnnouncement::new("image", 0);
        if let Some((_, entry)) = self.producer.cache().find(name) {
            let remote = RemoteAnnouncement::of_entry(source(), entry.meta(), BLOCK_BYTES);
            outgoing = outgoing.with_entry(remote.expect("a small entry"), Map::new());
        }
        Value::Object([(name.to_owned(), outgoing.to_json())].into_iter().collect())
    }

    /// A request that names `name`, of `rows` rows, as the producer announces it now.
    pub(crate) fn request(&mut self, id: &str, name: &str, rows: u32, local_input: bool) {
        let params = self.announce(name);
        self.request_with(id, name, rows, local_input, &params);
    }

    pub(crate) fn request_with(
        &mut self,
        id: &str,
        name: &str,
        rows: u32,
        local_input: bool,
        params: &Value,
    ) {
        let blocks = self.consumer.usage().total;
        self.request_of(id, vec![item(name, (rows, rows), local_input, params, blocks)]);
    }

    pub(crate) fn request_of(&mut self, id: &str, items: Vec<Item>) {
        self.counts.retain(|(known, _)| known != id);
        self.counts.push((id.into(), items.len()));
        self.consumer.track(self.now, id, items).expect("within the limits");
    }

    /// One step of the consumer's engine, `computed` tokens on.
    pub(crate) fn step_at(&mut self, id: &str, computed: u32) -> Decision {
        let (_, items) = self.counts.iter().find(|(known, _)| known == id).expect("a request");
        let decision = self.consumer.ensure(self.now, id, *items, computed).expect("tracked");
        self.settle();
        let failed = self.consumer.take_unavailable_requests();
        self.failed.extend(failed.iter().map(ToString::to_string));
        decision
    }

    pub(crate) fn step(&mut self, id: &str) -> Decision {
        self.step_at(id, 0)
    }

    /// Does what is to be done, and checks what always holds.
    pub(crate) fn settle(&mut self) {
        while let Some(action) = self.consumer.poll_action() {
            self.act(action);
        }
        while self.consumer.poll_event().is_some() {}
        self.consumer.cache().check().unwrap();
        self.producer.cache().check().unwrap();
    }

    fn act(&mut self, action: ConsumerAction) {
        match action {
            ConsumerAction::OpenLink(to) => self.consumer.link_up(self.now, &to),
            ConsumerAction::CloseLink(to, reason) => {
                self.consumer.link_down(self.now, &to, &reason);
            }
            ConsumerAction::Send(to, payload) => {
                if let Ok(request) = XferReq::decode(&payload) {
                    self.asked.push(request.mm_hash.to_owned());
                }
                if self.network == Network::Mute {
                    return;
                }
                let Some(answer) = self.producer.handle_request(self.now, PEER, &payload) else {
                    return;
                };
                let answer = answer.into_bytes();
                match &mut self.late {
                    Some(late) => late.push(answer),
                    None => self.consumer.receive(self.now, &to, &answer),
                }
            }
            ConsumerAction::StartRead(order) => {
                let token = order.token.expect("tcp has a token");
                let read = self.producer.open_stream(self.now, token);
                self.reading.push_back((order, read.map(|read| read.stream)));
                if self.network == Network::Fast {
                    self.land();
                }
            }
            ConsumerAction::AbortRead(transfer) => self.aborted.push(transfer),
        }
    }

    /// The oldest read's bytes are all there, and the plane has let go of its blocks.
    pub(crate) fn land(&mut self) {
        let (order, stream) = self.reading.pop_front().expect("a read under way");
        let digest = Some(DIGEST).filter(|_| order.digest);
        let end = match stream {
            Some(stream) => {
                self.producer.stream_ended(self.now, stream, true);
                ReadEnd::Landed { bytes: order.bytes, digest }
            }
            None => ReadEnd::Failed(FailureReason::Plane("the token opens nothing".into())),
        };
        self.consumer.read_ended(self.now, order.transfer, end);
        self.settle();
    }

    /// The consumer's control connection is lost, on both sides.
    pub(crate) fn lose_link(&mut self) {
        self.producer.peer_gone(self.now, PEER);
        self.consumer.link_down(self.now, &source(), &FailureReason::Lost("reset".into()));
        self.settle();
    }

    /// Lets time pass, from one deadline to the next.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let next = self.consumer.poll_timeout().min(self.producer.poll_timeout());
            if next > end {
                break;
            }
            self.now = next.max(self.now);
            self.consumer.handle_timeout(self.now);
            self.producer.handle_timeout(self.now);
            self.settle();
        }
        self.now = end;
    }

    pub(crate) fn finish(&mut self, id: &str) {
        self.consumer.finish(self.now, id);
        self.settle();
    }

    /// S4: nothing is held and nothing is under way, on either side.
    pub(crate) fn assert_at_rest(&self) {
        for instance in [&self.producer, &self.consumer] {
            assert_eq!(instance.producer().live_grants(), 0);
            assert_eq!(instance.consumer().live_transfers(), 0);
            assert!(!instance.cache().has_held_entries(), "{:?}", instance.usage());
        }
    }
}
