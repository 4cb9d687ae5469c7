//! The cache against a model that keeps one owner per block and searches everything.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use chiasm_core::cache::{
    Cache, EntryKey, EntryState, EvictionPolicy, PublishError, ReserveError, StateError, Usage,
};
use chiasm_core::limits::MAX_EXTENTS;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{META, hash};

#[derive(Clone, Copy, Debug)]
enum Op {
    Reserve { name: u32, blocks: u32 },
    Stage { name: u32, blocks: u32 },
    MarkReady(usize),
    Publish(usize),
    Discard(usize),
    Quarantine(usize),
    Release(usize),
    Pin(usize),
    Unpin(usize),
    Evict(usize),
}

#[derive(Clone, Debug)]
struct Tenant {
    name: u32,
    blocks: u32,
    state: EntryState,
    published: bool,
    pins: u32,
    gone: bool,
}

/// Entries by number of creation; `owner[block]` is one of these numbers.
#[derive(Clone, Debug)]
struct Model {
    owner: Vec<Option<usize>>,
    tenants: Vec<Tenant>,
    queue: Vec<usize>,
}

impl Model {
    fn count(&self, of: impl Fn(&Tenant) -> bool) -> u32 {
        let owners = self.owner.iter().flatten();
        u32::try_from(owners.filter(|&&id| of(&self.tenants[id])).count()).unwrap()
    }

    fn usage(&self) -> Usage {
        let present = || self.tenants.iter().filter(|tenant| !tenant.gone);
        let total = u32::try_from(self.owner.len()).unwrap();
        let evictable = self.count(|tenant| tenant.state == EntryState::Ready && tenant.pins == 0);
        Usage {
            total,
            free: total - self.count(|_| true),
            live: self.count(|tenant| tenant.state != EntryState::Quarantined),
            quarantined: self.count(|tenant| tenant.state == EntryState::Quarantined),
            evictable,
            entries: present().filter(|tenant| tenant.state != EntryState::Quarantined).count(),
            pinned_entries: present().filter(|tenant| tenant.pins > 0).count(),
        }
    }

    fn named(&self, name: u32) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.published && tenant.name == name)
    }

    /// The least number of runs of free blocks that hold `blocks`.
    fn extents_for(&self, blocks: u32) -> Option<usize> {
        let mut runs: Vec<u32> = self
            .owner
            .chunk_by(|left, right| left.is_none() == right.is_none())
            .filter(|run| run[0].is_none())
            .map(|run| u32::try_from(run.len()).unwrap())
            .collect();
        runs.sort_unstable();
        let (mut missing, mut used) = (blocks, 0);
        while missing > 0 {
            missing = missing.saturating_sub(runs.pop()?);
            used += 1;
        }
        (used <= MAX_EXTENTS).then_some(used)
    }

    fn remove(&mut self, id: usize) {
        self.tenants[id].gone = true;
        self.tenants[id].published = false;
        self.queue.retain(|&queued| queued != id);
        for owner in &mut self.owner {
            if *owner == Some(id) {
                *owner = None;
            }
        }
    }

    /// Evicts what an entry of `blocks` needs; its number of extents and what went.
    fn make_room(&mut self, blocks: u32) -> Result<(usize, Vec<usize>), ReserveError> {
        let Usage { total, free, evictable, .. } = self.usage();
        if blocks > total {
            return Err(ReserveError::TooLarge { needed: blocks, region: total });
        }
        let mut later = self.clone();
        let mut went = Vec::new();
        loop {
            let slots = later.tenants.iter().filter(|tenant| !tenant.gone).count();
            if slots < self.owner.len().max(1)
                && let Some(extents) = later.extents_for(blocks)
            {
                *self = later;
                return Ok((extents, went));
            }
            let Some(&oldest) = later.queue.first() else {
                return Err(ReserveError::Full { needed: blocks, free, evictable });
            };
            later.remove(oldest);
            went.push(oldest);
        }
    }
}

struct Pair {
    cache: Cache,
    keys: Vec<EntryKey>,
    model: Model,
    /// Which cases were met: the rare ones have to be among them.
    met: BTreeSet<&'static str>,
}

impl Pair {
    fn new(blocks: u32) -> Self {
        Self {
            cache: Cache::new(blocks, EvictionPolicy::Fifo),
            keys: Vec::new(),
            model: Model {
                owner: vec![None; blocks as usize],
                tenants: Vec::new(),
                queue: Vec::new(),
            },
            met: BTreeSet::new(),
        }
    }

    fn allocate(&mut self, name: u32, blocks: u32, published: bool) {
        let text = hash(&format!("h{name}"));
        let duplicate = self.model.named(name).filter(|_| published);
        let free = self.model.usage().free;
        let expected = match duplicate {
            Some(id) => Err(ReserveError::Duplicate { key: self.keys[id] }),
            None => self.model.make_room(blocks),
        };
        let actual = if published {
            self.cache.reserve(&text, META, blocks)
        } else {
            self.cache.stage(&text, META, blocks)
        };
        let (extents, went) = match expected {
            Ok(expected) => expected,
            Err(error) => {
                self.met.insert(match error {
                    ReserveError::Full { needed, free, evictable }
                        if needed <= free + evictable =>
                    {
                        "full by scatter"
                    }
                    ReserveError::Full { .. } => "full",
                    ReserveError::TooLarge { .. } => "too large",
                    ReserveError::Duplicate { .. } => "duplicate",
                });
                assert_eq!(actual, Err(error));
                assert!(self.cache.evicted().is_empty());
                return;
            }
        };
        let key = actual.expect("the model found room");
        let evicted: Vec<_> = self.cache.evicted().iter().map(|entry| entry.key).collect();
        assert_eq!(evicted, went.iter().map(|&id| self.keys[id]).collect::<Vec<_>>());
        if free >= blocks && !went.is_empty() {
            self.met.insert("evicted further");
        }
        let id = self.keys.len();
        let entry = self.cache.entry(key).unwrap();
        assert_eq!(entry.extents().len(), extents);
        for block in entry.extents().iter().flat_map(|extent| extent.first()..extent.end()) {
            let owner = self.model.owner[block as usize].replace(id);
            assert_eq!(owner, None, "block {block} has an owner");
        }
        self.met.insert(match extents {
            0 => "no extents",
            1 => "one extent",
            MAX_EXTENTS => "the most extents",
            _ => "some extents",
        });
        self.keys.push(key);
        let state = EntryState::NotReady;
        self.model.tenants.push(Tenant { name, blocks, state, published, pins: 0, gone: false });
    }

    /// The tenant that `which` picks, if it is in a state that `allowed` allows; else the error that
    /// the cache has to give.
    fn expect_state(&self, which: usize, allowed: EntryState) -> Result<usize, StateError> {
        let id = which % self.keys.len();
        let (tenant, key) = (&self.model.tenants[id], self.keys[id]);
        match (tenant.state, allowed) {
            _ if tenant.gone => Err(StateError::UnknownKey(key)),
            (is, allowed) if is == allowed => Ok(id),
            (_, EntryState::Quarantined) => Err(StateError::NotQuarantined(key)),
            (EntryState::NotReady, _) => Err(StateError::NotReady(key)),
            (EntryState::Ready, _) => Err(StateError::AlreadyReady(key)),
            (EntryState::Quarantined, _) => Err(StateError::Quarantined(key)),
        }
    }

    fn become_ready(&mut self, id: usize) {
        self.model.tenants[id].state = EntryState::Ready;
        self.model.tenants[id].published = true;
        self.model.queue.push(id);
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Reserve { name, blocks } => return self.allocate(name, blocks, true),
            Op::Stage { name, blocks } => return self.allocate(name, blocks, false),
            _ if self.keys.is_empty() => return,
            _ => {}
        }
        let key = |which: usize| self.keys[which % self.keys.len()];
        match op {
            Op::Reserve { .. } | Op::Stage { .. } => {}
            Op::MarkReady(which) => {
                let expected = self.expect_state(which, EntryState::NotReady).and_then(|id| {
                    let published = self.model.tenants[id].published;
                    published.then_some(id).ok_or(StateError::Unpublished(key(which)))
                });
                assert_eq!(self.cache.mark_ready(key(which), None), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.become_ready(id);
                }
            }
            Op::Publish(which) => {
                let expected = self
                    .expect_state(which, EntryState::NotReady)
                    .map_err(PublishError::State)
                    .and_then(|id| {
                        let tenant = &self.model.tenants[id];
                        match self.model.named(tenant.name) {
                            _ if tenant.published => Err(StateError::NotStaged(key(which)).into()),
                            None => Ok(id),
                            Some(other) => Err(match self.model.tenants[other].state {
                                EntryState::Ready => PublishError::AlreadyPublished(key(other)),
                                _ => PublishError::SavePending(key(other)),
                            }),
                        }
                    });
                assert_eq!(self.cache.publish(key(which), None), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.become_ready(id);
                }
            }
            Op::Discard(which) => {
                let expected = self.expect_state(which, EntryState::NotReady);
                assert_eq!(self.cache.discard(key(which)), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.model.remove(id);
                }
            }
            Op::Quarantine(which) => {
                let expected = self.expect_state(which, EntryState::NotReady);
                assert_eq!(self.cache.quarantine(key(which)), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.model.tenants[id].state = EntryState::Quarantined;
                    self.model.tenants[id].published = false;
                }
            }
            Op::Release(which) => {
                let expected = self.expect_state(which, EntryState::Quarantined);
                assert_eq!(self.cache.release_quarantined(key(which)), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.model.remove(id);
                }
            }
            Op::Pin(which) => {
                let expected = self.expect_state(which, EntryState::Ready);
                assert_eq!(self.cache.pin(key(which)), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.model.tenants[id].pins += 1;
                    self.model.queue.retain(|&queued| queued != id);
                }
            }
            Op::Unpin(which) => {
                let expected = self.expect_state(which, EntryState::Ready).and_then(|id| {
                    let pinned = self.model.tenants[id].pins > 0;
                    pinned.then_some(id).ok_or(StateError::NotPinned(key(which)))
                });
                assert_eq!(self.cache.unpin(key(which)), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.model.tenants[id].pins -= 1;
                    if self.model.tenants[id].pins == 0 {
                        self.model.queue.push(id);
                    }
                }
            }
            Op::Evict(which) => {
                let expected = self.expect_state(which, EntryState::Ready).and_then(|id| {
                    let pinned = self.model.tenants[id].pins > 0;
                    (!pinned).then_some(id).ok_or(StateError::Pinned(key(which)))
                });
                assert_eq!(self.cache.evict(key(which)), expected.map(|_| ()));
                if let Ok(id) = expected {
                    self.model.remove(id);
                }
            }
        }
    }

    /// Whether both say the same about everything.
    fn compare(&self) {
        self.cache.check().unwrap();
        let usage = self.model.usage();
        assert_eq!(self.cache.usage(), usage);
        assert!(self.cache.can_fit_now(usage.free + usage.evictable));
        assert!(!self.cache.can_fit_now(usage.free + usage.evictable + 1));
        let held = |tenant: &&Tenant| {
            !tenant.gone && (tenant.state != EntryState::Ready || tenant.pins > 0)
        };
        assert_eq!(self.cache.has_held_entries(), self.model.tenants.iter().any(|t| held(&t)));
        for (id, (tenant, &key)) in self.model.tenants.iter().zip(&self.keys).enumerate() {
            let named = self.cache.find(&format!("h{}", tenant.name)).map(|(key, _)| key);
            assert_eq!(named, self.model.named(tenant.name).map(|id| self.keys[id]));
            let Some(entry) = self.cache.entry(key) else {
                assert!(tenant.gone, "{key} is gone from the cache alone");
                continue;
            };
            assert!(!tenant.gone, "{key} is gone from the model alone");
            assert_eq!(
                (entry.blocks(), entry.state(), entry.is_published(), entry.pins()),
                (tenant.blocks, tenant.state, tenant.published, tenant.pins)
            );
            for extent in entry.extents() {
                let blocks = extent.first() as usize..extent.end() as usize;
                assert!(self.model.owner[blocks].iter().all(|&owner| owner == Some(id)));
            }
        }
    }

    /// Blocks one by one: every other free, and of the rest every `ready`th ready.
    fn scatter(&mut self, ready: usize) {
        let blocks = self.model.owner.len();
        for block in 0..u32::try_from(blocks).unwrap() {
            self.allocate(1000 + block, 1, true);
        }
        for block in 0..blocks {
            match block % 2 {
                0 => self.apply(Op::Discard(block)),
                _ if (block / 2).is_multiple_of(ready) => self.apply(Op::MarkReady(block)),
                _ => {}
            }
        }
    }
}

fn op(large: RangeInclusive<u32>) -> impl Strategy<Value = Op> {
    let name = 0..8_u32;
    let blocks = prop_oneof![4 => 0..=6_u32, 1 => large];
    let which = any::<usize>();
    prop_oneof![
        5 => (name.clone(), blocks.clone())
            .prop_map(|(name, blocks)| Op::Reserve { name, blocks }),
        4 => (name, blocks).prop_map(|(name, blocks)| Op::Stage { name, blocks }),
        5 => which.prop_map(Op::MarkReady),
        4 => which.prop_map(Op::Publish),
        2 => which.prop_map(Op::Discard),
        2 => which.prop_map(Op::Quarantine),
        3 => which.prop_map(Op::Release),
        3 => which.prop_map(Op::Pin),
        3 => which.prop_map(Op::Unpin),
        1 => which.prop_map(Op::Evict),
    ]
}

type Scattered = (u32, usize, Vec<Op>);

fn scattered() -> impl Strategy<Value = Scattered> {
    (150..260_u32, 1..12_usize, prop::collection::vec(op(50..=180), 1..40))
}

fn run_scattered((blocks, ready, ops): Scattered) -> Pair {
    let mut pair = Pair::new(blocks);
    pair.scatter(ready);
    pair.compare();
    for op in ops {
        pair.apply(op);
        pair.compare();
    }
    pair
}

/// Else the comparison with the model would say little.
#[test]
fn the_operations_lead_to_the_rare_cases() {
    let mut runner = TestRunner::deterministic();
    let mut met = BTreeSet::new();
    for _ in 0..100 {
        let case = scattered().new_tree(&mut runner).expect("the strategy rejects nothing");
        met.append(&mut run_scattered(case.current()).met);
    }
    let rare = ["evicted further", "full", "full by scatter", "the most extents", "too large"];
    for case in rare {
        assert!(met.contains(case), "{case} is not among {met:?}");
    }
}

proptest! {
    #[test]
    fn the_cache_does_what_the_model_does(
        blocks in 0..40_u32,
        ops in prop::collection::vec(op(0..=42), 1..120),
    ) {
        let mut pair = Pair::new(blocks);
        for op in ops {
            pair.apply(op);
            pair.compare();
        }
    }

    #[test]
    fn the_cache_does_what_the_model_does_in_a_scattered_region(case in scattered()) {
        run_scattered(case);
    }
}
