//! The consumer against a producer that sends anything at any time: what is published is what was
//! promised, a failure has its own transfer, and nothing is held when all is over.

use std::collections::BTreeMap;
use std::time::Duration;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::consumer::{
    Consumer, ConsumerAction, ConsumerConfig, FailureReason, ReadEnd, ReadOrder, TransferId, Wanted,
};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::extent::Extent;
use chiasm_core::host_hint::HostHint;
use chiasm_core::limits;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckExtension, AckStatus, XferAck, XferDone, XferReq};

use crate::input::Input;

const BLOCKS: u32 = 16;
const BLOCK_BYTES: u64 = 64;
const HOST: HostHint = HostHint([4; 16]);
const HASHES: &[&str] = &["h1", "h2", "h3"];

/// A request that went out.
#[derive(Clone, Debug)]
struct Sent {
    to: usize,
    hash: String,
    session: String,
    attempt: u32,
    at: Nanos,
}

struct World {
    cache: Cache,
    consumer: Consumer,
    now: Nanos,
    sources: [Endpoint; 2],
    started: Vec<TransferId>,
    /// Those that have not ended.
    open: Vec<TransferId>,
    sent: Vec<Sent>,
    reads: Vec<ReadOrder>,
    /// What was said to have landed of each read whose bytes are to be proven: none if too many.
    proven: BTreeMap<TransferId, Option<Digest>>,
}

/// A byte for the operation, then what it needs.
pub(crate) fn consumer(bytes: &[u8]) {
    let consumer = Consumer::new(ConsumerConfig {
        compat_hash: "same".into(),
        fingerprint: Some("ours".into()),
        epoch: 4,
        session: "00000000000000aa".into(),
        block_size_bytes: BLOCK_BYTES,
        planes: PlaneList::from_iter([Plane::Shm, Plane::Tcp]),
        host: Some(HOST),
        region: Some("chiasm-ours".into()),
        verify: true,
        ack_timeout: limits::ACK_TIMEOUT,
        read_timeout: limits::READ_TIMEOUT,
        lease_margin: limits::LEASE_MARGIN,
    });
    let sources = ["10.0.0.1:5601", "10.0.0.2:5601"];
    let mut world = World {
        cache: Cache::new(BLOCKS, EvictionPolicy::Fifo),
        consumer,
        now: Nanos::from_nanos(1),
        sources: sources.map(|text| Endpoint::parse(text).expect("an endpoint")),
        started: Vec::new(),
        open: Vec::new(),
        sent: Vec::new(),
        reads: Vec::new(),
        proven: BTreeMap::new(),
    };
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        world.step(&mut input);
        world.drain();
    }
    world.end();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(11) {
            0 | 1 => {
                let hash = MmHash::new(input.pick::<&str>(HASHES)).expect("short");
                let source = self.sources[input.below(2)].clone();
                let blocks = u32::from(input.byte() % 6);
                let dtype = input.flag().then_some(Dtype::Float32);
                let (rows, width) = (blocks, 16);
                let wanted = Wanted { hash, source, rows, width, blocks, dtype };
                let id = self.consumer.start(self.now, wanted);
                if !self.started.contains(&id) {
                    self.started.push(id);
                    self.open.push(id);
                }
            }
            2 => {
                let place = input.below(self.started.len().clamp(1, 256));
                if let Some(id) = self.started.get(place) {
                    self.consumer.cancel(*id, &mut self.cache);
                    self.open.retain(|open| open != id);
                }
            }
            3 => self.consumer.link_up(self.now, &self.sources[input.below(2)]),
            4 => {
                let source = &self.sources[input.below(2)];
                self.consumer.link_down(source, &FailureReason::Lost("reset".into()));
            }
            5 | 6 => self.answer(input),
            7 => {
                let (source, bytes) = (input.below(2), input.bytes(250));
                self.receive(source, bytes);
            }
            8 => self.end_read(input),
            9 => {
                let hash = MmHash::new(input.pick::<&str>(HASHES)).expect("short");
                let meta = chiasm_core::entry::EntryMeta::new(2, 16, Dtype::Float32);
                if let Ok(key) = self.cache.reserve(&hash, meta.expect("small"), 2) {
                    match input.below(3) {
                        0 => self.cache.mark_ready(key, None).expect("a save under way"),
                        1 => self.cache.quarantine(key).expect("a save under way"),
                        _ => self.cache.discard(key).expect("a save under way"),
                    }
                }
            }
            _ => {
                self.now = self.now.after(Duration::from_millis(u64::from(input.byte()) * 200));
                self.consumer.handle_timeout(self.now, &mut self.cache);
            }
        }
    }

    fn receive(&mut self, source: usize, bytes: &[u8]) {
        self.consumer.receive(self.now, &self.sources[source], bytes, &mut self.cache);
    }

    /// An answer to a request that went out, honest but for what the input says.
    fn answer(&mut self, input: &mut Input<'_>) {
        let place = input.below(self.sent.len().clamp(1, 256));
        let Some(sent) = self.sent.get(place).cloned() else { return };
        let (kind, twist) = (input.byte(), input.byte());
        let status = AckStatus::ALL[usize::from(kind >> 5) % AckStatus::ALL.len()];
        let blocks = u32::from(kind & 7) % 6;
        let shm = twist & 1 == 1;
        let mut extension = AckExtension {
            epoch: 9 + u64::from(twist >> 7),
            attempt: sent.attempt,
            plane: Some(if shm { Plane::Shm } else { Plane::Tcp }),
            token: (!shm).then_some([1; 16]),
            region: shm.then_some("chiasm-theirs"),
            extents: Extent::new(u32::from(twist) * 1000, blocks).into_iter().collect(),
            dtype: Some(Dtype::Float32),
            shape: Some((blocks, 16)),
            bytes: Some(BLOCK_BYTES * u64::from(blocks)),
            block_size_bytes: Some(BLOCK_BYTES),
            lease_ms: Some(30_000),
            digest: (kind & 8 == 8).then_some(Digest([7; 16])),
            ..AckExtension::default()
        };
        match twist >> 1 & 0x1f {
            1 => extension.attempt += 1,
            2 => extension.lease_ms = Some(input.size()),
            3 => extension.bytes = Some(input.size()),
            4 => extension.shape = Some((blocks, 15)),
            5 => extension.dtype = None,
            6 => extension.extents = vec![Extent::new(0, u32::MAX).expect("not empty"); 3],
            7 => extension.block_size_bytes = Some(input.size()),
            8 => extension.fingerprint = Some("theirs"),
            9 => extension.plane = Some(Plane::Nixl),
            _ => {}
        }
        let session_id = if twist >> 1 & 0x1f == 10 { "foreign" } else { sent.session.as_str() };
        let ack = XferAck {
            session_id,
            chiasm: (twist >> 1 & 0x1f != 11).then_some(extension),
            ..XferAck::bare(&sent.hash, status)
        };
        let source = if twist >> 1 & 0x1f == 12 { 1 - sent.to } else { sent.to };
        self.receive(source, &ack.encode());
    }

    fn end_read(&mut self, input: &mut Input<'_>) {
        if self.reads.is_empty() {
            return;
        }
        let order = self.reads.swap_remove(input.below(self.reads.len().min(256)));
        let kind = input.byte();
        let digest = match kind & 3 {
            0 => None,
            1 => Some(Digest([8; 16])),
            _ => Some(Digest([7; 16])),
        };
        let bytes = order.bytes + u64::from(kind & 0x30 == 0x30);
        let end = if kind & 0xc0 == 0xc0 {
            ReadEnd::Failed(FailureReason::Plane("reset".into()))
        } else {
            if order.digest {
                self.proven.insert(order.transfer, digest.filter(|_| bytes == order.bytes));
            }
            ReadEnd::Landed { bytes, digest }
        };
        self.consumer.read_ended(self.now, order.transfer, end.clone(), &mut self.cache);
        // A report for a transfer that reads nothing changes nothing.
        self.consumer.read_ended(self.now, order.transfer, end, &mut self.cache);
    }

    fn drain(&mut self) {
        while let Some(action) = self.consumer.poll_action() {
            match action {
                ConsumerAction::OpenLink(_) | ConsumerAction::AbortRead(_) => {}
                ConsumerAction::CloseLink(source, reason) => {
                    assert!(reason.to_string().len() < 2048);
                    self.consumer.link_down(&source, &reason);
                }
                ConsumerAction::Send(to, payload) => {
                    let to = self.sources.iter().position(|known| *known == to).expect("known");
                    if XferDone::decode(&payload).is_ok() {
                        continue;
                    }
                    let request = XferReq::decode(&payload).expect("our own request");
                    self.sent.push(Sent {
                        to,
                        hash: request.mm_hash.to_owned(),
                        session: request.session_id.to_owned(),
                        attempt: request.chiasm.expect("we are Chiasm").attempt,
                        at: self.now,
                    });
                }
                ConsumerAction::StartRead(order) => {
                    assert!(self.sent.iter().any(|sent| sent.at <= self.now), "never asked");
                    self.check_order(&order);
                    self.reads.push(order);
                }
            }
        }
        while self.consumer.poll_staged().is_some() {}
        while let Some(finished) = self.consumer.poll_finished() {
            let place = self.open.iter().position(|open| *open == finished.transfer);
            self.open.swap_remove(place.expect("each transfer ends once"));
            match finished.outcome {
                Ok(arrived) => {
                    let entry = self.cache.entry(arrived.entry).expect("published just now");
                    assert_eq!(entry.hash(), &finished.hash);
                    if let Some(landed) = self.proven.get(&finished.transfer) {
                        assert_eq!(*landed, Some(Digest([7; 16])), "wrong bytes are published");
                    }
                }
                Err(failure) => assert!(failure.reason.to_string().len() < 2048),
            }
        }
        self.cache.check().expect("the cache's own invariants");
    }

    /// A read goes into blocks that nobody else has, exactly as long as it was announced.
    fn check_order(&self, order: &ReadOrder) {
        let blocks: u32 = order.local.iter().map(|extent| extent.count()).sum();
        assert_eq!(order.bytes.div_ceil(BLOCK_BYTES), u64::from(blocks));
        for other in &self.reads {
            for (new, old) in
                order.local.iter().flat_map(|new| other.local.iter().map(move |old| (new, old)))
            {
                assert!(
                    new.end() <= old.first() || old.end() <= new.first(),
                    "two reads into one block"
                );
            }
        }
    }

    fn end(&mut self) {
        for source in self.sources.clone() {
            self.consumer.link_down(&source, &FailureReason::Lost("over".into()));
        }
        self.drain();
        while let Some(order) = self.reads.pop() {
            let end = ReadEnd::Failed(FailureReason::Plane("over".into()));
            self.consumer.read_ended(self.now, order.transfer, end, &mut self.cache);
            self.drain();
        }
        self.now = self.now.after(Duration::from_mins(10));
        self.consumer.handle_timeout(self.now, &mut self.cache);
        self.drain();
        for id in std::mem::take(&mut self.open) {
            self.consumer.cancel(id, &mut self.cache);
        }
        self.drain();
        assert_eq!((self.consumer.live_transfers(), self.reads.len()), (0, 0));
        assert_eq!(self.consumer.poll_timeout(), Nanos::NEVER);
    }
}
