//! The table and the cache against a naive model, over any order of calls (S4).

use chiasm_core::cache::{EntryKey, EntryState};
use chiasm_core::dispatch::{DispatchId, OrderKind, Outcome, Rank, RankSet, Receipt};
use chiasm_core::mm_hash::MmHash;
use proptest::prelude::*;

use super::{World, at, meta, rank, report};

const RANKS: u16 = 3;
const HASHES: [&str; 5] = ["a", "b", "c", "d", "e"];

#[derive(Clone, Debug)]
enum Call {
    Save { hash: usize, blocks: u32, by: u16 },
    Load { hash: usize, ranks: u16 },
    Report { which: prop::sample::Index, by: u16, twist: Twist, failed: bool },
    Gone(u16),
    Discard(prop::sample::Index),
    Withdraw(prop::sample::Index),
    Wait(u64),
    Evict(usize),
}

/// What is wrong with a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twist {
    Nothing,
    Dispatch,
    Generation,
    Index,
    Length,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let hash = 0..HASHES.len();
    let which = any::<prop::sample::Index>;
    let twist = prop_oneof![
        6 => Just(Twist::Nothing),
        1 => Just(Twist::Dispatch),
        1 => Just(Twist::Generation),
        1 => Just(Twist::Index),
        1 => Just(Twist::Length),
    ];
    let report = (which(), 0..RANKS, twist, prop::bool::weighted(0.2))
        .prop_map(|(which, by, twist, failed)| Call::Report { which, by, twist, failed });
    let call = prop_oneof![
        4 => (hash.clone(), 0..40_u32, 0..RANKS).prop_map(|(hash, blocks, by)| Call::Save { hash, blocks, by }),
        4 => (hash.clone(), 1..1_u16 << RANKS).prop_map(|(hash, ranks)| Call::Load { hash, ranks }),
        9 => report,
        1 => (0..RANKS).prop_map(Call::Gone),
        1 => which().prop_map(Call::Discard),
        1 => which().prop_map(Call::Withdraw),
        2 => (0..40_u64).prop_map(Call::Wait),
        1 => hash.prop_map(Call::Evict),
    ];
    prop::collection::vec(call, 1..80)
}

/// Whether a save's blocks are in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    No,
    /// Until its worker reports.
    Waits,
    /// Its worker is dead since.
    Dead(u64),
}

/// One dispatch as the model sees it. Dispatches that are over stay, for replays.
#[derive(Clone, Debug)]
struct Known {
    id: DispatchId,
    key: EntryKey,
    kind: OrderKind,
    blocks: u32,
    bytes: u64,
    ranks: Vec<Rank>,
    since: u64,
    lost: Lost,
    over: bool,
}

#[derive(Default)]
struct Model {
    now: u64,
    known: Vec<Known>,
    /// Ready entries with their blocks.
    ready: Vec<(EntryKey, u32)>,
}

impl Model {
    fn evicted(&mut self, world: &World) {
        for gone in world.cache.evicted() {
            self.ready.retain(|(key, _)| *key != gone.key);
        }
    }

    fn reported(&mut self, receipt: Receipt, by: Rank, done: bool) {
        let fits = |known: &&mut Known| {
            !known.over
                && known.id == receipt.dispatch
                && known.key == receipt.key
                && known.ranks.contains(&by)
        };
        let Some(known) = self.known.iter_mut().find(fits) else { return };
        known.ranks.retain(|rank| *rank != by);
        known.over = known.ranks.is_empty();
        let lands = known.kind == OrderKind::Save && known.lost == Lost::No;
        if lands && done && receipt.bytes == known.bytes {
            self.ready.push((known.key, known.blocks));
        }
    }

    fn gone(&mut self, rank: Rank) {
        for known in self.known.iter_mut().filter(|known| !known.over) {
            match known.kind {
                OrderKind::Load => {
                    known.ranks.retain(|of| *of != rank);
                    known.over = known.ranks.is_empty();
                }
                OrderKind::Save if known.ranks == [rank] => {
                    if !matches!(known.lost, Lost::Dead(_)) {
                        known.lost = Lost::Dead(self.now);
                    }
                }
                OrderKind::Save => {}
            }
        }
    }

    fn waited(&mut self) {
        for known in self.known.iter_mut().filter(|known| !known.over) {
            if known.kind == OrderKind::Load {
                continue;
            }
            match known.lost {
                Lost::No if self.now >= known.since + 60 => known.lost = Lost::Waits,
                Lost::Dead(dead) if self.now >= dead + 5 => known.over = true,
                _ => {}
            }
        }
    }

    /// Everything that can be seen is as it must be.
    fn check(&self, world: &World) -> Result<(), TestCaseError> {
        world.cache.check().map_err(TestCaseError::fail)?;
        let live = || self.known.iter().filter(|known| !known.over);
        let state = |key| world.cache.entry(key).map(chiasm_core::cache::Entry::state);
        let (mut saves, mut lost, mut loads, mut quarantined) = (0, 0, 0, 0);
        for known in live() {
            let expected = match (known.kind, known.lost) {
                (OrderKind::Save, Lost::No) => EntryState::NotReady,
                (OrderKind::Save, _) => EntryState::Quarantined,
                (OrderKind::Load, _) => EntryState::Ready,
            };
            prop_assert_eq!(state(known.key), Some(expected));
            match expected {
                EntryState::NotReady => saves += 1,
                EntryState::Ready => loads += 1,
                EntryState::Quarantined => {
                    lost += 1;
                    quarantined += known.blocks;
                }
            }
        }
        let mut ready_blocks = 0;
        for &(key, blocks) in &self.ready {
            prop_assert_eq!(state(key), Some(EntryState::Ready));
            let loads = live().filter(|known| known.kind == OrderKind::Load && known.key == key);
            prop_assert_eq!(world.cache.entry(key).unwrap().pins() as usize, loads.count());
            ready_blocks += blocks;
        }
        let out = world.table.outstanding();
        prop_assert_eq!((out.saves, out.loads, out.lost_saves), (saves, loads, lost));
        let usage = world.cache.usage();
        let saving = live().filter(|known| known.kind == OrderKind::Save && known.lost == Lost::No);
        let saving: u32 = saving.map(|known| known.blocks).sum();
        prop_assert_eq!(usage.quarantined, quarantined);
        prop_assert_eq!(usage.live, saving + ready_blocks);
        prop_assert_eq!(usage.free, 100 - usage.live - quarantined);
        Ok(())
    }
}

/// Makes one call on both.
fn apply(call: &Call, world: &mut World, model: &mut Model) {
    let now = at(model.now);
    match call {
        Call::Save { hash, blocks, by } => {
            let hash = MmHash::new(HASHES[*hash]).unwrap();
            let by = rank(*by);
            let table = &mut world.table;
            let order = table.save(now, &hash, meta(*blocks), *blocks, by, &mut world.cache);
            model.evicted(world);
            let Ok(order) = order else { return };
            model.known.push(Known {
                id: order.dispatch,
                key: order.key,
                kind: OrderKind::Save,
                blocks: *blocks,
                bytes: order.meta.bytes,
                ranks: vec![by],
                since: model.now,
                lost: Lost::No,
                over: false,
            });
        }
        Call::Load { hash, ranks } => {
            let Some((key, entry)) = world.cache.find(HASHES[*hash]) else { return };
            let (blocks, bytes) = (entry.blocks(), entry.meta().bytes);
            let ranks = RankSet::from_bits(*ranks);
            let Ok(order) = world.table.load(now, key, ranks, &mut world.cache) else { return };
            model.known.push(Known {
                id: order.dispatch,
                key,
                kind: OrderKind::Load,
                blocks,
                bytes,
                ranks: ranks.iter().collect(),
                since: model.now,
                lost: Lost::No,
                over: false,
            });
        }
        Call::Report { which, by, twist, failed } => {
            if model.known.is_empty() {
                return;
            }
            let known = which.get(&model.known);
            let mut receipt = Receipt { dispatch: known.id, key: known.key, bytes: known.bytes };
            let (index, generation) = (known.key.index(), known.key.generation());
            match twist {
                Twist::Nothing => {}
                Twist::Dispatch => receipt.dispatch = DispatchId::from_u64(1),
                Twist::Generation => receipt.key = EntryKey::from_parts(index, generation + 1),
                Twist::Index => receipt.key = EntryKey::from_parts(index + 1, generation),
                Twist::Length => receipt.bytes += 1,
            }
            let outcome = if *failed { Outcome::Failed } else { Outcome::Done(None) };
            let by = rank(*by);
            world.table.report(&report(by, receipt, outcome), &mut world.cache);
            model.reported(receipt, by, !failed);
        }
        Call::Gone(number) => {
            world.gone(model.now, *number);
            model.gone(rank(*number));
        }
        Call::Discard(which) if !model.known.is_empty() => {
            let at = which.index(model.known.len());
            world.table.discard(model.known[at].id, &mut world.cache);
            model.known[at].over = true;
        }
        Call::Withdraw(which) if !model.known.is_empty() => {
            let at = which.index(model.known.len());
            let known = &mut model.known[at];
            world.table.withdraw(known.id, &mut world.cache);
            if known.kind == OrderKind::Save && known.lost == Lost::No && !known.over {
                known.lost = Lost::Waits;
            }
        }
        Call::Discard(_) | Call::Withdraw(_) => {}
        Call::Wait(seconds) => {
            model.now += seconds;
            world.timeout(model.now);
            model.waited();
        }
        Call::Evict(hash) => {
            let Some((key, _)) = world.cache.find(HASHES[*hash]) else { return };
            if world.cache.evict(key).is_ok() {
                model.ready.retain(|(ready, _)| *ready != key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_and_pins_are_what_a_naive_model_says(calls in calls()) {
        let (mut world, mut model) = (World::new(), Model::default());
        for call in &calls {
            apply(call, &mut world, &mut model);
            model.check(&world)?;
        }
        // At rest nothing is held, whatever was never reported.
        for number in 0..RANKS {
            world.gone(model.now, number);
        }
        world.timeout(model.now + 5);
        world.cache.check().map_err(TestCaseError::fail)?;
        prop_assert!(!world.cache.has_held_entries());
        prop_assert!(world.table.outstanding().is_empty());
        prop_assert_eq!(world.table.poll_timeout(), chiasm_core::time::Nanos::NEVER);
    }
}
