//! Tiny worlds, random and exhaustive histories: three requests, three hashes, two producers and a
//! region of six blocks. A naive model keeps what every history must show.
//!
//! The model knows nothing of reads, queues, pauses or breakers. It knows what each producer has done
//! to whom, who has been promised what, and since when a request waits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chiasm_core::admission::{Decision, Event, Item, Reason, Verdict};
use chiasm_core::cache::EntryKey;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::time::Nanos;
use chiasm_core::wire::AckStatus;
use proptest::prelude::*;

use super::producers::Manner;
use super::world::{NANO, World, producer};

const REGION: u32 = 6;
const BUDGET: Duration = Duration::from_mins(1);
const IDS: [&str; 3] = ["r0", "r1", "r2"];
/// Rows of each hash. All three together are more than the region.
const HASHES: [(&str, u32); 3] = [("h1", 1), ("h2", 2), ("h4", 4)];
const PRODUCERS: [&str; 2] = ["p", "q"];

const MANNERS: [Manner; 11] = [
    Manner::Healthy,
    Manner::Slow,
    Manner::Asked,
    Manner::Refuses,
    Manner::BlackHole,
    Manner::Silent,
    Manner::Nacks(AckStatus::Missing),
    Manner::Nacks(AckStatus::NotReady),
    Manner::WrongBytes,
    Manner::OtherBytes,
    Manner::NoBytes,
];

#[derive(Clone, Debug)]
enum Op {
    /// A request whose items are (hash, producer) by index.
    Request {
        id: usize,
        pixels: bool,
        items: Vec<(usize, usize)>,
    },
    Ensure(usize),
    /// This many of its items are computed.
    Compute(usize, usize),
    Finish(usize),
    Release(usize, usize),
    Pass(u64),
    Manner(usize, usize),
    /// The oldest unanswered request, by producer's choice.
    Agree,
    Nack,
    /// The oldest read that is under way.
    Land,
    BreakRead,
    BeginSave(usize),
    EndSave {
        ready: bool,
    },
    /// Somebody else's pin on an entry comes or goes.
    Load(usize),
    Loaded,
    Allow {
        both: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..IDS.len();
    let hash = 0..HASHES.len();
    let items = proptest::collection::vec((hash.clone(), 0..PRODUCERS.len()), 1..4);
    prop_oneof![
        4 => (id.clone(), any::<bool>(), items)
            .prop_map(|(id, pixels, items)| Op::Request { id, pixels, items }),
        8 => id.clone().prop_map(Op::Ensure),
        2 => (id.clone(), 0..4_usize).prop_map(|(id, items)| Op::Compute(id, items)),
        2 => id.clone().prop_map(Op::Finish),
        1 => (id, hash.clone()).prop_map(|(id, hash)| Op::Release(id, hash)),
        4 => prop_oneof![Just(1), Just(80), Just(1_500), Just(11_000), Just(31_000), Just(60_000)]
            .prop_map(Op::Pass),
        4 => (0..PRODUCERS.len(), 0..MANNERS.len()).prop_map(|(it, manner)| Op::Manner(it, manner)),
        2 => Just(Op::Agree),
        1 => Just(Op::Nack),
        3 => Just(Op::Land),
        1 => Just(Op::BreakRead),
        1 => hash.clone().prop_map(Op::BeginSave),
        1 => any::<bool>().prop_map(|ready| Op::EndSave { ready }),
        1 => hash.prop_map(Op::Load),
        1 => Just(Op::Loaded),
        1 => any::<bool>().prop_map(|both| Op::Allow { both }),
    ]
}

/// What the model knows of a live request.
#[derive(Default)]
struct Life {
    born: Nanos,
    /// Distinct hashes with their producer and the end of their tokens.
    items: BTreeMap<&'static str, (&'static str, u32)>,
    pixels: bool,
    computed: u32,
    waits_since: Option<Nanos>,
    failed: bool,
    reported: bool,
    /// What it has been promised.
    promised: BTreeSet<EntryKey>,
}

struct Model {
    world: World,
    lives: BTreeMap<&'static str, Life>,
    saves: Vec<(EntryKey, &'static str)>,
    loads: Vec<EntryKey>,
    /// Who has ever done what to whom: final answers, wrong bytes, and being away.
    refused_hash: Vec<(Nanos, Endpoint, String)>,
    was_down: BTreeSet<Endpoint>,
    was_forbidden: bool,
    seen_events: usize,
    seen_failed: usize,
}

impl Model {
    fn new() -> Self {
        Self {
            world: World::new(REGION),
            lives: BTreeMap::new(),
            saves: Vec::new(),
            loads: Vec::new(),
            refused_hash: Vec::new(),
            was_down: BTreeSet::new(),
            was_forbidden: false,
            seen_events: 0,
            seen_failed: 0,
        }
    }

    fn run(ops: &[Op]) {
        let mut model = Self::new();
        for op in ops {
            model.apply(op);
            model.check();
        }
        model.faults_stop();
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn apply(&mut self, op: &Op) {
        let world = &mut self.world;
        match op {
            Op::Request { id, pixels, items } => {
                let id = IDS[*id];
                if self.lives.contains_key(id) {
                    return;
                }
                let mut life = Life { born: world.now, pixels: *pixels, ..Life::default() };
                let mut end = 0;
                let mut tracked: Vec<Item> = Vec::new();
                for (hash, from) in items {
                    let (name, rows) = HASHES[*hash];
                    end += rows;
                    let from = PRODUCERS[*from];
                    life.items.entry(name).or_insert((from, end)).1 = end;
                    let item = world.item(name, from, rows, end);
                    tracked.push(Item { local_input: *pixels, ..item });
                }
                self.lives.insert(id, life);
                world.request_of(id, tracked);
            }
            Op::Ensure(id) => self.ensure(IDS[*id]),
            Op::Compute(id, items) => {
                let Some(life) = self.lives.get_mut(IDS[*id]) else { return };
                let mut ends: Vec<_> = life.items.values().map(|(_, end)| *end).collect();
                ends.insert(0, 0);
                ends.sort_unstable();
                life.computed = ends[(*items).min(ends.len() - 1)];
                world.compute(IDS[*id], life.computed);
                self.ensure(IDS[*id]);
            }
            Op::Finish(id) => {
                if self.lives.remove(IDS[*id]).is_some() {
                    world.finish(IDS[*id]);
                }
            }
            Op::Release(id, hash) => {
                let Some(life) = self.lives.get_mut(IDS[*id]) else { return };
                if life.items.contains_key(HASHES[*hash].0) {
                    life.promised.clear();
                    world.release(IDS[*id], HASHES[*hash].0);
                    self.ensure(IDS[*id]);
                }
            }
            Op::Pass(millis) => world.pass(Duration::from_millis(*millis)),
            Op::Manner(index, manner) => {
                let name = PRODUCERS[*index];
                let manner = MANNERS[*manner];
                // One that does not answer by itself may be taken to be down.
                if !matches!(manner, Manner::Healthy | Manner::Slow) {
                    self.was_down.insert(producer(name));
                    for (hash, _) in HASHES {
                        self.refused_hash.push((Nanos::NEVER, producer(name), hash.into()));
                    }
                }
                world.set(name, manner);
            }
            Op::Agree => {
                if let Some(question) = world.questions.front() {
                    let name = question.hash.clone();
                    world.agree(&name);
                }
            }
            Op::Nack => {
                if let Some(question) = world.questions.pop_front() {
                    let blame = (world.now, question.source.clone(), question.hash.clone());
                    self.refused_hash.push(blame);
                    world.answer(&question, AckStatus::Missing);
                }
            }
            Op::Land => {
                if let Some(transfer) = world.reads.keys().next().copied() {
                    world.land(transfer);
                }
            }
            Op::BreakRead => {
                if let Some(transfer) = world.reads.keys().next().copied() {
                    world.fail_read(transfer);
                    world.settle();
                }
            }
            Op::BeginSave(hash) => {
                let (name, rows) = HASHES[*hash];
                let meta = super::world::meta(rows);
                if let Ok(entry) = world.cache.reserve(&super::world::hash(name), meta, rows) {
                    self.saves.push((entry, name));
                }
            }
            Op::EndSave { ready } => self.end_save(*ready),
            Op::Load(hash) => {
                let found = world.cache.find(HASHES[*hash].0).map(|(entry, _)| entry);
                if let Some(entry) = found.filter(|entry| world.cache.pin(*entry).is_ok()) {
                    self.loads.push(entry);
                }
            }
            Op::Loaded => {
                if let Some(entry) = self.loads.pop() {
                    world.cache.unpin(entry).unwrap();
                    world.settle();
                }
            }
            Op::Allow { both } => {
                self.was_forbidden |= !both;
                let list: &[&str] =
                    if *both { &["p.example:5601", "q.example:5601"] } else { &["p.example:5601"] };
                world.allow(list);
            }
        }
    }

    fn end_save(&mut self, ready: bool) {
        let Some((entry, name)) = self.saves.pop() else { return };
        if ready {
            self.world.saved(entry, name);
        } else {
            self.world.cache.discard(entry).unwrap();
            self.world.changed(name);
        }
    }

    /// One engine step for one request, and whether the answer is one that may be given.
    fn ensure(&mut self, id: &'static str) {
        let Some(life) = self.lives.get_mut(id) else { return };
        life.promised.clear();
        let failed = life.failed;
        let decision = self.world.ensure(id);
        assert!(!failed || decision == Decision::Unavailable, "{id} failed and is {decision:?}");
        self.check();
        let Some(life) = self.lives.get_mut(id) else { return };
        match decision {
            Decision::Wait => {
                life.waits_since.get_or_insert(self.world.now);
            }
            Decision::Unavailable => life.failed = true,
            Decision::Ready | Decision::Fallback => {
                life.waits_since = None;
                for item in self.world.report(id) {
                    let (_, end) = life.items[item.hash.as_str()];
                    if end <= life.computed {
                        continue;
                    }
                    match item.verdict {
                        Verdict::Ready => {
                            let entry = item.entry.expect("ready is pinned");
                            life.promised.insert(entry);
                            let promised = self.world.admission.promised(item.hash.as_str());
                            assert_eq!(promised, Some(entry));
                        }
                        Verdict::Fallback => {
                            assert!(life.pixels, "{id} cannot encode {}", item.hash);
                            assert_eq!(decision, Decision::Fallback);
                        }
                        other => panic!("{id} may run, but {} is {other:?}", item.hash),
                    }
                }
            }
        }
    }

    /// What must hold after every operation.
    fn check(&mut self) {
        for (id, life) in &self.lives {
            for entry in &life.promised {
                let kept = self.world.cache.entry(*entry);
                assert!(kept.is_some_and(|entry| entry.pins() > 0), "{id} was promised {entry}");
            }
            for item in self.world.report(id) {
                assert!(
                    item.verdict != Verdict::Waiting || item.waited <= BUDGET,
                    "{id} waits {:?} for {}",
                    item.waited,
                    item.hash
                );
            }
        }
        // Each failure once, and of a live request.
        for id in &self.world.failed[self.seen_failed..] {
            let life = self.lives.get_mut(id.as_str()).expect("a live request");
            assert!(!life.reported, "{id} is reported twice");
            (life.reported, life.failed) = (true, true);
        }
        self.seen_failed = self.world.failed.len();
        for (id, life) in &self.lives {
            assert_eq!(life.failed, life.reported, "{id} is failed and not reported, or not both");
        }
        for event in &self.world.events[self.seen_events..] {
            match event {
                Event::Failed { request, hash, reason, .. } => {
                    let hash = hash.as_ref().expect("for an item").as_str();
                    self.judge(request, hash, reason, false);
                }
                Event::FellBack { request, hash, reason, .. } => {
                    self.judge(request, hash.as_str(), reason, true);
                }
                _ => {}
            }
        }
        self.seen_events = self.world.events.len();
    }

    /// Whether a request fell back or failed for something that its own source did, or for itself.
    fn judge(&self, id: &str, hash: &str, reason: &Reason, fell_back: bool) {
        let Some(life) = self.lives.get(id) else { return };
        let (from, _) = life.items[hash];
        assert_eq!(life.pixels, fell_back, "{id} {hash}: {reason}");
        let source = producer(from);
        let just = match reason {
            Reason::Transfer(_) => self
                .refused_hash
                .iter()
                .any(|(at, blamed, name)| *at >= life.born && *blamed == source && name == hash),
            Reason::ProducerDown { .. } => self.was_down.contains(&source),
            Reason::BudgetSpent { .. } => {
                life.waits_since.is_some_and(|since| self.world.now.since(since) > BUDGET)
            }
            Reason::NeverFits { needed, region } => {
                let uncomputed = life.items.iter().filter(|(_, (_, end))| *end > life.computed);
                let rows: u32 = uncomputed
                    .filter_map(|(name, _)| HASHES.iter().find(|it| it.0 == *name))
                    .map(|(_, rows)| rows)
                    .sum();
                *region == REGION && *needed > 6 && rows > REGION
            }
            Reason::Refused(refusal) => self.was_forbidden && refusal.endpoint == source,
            Reason::NowhereToBeHad
            | Reason::Invalid(_)
            | Reason::OtherForm { .. }
            | Reason::TooMany { .. } => false,
        };
        assert!(just, "{id} {hash} is charged with what is not its own: {reason}");
    }

    /// S5 and S4: when the faults stop, everybody is decided within the budget and one tick, and when
    /// all have gone nothing is left.
    fn faults_stop(&mut self) {
        while let Some(entry) = self.loads.pop() {
            self.world.cache.unpin(entry).unwrap();
        }
        while !self.saves.is_empty() {
            self.end_save(true);
        }
        self.world.heal();
        self.world.settle();
        let end = self.world.now.after(BUDGET).after(NANO);
        while self.world.now < end {
            for id in IDS {
                self.ensure(id);
                self.check();
                // Whoever may run does so, and needs nothing any more.
                if let Some(life) = self.lives.get_mut(id)
                    && !life.failed
                    && life.waits_since.is_none()
                {
                    life.computed = 100;
                    self.world.compute(id, 100);
                    self.ensure(id);
                }
                self.check();
            }
            let rest = end.since(self.world.now);
            self.world.pass(rest.min(Duration::from_secs(5)));
        }
        for id in IDS {
            self.ensure(id);
            let life = self.lives.get(id);
            let waits = life.is_some_and(|life| !life.failed && life.waits_since.is_some());
            assert!(!waits, "{id} still waits: {:?}", self.world.report(id));
        }
        self.check();
        for id in IDS {
            if self.lives.remove(id).is_some() {
                self.world.finish(id);
            }
        }
        self.world.pass(Duration::from_secs(31));
        self.world.assert_at_rest();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_promises(ops in proptest::collection::vec(op(), 1..60)) {
        Model::run(&ops);
    }
}

/// Two requests, one hash, two producers: every history of five operations.
#[test]
fn every_short_history_of_one_hash_and_two_sources() {
    let alphabet = [
        Op::Ensure(0),
        Op::Ensure(1),
        Op::Finish(0),
        Op::Agree,
        Op::Nack,
        Op::Land,
        Op::BreakRead,
        Op::Pass(31_000),
        Op::Manner(0, 3),
        Op::Manner(1, 0),
    ];
    let start = [
        Op::Manner(0, 2),
        Op::Manner(1, 2),
        Op::Request { id: 0, pixels: false, items: vec![(2, 0)] },
        Op::Request { id: 1, pixels: true, items: vec![(2, 1)] },
        Op::Ensure(0),
        Op::Ensure(1),
    ];
    let count = alphabet.len();
    for history in 0..count.pow(4) {
        let mut ops = start.to_vec();
        let mut rest = history;
        for _ in 0..4 {
            ops.push(alphabet[rest % count].clone());
            rest /= count;
        }
        Model::run(&ops);
    }
}
