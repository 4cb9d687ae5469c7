//! Saves and loads from dispatch to their end, the ends that upstream does not have among them (C3,
//! C18).

use chiasm_core::cache::{EntryState, StateError};
use chiasm_core::digest::Digest;
use chiasm_core::dispatch::{
    DispatchError, Event, MAX_DISPATCHES, Order, Outcome, RankSet, Receipt,
};
use chiasm_core::mm_hash::MmHash;
use chiasm_core::time::Nanos;

use super::{World, at, meta, rank, report};

fn state(world: &World, order: &Order) -> Option<EntryState> {
    world.cache.entry(order.key).map(chiasm_core::cache::Entry::state)
}

#[test]
fn a_save_is_ready_when_its_worker_says_so_and_not_before() {
    let mut world = World::new();
    let order = world.save(0, "a", 0);
    assert_eq!(state(&world, &order), Some(EntryState::NotReady));
    assert_eq!(world.table.outstanding().saves, 1);
    assert_eq!(world.table.awaited(), RankSet::from(rank(0)));

    let digest = Some(Digest([7; 16]));
    let said = report(rank(0), order.receipt(), Outcome::Done(digest));
    let ended = world.table.report(&said, &mut world.cache);

    assert_eq!(ended, Some(MmHash::new("a").unwrap()));
    let entry = world.cache.entry(order.key).unwrap();
    assert_eq!((entry.state(), entry.digest()), (EntryState::Ready, digest));
    assert!(world.table.outstanding().is_empty());
    assert_eq!(world.table.poll_timeout(), Nanos::NEVER);
    assert_eq!(world.table.counters().saved, 1);
}

#[test]
fn a_save_that_failed_frees_its_blocks_and_its_hash() {
    let mut world = World::new();
    for wrong_length in [false, true] {
        let order = world.save(0, "a", 2);
        let receipt = Receipt { bytes: 159, ..order.receipt() };
        let said = if wrong_length {
            report(rank(2), receipt, Outcome::Done(None))
        } else {
            report(rank(2), order.receipt(), Outcome::Failed)
        };
        assert!(world.table.report(&said, &mut world.cache).is_some());
        assert_eq!(world.cache.usage().free, 100);
        let expected = Event::SaveFailed { hash: MmHash::new("a").unwrap(), rank: rank(2) };
        assert_eq!(world.table.poll_event(), Some(expected));
    }
    assert_eq!(world.table.counters().failed_saves, 2);
}

#[test]
fn a_save_that_nobody_reports_is_withdrawn_after_its_time_and_its_blocks_wait() {
    let mut world = World::new();
    let order = world.save(5, "a", 0);
    assert_eq!(world.table.poll_timeout(), at(65));
    assert!(world.timeout(64).is_empty());
    assert_eq!(world.timeout(65), [MmHash::new("a").unwrap()]);

    assert_eq!(state(&world, &order), Some(EntryState::Quarantined));
    assert_eq!(world.cache.usage().quarantined, 10);
    assert_eq!(world.table.outstanding().lost_saves, 1);
    assert!(matches!(world.table.poll_event(), Some(Event::SaveLost { blocks: 10, .. })));
    // For as long as it takes: a late copy may still land.
    assert!(world.timeout(1_000_000).is_empty());
    assert_eq!(world.cache.usage().quarantined, 10);
    // The hash can be saved anew meanwhile.
    let again = world.save(66, "a", 1);

    assert_eq!(world.done(&order, 0), None, "the late word ends the quarantine, nothing else");
    assert_eq!(world.cache.usage().quarantined, 0);
    assert_eq!(state(&world, &again), Some(EntryState::NotReady));
    assert_eq!(world.table.counters().late_reports, 1);
    world.cache.check().unwrap();
}

#[test]
fn a_dead_workers_saves_are_lost_at_once_and_their_blocks_free_after_the_grace() {
    let mut world = World::new();
    let late = world.save(0, "late", 3);
    world.timeout(60);
    let order = world.save(60, "a", 3);
    let other = world.save(60, "b", 1);

    assert_eq!(world.gone(61, 3), [MmHash::new("a").unwrap()]);
    assert_eq!(world.cache.usage().quarantined, 20);
    assert_eq!(world.table.awaited(), RankSet::from(rank(1)));
    assert_eq!(world.table.poll_timeout(), at(66));
    assert!(world.timeout(65).is_empty());
    assert_eq!(world.cache.usage().quarantined, 20, "a device may copy a little longer");
    world.timeout(66);
    assert_eq!(world.cache.usage().quarantined, 0);
    assert_eq!((state(&world, &order), state(&world, &late)), (None, None));
    assert_eq!(state(&world, &other), Some(EntryState::NotReady));
}

#[test]
fn a_load_keeps_its_entry_until_every_rank_has_reported() {
    let mut world = World::new();
    let entry = world.saved("a");
    let load = world.load(0, &entry, &[0, 1, 5]);
    assert_eq!(world.cache.entry(entry.key).unwrap().pins(), 1);
    world.done(&load, 5);
    world.done(&load, 0);
    assert_eq!(world.cache.evict(entry.key), Err(StateError::Pinned(entry.key)));
    assert_eq!(world.table.awaited(), RankSet::from(rank(1)));
    world.done(&load, 1);
    assert_eq!(world.cache.evict(entry.key), Ok(()));
    assert_eq!(world.table.counters().loaded, 1);
}

#[test]
fn a_replayed_report_releases_no_later_load_of_the_same_entry() {
    let mut world = World::new();
    let entry = world.saved("a");
    let first = world.load(0, &entry, &[0]);
    world.done(&first, 0);
    let second = world.load(1, &entry, &[0, 1]);
    world.done(&first, 0);
    world.done(&second, 0);
    world.done(&second, 0);
    assert_eq!(world.cache.entry(entry.key).unwrap().pins(), 1);
    assert_eq!(world.table.counters().ignored_reports, 2);
}

#[test]
fn a_late_load_keeps_its_pin_and_is_told_once() {
    let mut world = World::new();
    let entry = world.saved("a");
    let load = world.load(0, &entry, &[0, 1]);
    world.done(&load, 0);
    world.timeout(60);
    world.timeout(1000);
    let waited = super::TIMEOUT;
    let hash = MmHash::new("a").unwrap();
    let expected = Event::LoadLate { hash, ranks: rank(1).into(), waited };
    assert_eq!(world.table.poll_event(), Some(expected));
    assert_eq!(world.table.poll_event(), None);
    assert_eq!(world.cache.entry(entry.key).unwrap().pins(), 1);

    world.gone(1001, 1);
    assert_eq!(world.cache.entry(entry.key).unwrap().pins(), 0, "the dead read nothing");
    assert_eq!(world.table.counters().late_loads, 1);
}

#[test]
fn reports_of_another_rank_generation_or_dispatch_change_nothing() {
    let mut world = World::new();
    let order = world.save(0, "a", 0);
    let good = order.receipt();
    let (index, generation) = (order.key.index(), order.key.generation());
    let key = chiasm_core::cache::EntryKey::from_parts;
    let id = chiasm_core::dispatch::DispatchId::from_u64;
    for (by, receipt) in [
        (1, good),
        (0, Receipt { key: key(index, generation + 1), ..good }),
        (0, Receipt { key: key(index + 1, generation), ..good }),
        (0, Receipt { dispatch: id(good.dispatch.as_u64() + 1), ..good }),
        (0, Receipt { dispatch: id(0), ..good }),
    ] {
        let said = report(rank(by), receipt, Outcome::Done(None));
        assert_eq!(world.table.report(&said, &mut world.cache), None);
    }
    assert_eq!(state(&world, &order), Some(EntryState::NotReady));
    assert_eq!(world.table.counters().ignored_reports, 5);
}

#[test]
fn what_no_worker_got_is_free_at_once_and_what_one_may_have_is_not() {
    let mut world = World::new();
    let unsent = world.save(0, "a", 0);
    world.table.discard(unsent.dispatch, &mut world.cache);
    assert_eq!(world.cache.usage().free, 100);

    let sent = world.save(0, "a", 0);
    world.table.withdraw(sent.dispatch, &mut world.cache);
    assert_eq!((world.cache.usage().free, world.cache.usage().quarantined), (90, 10));
    assert_eq!(world.done(&sent, 0), None);
    assert_eq!(world.cache.usage().free, 100);

    let entry = world.saved("a");
    let load = world.load(0, &entry, &[0]);
    world.table.withdraw(load.dispatch, &mut world.cache);
    assert_eq!(world.cache.entry(entry.key).unwrap().pins(), 1, "its ranks may be reading");
    world.table.discard(load.dispatch, &mut world.cache);
    assert_eq!(world.cache.entry(entry.key).unwrap().pins(), 0);
    assert!(world.table.outstanding().is_empty());
}

#[test]
fn orders_that_are_out_are_bounded() {
    let mut world = World::new();
    let entry = world.saved("a");
    for _ in 0..MAX_DISPATCHES {
        world.load(0, &entry, &[0]);
    }
    let ranks = rank(0).into();
    let refused = world.table.load(at(0), entry.key, ranks, &mut world.cache);
    assert_eq!(refused, Err(DispatchError::TooMany));
    let hash = MmHash::new("b").unwrap();
    let refused = world.table.save(at(0), &hash, meta(1), 1, rank(0), &mut world.cache);
    assert_eq!(refused, Err(DispatchError::TooMany));
    assert_eq!(world.cache.entry(entry.key).unwrap().pins() as usize, MAX_DISPATCHES);
    assert!(world.cache.find("b").is_none(), "nothing was taken for what was refused");
    let none = world.table.load(at(0), entry.key, RankSet::default(), &mut world.cache);
    assert_eq!(none, Err(DispatchError::NoRank));
}
