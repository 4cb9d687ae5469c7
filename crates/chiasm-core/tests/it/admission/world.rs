//! One consumer node in simulated time: real admission, consumer and cache, and producers that are
//! played here. They speak the wire's bytes; only their sockets and planes are fake.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chiasm_core::admission::{
    Admission, AdmissionConfig, Decision, Event, Item, ItemReport, Reason, Verdict,
};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, AnnouncementError, Expectation, RemoteAnnouncement};
use chiasm_core::cache::{Cache, EntryKey, EvictionPolicy};
use chiasm_core::consumer::{
    Consumer, ConsumerAction, ConsumerConfig, FailureReason, ReadEnd, ReadOrder, TransferId,
};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckExtension, AckStatus, XferAck, XferReq};

/// One row is one block.
pub(super) const WIDTH: u32 = 8;
pub(super) const BLOCK: u64 = 16;
/// `connect_timeout_s`.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// One event loop's round.
pub(super) const NANO: Duration = Duration::from_nanos(1);

/// How a fake producer behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Grants, and its bytes land at once.
    Healthy,
    /// Grants; bytes land when the test says so.
    Slow,
    /// Answers when the test says so.
    Asked,
    /// Nobody listens.
    Refuses,
    /// Connecting leads nowhere.
    BlackHole,
    /// Accepts connections and says nothing.
    Silent,
    /// Answers with this.
    Nacks(AckStatus),
    /// Grants; the bytes are not those that it promised.
    WrongBytes,
    /// Grants, healthy, but holds other bytes than everybody else.
    OtherBytes,
    /// Grants; the plane fails.
    NoBytes,
}

#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) source: Endpoint,
    pub(super) hash: String,
    session: String,
    attempt: u32,
}

/// A request as the engine knows it.
#[derive(Clone, Debug, Default)]
struct Known {
    items: Vec<Item>,
    computed: u32,
}

pub(super) struct World {
    pub(super) now: Nanos,
    pub(super) cache: Cache,
    pub(super) consumer: Consumer,
    pub(super) admission: Admission,
    manners: BTreeMap<Endpoint, Manner>,
    /// Rows that each hash has at its producers.
    rows: BTreeMap<String, u32>,
    known: BTreeMap<String, Known>,
    black_holes: BTreeSet<(Nanos, Endpoint)>,
    pub(super) questions: VecDeque<Question>,
    pub(super) reads: BTreeMap<TransferId, ReadOrder>,
    digests: BTreeMap<TransferId, Digest>,
    /// Every connection that was asked for.
    pub(super) contacts: Vec<Endpoint>,
    /// Every request that was sent, and when.
    pub(super) sent: Vec<(Nanos, String, String)>,
    pub(super) events: Vec<Event>,
    pub(super) failed: Vec<String>,
    pub(super) aborted: usize,
}

pub(super) fn endpoint(text: &str) -> Endpoint {
    Endpoint::parse(text).unwrap()
}

/// The producer that tests call by one letter.
pub(super) fn producer(name: &str) -> Endpoint {
    endpoint(&format!("{name}.example:5601"))
}

pub(super) fn hash(name: &str) -> MmHash {
    MmHash::new(name).unwrap()
}

pub(super) fn meta(rows: u32) -> EntryMeta {
    EntryMeta::new(rows, WIDTH, Dtype::Bfloat16).unwrap()
}

fn digest_of(hash: &str) -> Digest {
    let mut digest = [0; 16];
    for (at, byte) in hash.bytes().take(16).enumerate() {
        digest[at] = byte;
    }
    Digest(digest)
}

impl World {
    /// A region of `blocks`, default configuration, producers `p`, `q` and `r` approved.
    pub(super) fn new(blocks: u32) -> Self {
        Self::with(blocks, AdmissionConfig::default())
    }

    pub(super) fn with(blocks: u32, config: AdmissionConfig) -> Self {
        let allowed = ["p.example:5601", "q.example:5601", "r.example:5601"];
        let consumer = Consumer::new(ConsumerConfig {
            compat_hash: "compat".into(),
            fingerprint: None,
            epoch: 7,
            session: "session".into(),
            block_size_bytes: BLOCK,
            planes: [Plane::Tcp].into_iter().collect::<PlaneList>(),
            ack_timeout: chiasm_core::limits::ACK_TIMEOUT,
            read_timeout: chiasm_core::limits::READ_TIMEOUT,
            lease_margin: chiasm_core::limits::LEASE_MARGIN,
        });
        Self {
            now: Nanos::from_nanos(1_000_000_000),
            cache: Cache::new(blocks, EvictionPolicy::Fifo),
            consumer,
            admission: Admission::new(config, Allowlist::parse(allowed).unwrap(), [3; 32]),
            manners: BTreeMap::new(),
            rows: BTreeMap::new(),
            known: BTreeMap::new(),
            black_holes: BTreeSet::new(),
            questions: VecDeque::new(),
            reads: BTreeMap::new(),
            digests: BTreeMap::new(),
            contacts: Vec::new(),
            sent: Vec::new(),
            events: Vec::new(),
            failed: Vec::new(),
            aborted: 0,
        }
    }

    pub(super) fn set(&mut self, name: &str, manner: Manner) {
        let source = producer(name);
        let goes_away = matches!(manner, Manner::Refuses | Manner::BlackHole);
        if self.manners.insert(source.clone(), manner) != Some(manner) && goes_away {
            self.questions.retain(|question| question.source != source);
            self.consumer.link_down(&source, &FailureReason::Lost("reset".into()));
            self.settle();
        }
    }

    /// Every manner, and everything that is still open, ends well from now on.
    pub(super) fn heal(&mut self) {
        for name in ["p", "q", "r"] {
            self.manners.insert(producer(name), Manner::Healthy);
        }
        for question in std::mem::take(&mut self.questions) {
            self.grant(&question, digest_of(&question.hash));
        }
        let reads: Vec<_> = self.reads.keys().copied().collect();
        for transfer in reads {
            self.land(transfer);
        }
    }

    fn manner(&self, source: &Endpoint) -> Manner {
        self.manners.get(source).copied().unwrap_or(Manner::Healthy)
    }

    pub(super) fn expected(&self, rows: u32) -> Expectation {
        Expectation {
            rows: Some(rows),
            width: Some(WIDTH),
            dtype: Some(Dtype::Bfloat16),
            block_size_bytes: BLOCK,
            region_blocks: self.cache.usage().total,
        }
    }

    /// An item of `rows` rows that producer `from` offers; its tokens end at `end`.
    pub(super) fn item(&mut self, name: &str, from: &str, rows: u32, end: u32) -> Item {
        self.rows.insert(name.into(), rows);
        let offer = RemoteAnnouncement::of_entry(producer(from), &meta(rows), BLOCK).unwrap();
        self.announced(name, rows, end, Some(&Ok(Announcement::Remote(offer))))
    }

    pub(super) fn announced(
        &mut self,
        name: &str,
        rows: u32,
        end: u32,
        announcement: Option<&Result<Announcement, AnnouncementError>>,
    ) -> Item {
        Item::new(hash(name), end, false, announcement, &self.expected(rows))
    }

    /// The engine sees a request with these items; `pixels` says whether it could encode them.
    pub(super) fn request(&mut self, id: &str, pixels: bool, items: &[(&str, &str, u32)]) {
        let mut end = 0;
        let mut tracked = Vec::new();
        for (name, from, rows) in items {
            end += rows;
            let item = self.item(name, from, *rows, end);
            tracked.push(Item { local_input: pixels, ..item });
        }
        self.request_of(id, tracked);
    }

    pub(super) fn request_of(&mut self, id: &str, items: Vec<Item>) {
        let known = Known { items: items.clone(), computed: 0 };
        self.known.insert(id.into(), known);
        self.admission
            .track(self.now, id, items, &mut self.cache, &mut self.consumer)
            .expect("within the limits");
        self.settle();
    }

    /// One engine step's question.
    pub(super) fn ensure(&mut self, id: &str) -> Decision {
        let known = &self.known[id];
        let (items, computed) = (known.items.len(), known.computed);
        let decision = self
            .admission
            .ensure(self.now, id, items, computed, &mut self.cache, &mut self.consumer)
            .expect("the request is tracked");
        self.settle();
        decision
    }

    pub(super) fn compute(&mut self, id: &str, tokens: u32) {
        self.known.get_mut(id).unwrap().computed = tokens;
    }

    pub(super) fn finish(&mut self, id: &str) {
        self.known.remove(id);
        self.admission.finish(self.now, id, &mut self.cache, &mut self.consumer);
        self.settle();
    }

    pub(super) fn release(&mut self, id: &str, name: &str) {
        self.admission.release(self.now, id, name, &mut self.cache, &mut self.consumer);
        self.settle();
    }

    pub(super) fn allow(&mut self, entries: &[&str]) {
        let list = Allowlist::parse(entries.iter().copied()).unwrap();
        self.admission.set_allowlist(self.now, list, &mut self.cache, &mut self.consumer);
        self.settle();
    }

    /// A local save: begun, and ready at once if so.
    pub(super) fn save(&mut self, name: &str, rows: u32, ready: bool) -> EntryKey {
        let entry = self.cache.reserve(&hash(name), meta(rows), rows).unwrap();
        if ready {
            self.saved(entry, name);
        }
        entry
    }

    pub(super) fn saved(&mut self, entry: EntryKey, name: &str) {
        self.cache.mark_ready(entry, Some(digest_of(name))).unwrap();
        self.changed(name);
    }

    pub(super) fn changed(&mut self, name: &str) {
        let name = hash(name);
        self.admission.entry_changed(self.now, &name, &mut self.cache, &mut self.consumer);
        self.settle();
    }

    /// The first unanswered request for `name` is granted.
    pub(super) fn agree(&mut self, name: &str) {
        let place = self.questions.iter().position(|question| question.hash == name);
        let question = self.questions.remove(place.expect("it was asked for")).unwrap();
        self.grant(&question, digest_of(name));
    }

    pub(super) fn reading(&self, name: &str, from: &str) -> Option<TransferId> {
        let (source, digest) = (producer(from), digest_of(name));
        let found = self
            .reads
            .iter()
            .find(|(id, order)| order.source == source && self.digests.get(*id) == Some(&digest));
        found.map(|(id, _)| *id)
    }

    /// All bytes of the read land.
    pub(super) fn land(&mut self, transfer: TransferId) {
        let digest = self.digests.get(&transfer).copied();
        self.end_read(transfer, digest);
    }

    pub(super) fn end_read(&mut self, transfer: TransferId, digest: Option<Digest>) {
        let Some(order) = self.reads.remove(&transfer) else { return };
        let end = ReadEnd::Landed { bytes: order.bytes, digest };
        self.consumer.read_ended(self.now, transfer, end, &mut self.cache);
        self.settle();
    }

    pub(super) fn answer(&mut self, question: &Question, status: AckStatus) {
        let ack = XferAck {
            mm_hash: &question.hash,
            status,
            session_id: "",
            src_block_indices: Vec::new(),
            agent_metadata: &[],
            mem_descriptor: &[],
            chiasm: Some(AckExtension { attempt: question.attempt, ..AckExtension::default() }),
        };
        let payload = ack.encode();
        self.consumer.receive(self.now, &question.source, &payload, &mut self.cache);
        self.settle();
    }

    fn grant(&mut self, question: &Question, digest: Digest) {
        let meta = meta(self.rows[&question.hash]);
        let extension = AckExtension {
            attempt: question.attempt,
            plane: Some(Plane::Tcp),
            token: Some([5; 16]),
            extents: Extent::new(0, meta.rows).into_iter().collect(),
            dtype: meta.dtype,
            shape: Some((meta.rows, meta.width)),
            bytes: Some(meta.bytes),
            block_size_bytes: Some(BLOCK),
            lease_ms: Some(30_000),
            digest: Some(digest),
            ..AckExtension::default()
        };
        let ack = XferAck {
            mm_hash: &question.hash,
            status: AckStatus::Ok,
            session_id: &question.session,
            src_block_indices: Vec::new(),
            agent_metadata: &[],
            mem_descriptor: &[],
            chiasm: Some(extension),
        };
        let payload = ack.encode();
        self.consumer.receive(self.now, &question.source, &payload, &mut self.cache);
        // The order for the read comes next, if there is room.
        let mut rest = VecDeque::new();
        while let Some(action) = self.consumer.poll_action() {
            if let ConsumerAction::StartRead(order) = &action {
                self.digests.insert(order.transfer, digest);
            }
            rest.push_back(action);
        }
        self.admission.advance(self.now, &mut self.cache, &mut self.consumer);
        for action in rest {
            self.act(action);
        }
        self.settle();
    }

    fn act(&mut self, action: ConsumerAction) {
        match action {
            ConsumerAction::OpenLink(source) => {
                self.contacts.push(source.clone());
                match self.manner(&source) {
                    Manner::Refuses => {
                        self.consumer.link_down(&source, &FailureReason::Refused);
                    }
                    Manner::BlackHole => {
                        self.black_holes.insert((self.now.after(CONNECT_TIMEOUT), source));
                    }
                    _ => self.consumer.link_up(self.now, &source),
                }
            }
            ConsumerAction::CloseLink(source, reason) => {
                self.consumer.link_down(&source, &reason);
            }
            ConsumerAction::Send(source, payload) => self.asked(&source, &payload),
            ConsumerAction::StartRead(order) => {
                let transfer = order.transfer;
                let manner = self.manner(&order.source);
                self.reads.insert(transfer, order);
                match manner {
                    Manner::Healthy | Manner::OtherBytes => self.land(transfer),
                    Manner::WrongBytes => self.end_read(transfer, Some(Digest([0xBD; 16]))),
                    Manner::NoBytes => self.fail_read(transfer),
                    _ => {}
                }
            }
            ConsumerAction::AbortRead(transfer) => {
                self.aborted += 1;
                self.fail_read(transfer);
            }
        }
    }

    pub(super) fn fail_read(&mut self, transfer: TransferId) {
        if self.reads.remove(&transfer).is_some() {
            let end = ReadEnd::Failed(FailureReason::Plane("the stream broke".into()));
            self.consumer.read_ended(self.now, transfer, end, &mut self.cache);
        }
    }

    fn asked(&mut self, source: &Endpoint, payload: &[u8]) {
        let request = XferReq::decode(payload).expect("our own request");
        let question = Question {
            source: source.clone(),
            hash: request.mm_hash.into(),
            session: request.session_id.into(),
            attempt: request.chiasm.expect("we are Chiasm").attempt,
        };
        self.sent.push((self.now, source.to_string(), question.hash.clone()));
        match self.manner(source) {
            Manner::Healthy | Manner::Slow | Manner::WrongBytes | Manner::NoBytes => {
                self.grant(&question, digest_of(&question.hash));
            }
            Manner::OtherBytes => self.grant(&question, Digest([0xEE; 16])),
            Manner::Nacks(status) => self.answer(&question, status),
            Manner::Silent | Manner::Refuses | Manner::BlackHole => {}
            Manner::Asked => self.questions.push_back(question),
        }
    }

    /// Does everything that is to be done now, and checks what must always hold.
    pub(super) fn settle(&mut self) {
        loop {
            self.admission.advance(self.now, &mut self.cache, &mut self.consumer);
            match self.consumer.poll_action() {
                Some(action) => self.act(action),
                None => break,
            }
        }
        self.admission.advance(self.now, &mut self.cache, &mut self.consumer);
        while let Some(event) = self.admission.poll_event() {
            self.events.push(event);
        }
        self.failed
            .extend(self.admission.take_unavailable_requests().iter().map(ToString::to_string));
        self.admission.check(&self.cache).unwrap();
        self.cache.check().unwrap();
    }

    /// Lets time pass, from one deadline to the next.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let connects = self.black_holes.first().map_or(Nanos::NEVER, |(at, _)| *at);
            let next = self
                .admission
                .poll_timeout()
                .min(self.consumer.poll_timeout())
                .min(connects)
                .max(self.now);
            if next > end {
                break;
            }
            self.now = next;
            if connects <= self.now
                && let Some((_, source)) = self.black_holes.pop_first()
            {
                let reason = FailureReason::Unreachable("timed out".into());
                self.consumer.link_down(&source, &reason);
            }
            self.consumer.handle_timeout(self.now, &mut self.cache);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    /// Steps of `step` until the request is not waiting any more, at most `most` of them.
    pub(super) fn run_until_decided(&mut self, id: &str, step: Duration, most: usize) -> Decision {
        for _ in 0..most {
            let decision = self.ensure(id);
            if decision != Decision::Wait {
                return decision;
            }
            self.pass(step);
        }
        self.ensure(id)
    }

    pub(super) fn report(&self, id: &str) -> Vec<ItemReport<'_>> {
        self.admission.report(self.now, id).collect()
    }

    pub(super) fn verdict(&self, id: &str) -> (Verdict, Option<Reason>) {
        let report = self.report(id);
        (report[0].verdict, report[0].reason.cloned())
    }

    /// S4 at rest: nothing is held, nothing is under way.
    pub(super) fn assert_at_rest(&self) {
        assert_eq!(self.admission.tracked_requests(), 0);
        assert_eq!(self.admission.live_reads(), 0);
        assert_eq!(self.admission.live_transfers(), 0);
        assert_eq!(self.admission.reserved_blocks(), 0);
        assert_eq!(self.consumer.live_transfers(), 0);
        assert!(!self.cache.has_held_entries(), "{:?}", self.cache.usage());
    }
}
