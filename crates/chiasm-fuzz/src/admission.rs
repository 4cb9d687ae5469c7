//! A whole instance under any series of what an engine, its workers, its producers and the clock do:
//! no request is both admitted and failed, none waits past its budget, and nothing is held when all is
//! over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chiasm_core::admission::{AdmissionConfig, Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation, RemoteAnnouncement};
use chiasm_core::cache::EntryKey;
use chiasm_core::consumer::{ConsumerAction, ConsumerConfig, FailureReason, ReadEnd, ReadOrder};
use chiasm_core::digest::Digest;
use chiasm_core::dispatch::{Order, Outcome, QUARANTINE, Rank, RankSet, Report, SAVE_TIMEOUT};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::instance::{Instance, InstanceConfig};
use chiasm_core::limits;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{ProducerConfig, ProducerLimits};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckExtension, AckStatus, XferAck, XferDone, XferReq};

use crate::input::Input;

const BLOCKS: u32 = 8;
const BLOCK_BYTES: u64 = 64;
const WIDTH: u32 = 16;
const IDS: &[&str] = &["r1", "r2", "r3"];
/// Rows of each; all together are more than the region.
const HASHES: &[(&str, u32)] = &[("h1", 1), ("h2", 2), ("h3", 4), ("h4", 6)];
const SOURCES: &[&str] = &["10.0.0.1:5601", "10.0.0.2:5601", "10.0.0.3:5601"];
/// Items of a request, at most, and one.
const ITEMS: usize = 4;
const BUDGET: Duration = Duration::from_mins(1);

#[derive(Debug)]
struct Life {
    items: usize,
    failed: bool,
}

struct World {
    instance: Instance,
    now: Nanos,
    lives: BTreeMap<&'static str, Life>,
    questions: Vec<(Endpoint, Vec<u8>)>,
    reads: Vec<ReadOrder>,
    saves: Vec<EntryKey>,
    orders: Vec<Order>,
    contacted: BTreeSet<Endpoint>,
}

fn meta(rows: u32) -> EntryMeta {
    EntryMeta::new(rows, WIDTH, Dtype::Float32).expect("small")
}

fn rank(number: u8) -> Rank {
    Rank::new(u16::from(number % 3)).expect("one of sixteen")
}

fn source(place: usize) -> Endpoint {
    Endpoint::parse(SOURCES[place % SOURCES.len()]).expect("an endpoint")
}

fn instance() -> Instance {
    let planes = PlaneList::from_iter([Plane::Tcp]);
    Instance::new(InstanceConfig {
        blocks: BLOCKS,
        producer: ProducerConfig {
            compat_hash: "same".into(),
            fingerprint: None,
            epoch: 5,
            block_size_bytes: BLOCK_BYTES,
            lease: limits::UPSTREAM_LEASE,
            upstream_lease: limits::UPSTREAM_LEASE,
            planes,
            shm: None,
            limits: ProducerLimits::for_region(BLOCKS),
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
        // The third is never approved.
        allowed: Allowlist::parse(SOURCES[..2].iter().copied()).expect("endpoints"),
        seed: [3; 32],
    })
}

/// A byte for the operation, then what it needs.
pub(crate) fn admission(bytes: &[u8]) {
    let mut world = World {
        instance: instance(),
        now: Nanos::from_nanos(1),
        lives: BTreeMap::new(),
        questions: Vec::new(),
        reads: Vec::new(),
        saves: Vec::new(),
        orders: Vec::new(),
        contacted: BTreeSet::new(),
    };
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        world.step(&mut input);
        world.settle(&mut input);
    }
    world.end();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        let id = IDS[input.below(3)];
        match input.below(16) {
            0 | 1 => self.track(id, input),
            2..=4 => self.ensure(id, input),
            5 => {
                self.instance.finish(self.now, id);
                self.lives.remove(id);
            }
            6 => {
                let (name, _) = *input.pick(HASHES);
                self.instance.release(self.now, id, name);
            }
            7 | 8 => self.answer(input),
            9 => self.end_read(input),
            10 => {
                let reason = FailureReason::Lost("reset".into());
                self.instance.link_down(self.now, &source(input.below(2)), &reason);
            }
            11 => self.save(input),
            12 => self.order(input),
            13 => self.report(input),
            14 => {
                self.instance.worker_gone(self.now, rank(input.byte()));
            }
            _ => {
                let millis = u64::from(input.byte()) * u64::from(input.byte() % 8);
                self.pass(Duration::from_millis(millis * 10), input);
            }
        }
    }

    fn track(&mut self, id: &'static str, input: &mut Input<'_>) {
        let mut end = 0;
        let items: Vec<Item> = (0..input.below(ITEMS))
            .map(|_| {
                let (name, rows) = *input.pick(HASHES);
                end += rows;
                let kind = input.byte();
                let expected = Expectation {
                    rows: Some(rows),
                    width: Some(WIDTH),
                    dtype: Some(Dtype::Float32),
                    block_size_bytes: BLOCK_BYTES,
                    region_blocks: BLOCKS,
                };
                let from = source(usize::from(kind & 3));
                let mut offer = RemoteAnnouncement::of_entry(from, &meta(rows), BLOCK_BYTES);
                if let Some(offer) = offer.as_mut().filter(|_| kind & 0x30 == 0x30) {
                    offer.rows += 1;
                }
                let announced = match kind >> 6 {
                    0 => None,
                    1 => Some(Ok(Announcement::MetadataOnly)),
                    _ => offer.map(Announcement::Remote).map(Ok),
                };
                let hash = MmHash::new(name).expect("short");
                Item::new(hash, end, kind & 4 == 4, announced.as_ref(), &expected)
            })
            .collect();
        let count = items.len();
        let known = self.lives.contains_key(id);
        if self.instance.track(self.now, id, items).is_ok() && !known {
            let life = Life { items: count, failed: false };
            self.lives.insert(id, life);
        } else if let Some(life) = self.lives.get_mut(id) {
            // Tracking again only adds.
            life.items = life.items.max(count);
        }
    }

    fn ensure(&mut self, id: &'static str, input: &mut Input<'_>) {
        let Some(life) = self.lives.get_mut(id) else { return };
        let computed = u32::from(input.byte() & 1) * u32::from(input.byte() % 13);
        match self.instance.ensure(self.now, id, life.items, computed) {
            Some(Decision::Wait) => assert!(!life.failed, "{id} waits after it has failed"),
            Some(Decision::Ready | Decision::Fallback) => {
                assert!(!life.failed, "{id} is admitted after it has failed");
            }
            Some(Decision::Unavailable) => life.failed = true,
            None => {}
        }
    }

    /// The oldest question or another gets an answer of some kind.
    fn answer(&mut self, input: &mut Input<'_>) {
        if self.questions.is_empty() {
            return;
        }
        let place = input.below(self.questions.len().min(256));
        let kind = input.byte();
        let (to, payload) = self.questions[place].clone();
        if kind & 0x10 == 0 {
            self.questions.swap_remove(place);
        }
        let request = XferReq::decode(&payload).expect("our own request");
        let known = HASHES.iter().find(|(name, _)| *name == request.mm_hash);
        let (_, rows) = *known.expect("one of ours");
        let meta = meta(rows);
        let extension = AckExtension {
            epoch: 9,
            attempt: request.chiasm.expect("we are Chiasm").attempt,
            plane: Some(Plane::Tcp),
            token: Some([1; 16]),
            extents: Extent::new(3, rows).into_iter().collect(),
            dtype: meta.dtype,
            shape: Some((meta.rows, meta.width)),
            bytes: Some(meta.bytes),
            block_size_bytes: Some(BLOCK_BYTES),
            lease_ms: Some(30_000),
            digest: (kind & 8 == 8).then_some(Digest([7; 16])),
            ..AckExtension::default()
        };
        let status = match kind & 7 {
            7 => AckStatus::Missing,
            6 => AckStatus::NotReady,
            5 => AckStatus::Incompat,
            _ => AckStatus::Ok,
        };
        let ack = XferAck {
            session_id: request.session_id,
            chiasm: Some(extension),
            ..XferAck::bare(request.mm_hash, status)
        };
        let bytes = if kind & 0xe0 == 0xe0 { input.bytes(100).to_vec() } else { ack.encode() };
        self.instance.receive(self.now, &to, &bytes);
    }

    fn end_read(&mut self, input: &mut Input<'_>) {
        if self.reads.is_empty() {
            return;
        }
        let order = self.reads.swap_remove(input.below(self.reads.len().min(256)));
        let kind = input.byte();
        let end = match kind & 7 {
            0 => ReadEnd::Failed(FailureReason::Plane("reset".into())),
            1 => ReadEnd::Landed { bytes: order.bytes, digest: Some(Digest([8; 16])) },
            2 => ReadEnd::Landed { bytes: order.bytes - 1, digest: Some(Digest([7; 16])) },
            _ => ReadEnd::Landed { bytes: order.bytes, digest: Some(Digest([7; 16])) },
        };
        self.instance.read_ended(self.now, order.transfer, end);
    }

    /// A local save without a worker: begun, ended, given up; or an entry forgotten.
    fn save(&mut self, input: &mut Input<'_>) {
        let (name, rows) = *input.pick(HASHES);
        match input.below(4) {
            0 | 1 => {
                let hash = MmHash::new(name).expect("short");
                self.saves.extend(self.instance.reserve(&hash, meta(rows), rows));
            }
            2 => {
                let _ = self.instance.evict(name);
            }
            _ => {
                if let Some(key) = self.saves.pop() {
                    if input.flag() {
                        let digest = Some(Digest([7; 16]));
                        self.instance.mark_ready(self.now, key, digest).expect("a save under way");
                    } else {
                        self.instance.discard(self.now, key).expect("a save under way");
                    }
                }
            }
        }
    }

    fn order(&mut self, input: &mut Input<'_>) {
        let (name, rows) = *input.pick(HASHES);
        let kind = input.byte();
        let ordered = if kind & 1 == 0 {
            let hash = MmHash::new(name).expect("short");
            self.instance.dispatch_save(self.now, &hash, meta(rows), rows, rank(kind >> 1))
        } else {
            let ranks = RankSet::first(u16::from(kind >> 1) % 3 + 1).expect("up to sixteen");
            self.instance.dispatch_load(self.now, name, ranks)
        };
        self.orders.extend(ordered);
    }

    fn report(&mut self, input: &mut Input<'_>) {
        let place = input.below(self.orders.len().clamp(1, 256));
        let Some(order) = self.orders.get(place) else { return };
        let kind = input.byte();
        let outcome = if kind & 0x80 == 0 { Outcome::Done(None) } else { Outcome::Failed };
        let report = Report { rank: rank(kind), receipt: order.receipt(), outcome };
        self.instance.reported(self.now, &report);
    }

    /// From one deadline to the next.
    fn pass(&mut self, time: Duration, input: &mut Input<'_>) {
        let end = self.now.after(time);
        for _ in 0..10_000 {
            let next = self.instance.poll_timeout().max(self.now);
            if next > end {
                self.now = end;
                return;
            }
            self.now = next;
            self.instance.handle_timeout(self.now);
            self.settle(input);
        }
        panic!("ten thousand deadlines in {time:?}");
    }

    fn settle(&mut self, input: &mut Input<'_>) {
        while let Some(action) = self.instance.poll_action() {
            match action {
                ConsumerAction::OpenLink(to) => {
                    assert_ne!(to, source(2), "a producer that is not approved is contacted");
                    self.contacted.insert(to.clone());
                    if input.byte() % 8 == 7 {
                        self.instance.link_down(self.now, &to, &FailureReason::Refused);
                    } else {
                        self.instance.link_up(self.now, &to);
                    }
                }
                ConsumerAction::CloseLink(to, reason) => {
                    self.instance.link_down(self.now, &to, &reason);
                }
                ConsumerAction::Send(to, payload) => {
                    if XferDone::decode(&payload).is_err() {
                        self.questions.push((to, payload));
                    }
                }
                ConsumerAction::StartRead(order) => self.reads.push(order),
                ConsumerAction::AbortRead(transfer) => {
                    // A plane that lets go at once, or later.
                    let place = self.reads.iter().position(|order| order.transfer == transfer);
                    if let Some(place) = place.filter(|_| input.flag()) {
                        self.reads.swap_remove(place);
                        let end = ReadEnd::Failed(FailureReason::Plane("aborted".into()));
                        self.instance.read_ended(self.now, transfer, end);
                    }
                }
            }
        }
        while self.instance.poll_event().is_some() {}
        while self.instance.poll_dispatch_event().is_some() {}
        for failed in self.instance.take_unavailable_requests() {
            // Reported for a request that has ended, its id may be another's by now.
            if let Some(life) = self.lives.get_mut(&*failed) {
                life.failed = true;
            }
        }
        self.check();
    }

    fn check(&self) {
        self.instance.cache().check().expect("the cache's own invariants");
        self.instance.admission().check(self.instance.cache()).expect("admission's invariants");
        let usage = self.instance.usage();
        assert_eq!(usage.free + usage.live + usage.quarantined, usage.total);
        for order in &self.reads {
            for extent in &order.local {
                assert!(extent.end() <= BLOCKS);
            }
        }
    }

    /// S5 and S4: what waits is decided within its budget, and then nothing is held.
    fn end(&mut self) {
        let mut none = Input::new(&[]);
        for key in std::mem::take(&mut self.saves) {
            self.instance.discard(self.now, key).expect("a save under way");
        }
        self.settle(&mut none);
        // Everything is needed again, as after a preemption: each waits anew, for one budget at most.
        let ask = |world: &mut Self, id: &str| {
            let life = world.lives.get(id)?;
            let decided = world.instance.ensure(world.now, id, life.items, 0)?;
            world.settle(&mut Input::new(&[]));
            Some(decided)
        };
        for id in IDS {
            ask(self, id);
        }
        // What one had and waits for no more may be dropped for somebody older: then a clock of that
        // item's own begins. So each item is held to its budget, and a request to one for each.
        for _ in 0..ITEMS {
            self.pass(BUDGET + Duration::from_nanos(1), &mut none);
            for id in IDS {
                ask(self, id);
                for item in self.instance.report(self.now, id) {
                    assert!(item.waited <= BUDGET + Duration::from_nanos(1), "{id}: {item:?}");
                }
            }
        }
        for id in IDS {
            assert_ne!(ask(self, id), Some(Decision::Wait), "{id} waits past its budgets");
        }
        for id in IDS {
            self.instance.finish(self.now, id);
        }
        self.settle(&mut none);
        for number in 0..3 {
            self.instance.worker_gone(self.now, rank(number));
        }
        while let Some(order) = self.reads.pop() {
            let end = ReadEnd::Failed(FailureReason::Plane("over".into()));
            self.instance.read_ended(self.now, order.transfer, end);
            self.settle(&mut none);
        }
        self.pass(Duration::from_mins(3), &mut none);
        assert_eq!(self.instance.consumer().live_transfers(), 0);
        assert_eq!(self.instance.admission().tracked_requests(), 0);
        assert!(self.instance.dispatches().outstanding().is_empty());
        assert!(!self.instance.cache().has_held_entries(), "{:?}", self.instance.usage());
    }
}
