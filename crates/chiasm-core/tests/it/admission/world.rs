//! One consumer node in simulated time: real admission, consumer and cache, and producers that are
//! played by `producers`. They speak the wire's bytes; only their sockets and planes are fake.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use chiasm_core::admission::{
    Admission, AdmissionConfig, Decision, Event, Item, ItemReport, Reason, Verdict,
};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, AnnouncementError, Expectation, RemoteAnnouncement};
use chiasm_core::cache::{Cache, EntryKey, EvictionPolicy};
use chiasm_core::consumer::{Consumer, ConsumerConfig, FailureReason, ReadOrder, TransferId};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::time::Nanos;

use super::producers::{Manner, Question, digest_of};

/// One row is one block.
pub(super) const WIDTH: u32 = 8;
pub(super) const BLOCK: u64 = 16;
/// `connect_timeout_s`.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// One event loop's round.
pub(super) const NANO: Duration = Duration::from_nanos(1);

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
    pub(super) manners: BTreeMap<Endpoint, Manner>,
    /// Rows that each hash has at its producers.
    pub(super) rows: BTreeMap<String, u32>,
    known: BTreeMap<String, Known>,
    pub(super) black_holes: BTreeSet<(Nanos, Endpoint)>,
    pub(super) questions: VecDeque<Question>,
    pub(super) reads: BTreeMap<TransferId, ReadOrder>,
    pub(super) digests: BTreeMap<TransferId, Digest>,
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
            host: None,
            region: None,
            verify: true,
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
