//! Room in the region: all of a request's items or none, and nobody holds what another waits for.

use std::time::Duration;

use chiasm_core::admission::{Decision, Item};
use chiasm_core::mm_hash::MmHash;

use super::producers::Manner;
use super::world::{NANO, World};

const STEP: Duration = Duration::from_millis(100);

#[test]
fn hazard_c7_items_that_can_never_fit_together_fail_at_once() {
    // Region 4, items 3 + 3: upstream reads 601 times in 60 s, then fails.
    let mut world = World::new(4);
    world.request("a", false, &[("h", "p", 3), ("i", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert!(world.sent.is_empty() && world.contacts.is_empty());
    let (_, reason) = world.verdict("a");
    assert!(reason.is_none(), "the item that it fails for is the larger or later one");
    let reasons: Vec<_> =
        world.report("a").iter().filter_map(|item| item.reason).cloned().collect();
    assert_eq!(reasons.len(), 1);
    assert_eq!(reasons[0].word(), "never_fits");
    assert!(reasons[0].to_string().contains("6 blocks together, the region has 4"));
}

#[test]
fn hazard_c7_no_completion_restarts_a_budget_for_ever() {
    // Region 12, items 1, 4, 4, 5, 1: upstream neither admits nor fails it in 200 s.
    let mut world = World::new(12);
    let items = [("a", "p", 1), ("b", "p", 4), ("c", "p", 4), ("d", "p", 5), ("e", "p", 1)];
    world.request("r", false, &items);
    assert_eq!(world.ensure("r"), Decision::Unavailable);
    assert!(world.sent.is_empty());

    // With pixels, the largest falls back and the rest is read.
    world.request("s", true, &items);
    assert_eq!(world.run_until_decided("s", STEP, 10), Decision::Fallback);
    assert_eq!(world.admission.fell_back("s").map(MmHash::as_str).collect::<Vec<_>>(), ["d"]);
    assert_eq!(world.sent.len(), 4);

    // Some tokens computed: the rest fits.
    world.request("t", false, &items);
    world.compute("t", 5);
    world.finish("s");
    assert_eq!(world.run_until_decided("t", STEP, 10), Decision::Ready);
}

#[test]
fn four_items_that_fit_only_together_are_admitted() {
    let mut world = World::new(12);
    world.save("stale", 12, true);
    world.request("a", false, &[("h", "p", 3), ("i", "q", 3), ("j", "r", 3), ("k", "p", 3)]);
    assert_eq!(world.run_until_decided("a", STEP, 5), Decision::Ready);
    assert_eq!(world.sent.len(), 4, "each is read once");
    assert_eq!(world.cache.usage().pinned_entries, 4);
}

#[test]
fn two_requests_that_each_need_the_region_take_turns() {
    let mut world = World::new(6);
    world.set("p", Manner::Asked);
    world.request("a", false, &[("h", "p", 3), ("i", "p", 3)]);
    world.request("b", false, &[("j", "p", 3), ("k", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.sent.len(), 2, "the younger starts nothing");
    world.set("p", Manner::Healthy);
    world.agree("i");
    world.agree("h");
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.ensure("b"), Decision::Wait);
    world.compute("a", 6);
    assert_eq!(world.ensure("a"), Decision::Ready, "its entries are not needed any more");
    assert_eq!(world.ensure("b"), Decision::Ready, "and make room without another step");
    assert_eq!(world.sent.len(), 4);
}

#[test]
fn the_younger_does_not_overtake_the_older_in_the_line_for_room() {
    let mut world = World::new(6);
    world.set("p", Manner::Slow);
    world.request("first", false, &[("h", "p", 2)]);
    world.request("large", false, &[("i", "p", 6)]);
    world.request("small", false, &[("j", "p", 1)]);
    assert_eq!(world.ensure("first"), Decision::Wait);
    assert_eq!(world.ensure("large"), Decision::Wait);
    assert_eq!(world.ensure("small"), Decision::Wait);
    assert_eq!(world.sent.len(), 1);
    world.set("p", Manner::Healthy);
    world.land(world.reading("h", "p").unwrap());
    assert_eq!(world.ensure("first"), Decision::Ready);
    world.finish("first");
    assert_eq!(world.ensure("large"), Decision::Ready);
    assert_eq!(world.ensure("small"), Decision::Wait);
    world.finish("large");
    assert_eq!(world.ensure("small"), Decision::Ready);
}

#[test]
fn hazard_c7_the_oldest_may_drop_completed_reads_held_for_younger_ones() {
    let mut world = World::new(6);
    world.set("p", Manner::Silent);
    world.set("q", Manner::Slow);
    // The younger gets one of its two items while the older waits for a silent producer ...
    world.request("old", false, &[("h", "p", 4)]);
    world.request("young", false, &[("i", "q", 3), ("j", "q", 3)]);
    assert_eq!(world.ensure("old"), Decision::Wait);
    assert_eq!(world.ensure("young"), Decision::Wait);
    assert_eq!(world.sent.len(), 1, "four blocks are reserved for the older");
    world.pass(Duration::from_secs(2));
    assert_eq!(world.sent.len(), 3, "silence reserves nothing for long");
    world.land(world.reading("i", "q").unwrap());
    world.fail_read(world.reading("j", "q").unwrap());
    world.settle();
    world.set("q", Manner::Silent);
    assert_eq!(world.ensure("young"), Decision::Wait);
    assert_eq!(world.cache.usage().pinned_entries, 1);
    // ... which answers at last. The younger, which waits for another attempt, gives way.
    world.set("p", Manner::Healthy);
    world.pass(Duration::from_secs(30));
    assert_eq!(world.ensure("old"), Decision::Ready);
    assert!(world.cache.find("i").is_none());
    assert_eq!(world.ensure("young"), Decision::Wait);
    world.finish("old");
    world.heal();
    world.pass(Duration::from_secs(20));
    assert_eq!(world.ensure("young"), Decision::Ready);
    world.finish("young");
    world.assert_at_rest();
}

#[test]
fn losing_a_completed_read_starts_no_new_budget() {
    let mut world = World::new(6);
    world.set("p", Manner::Healthy);
    world.set("q", Manner::Silent);
    world.request("old", false, &[("h", "p", 4)]);
    world.request("young", false, &[("i", "p", 3), ("j", "q", 1)]);
    assert_eq!(world.ensure("young"), Decision::Wait);
    assert_eq!(world.cache.usage().pinned_entries, 1);
    world.pass(Duration::from_secs(50));
    assert_eq!(world.ensure("young"), Decision::Wait);
    assert_eq!(world.ensure("old"), Decision::Wait);
    assert_eq!(world.ensure("old"), Decision::Ready);
    assert!(world.cache.find("i").is_none(), "the older took its room");
    world.pass(Duration::from_secs(10));
    assert_eq!(world.ensure("young"), Decision::Wait);
    world.pass(NANO);
    assert_eq!(world.ensure("young"), Decision::Unavailable);
}

#[test]
fn a_request_that_waits_for_a_dead_producer_gives_way_to_a_younger_one() {
    let mut world = World::new(6);
    world.set("p", Manner::Refuses);
    world.request("old", false, &[("h", "p", 2), ("i", "q", 4)]);
    assert_eq!(world.ensure("old"), Decision::Wait);
    assert_eq!(world.cache.usage().pinned_entries, 1, "one of its items is there");
    world.pass(Duration::from_secs(1));
    world.request("young", false, &[("j", "q", 5)]);
    assert_eq!(world.ensure("young"), Decision::Wait);
    assert_eq!(world.ensure("young"), Decision::Ready);
    assert_eq!(world.ensure("old"), Decision::Wait);
    world.finish("young");
    world.set("p", Manner::Healthy);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.ensure("old"), Decision::Ready);
}

#[test]
fn what_the_engine_has_been_promised_is_never_dropped() {
    let mut world = World::new(6);
    world.request("old", false, &[("h", "p", 4)]);
    world.request("young", false, &[("i", "p", 3)]);
    assert_eq!(world.ensure("young"), Decision::Wait);
    assert_eq!(world.ensure("young"), Decision::Ready);
    let promised = world.admission.promised("i").unwrap();
    assert_eq!(world.ensure("old"), Decision::Wait);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.ensure("old"), Decision::Wait, "it waits for room");
    assert_eq!(world.admission.promised("i"), Some(promised));
    assert!(world.cache.entry(promised).is_some());
    world.pass(Duration::from_secs(56));
    assert_eq!(world.ensure("old"), Decision::Unavailable);
    let text = world.verdict("old").1.unwrap().to_string();
    assert!(text.contains("waiting for room in the region"), "{text}");
    assert_eq!(world.failed, ["old"], "and alone");
}

#[test]
fn room_that_others_free_is_found_in_the_next_step() {
    let mut world = World::new(6);
    let load = world.save("kept", 6, true);
    world.cache.pin(load).unwrap();
    world.request("a", false, &[("h", "p", 4)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert!(world.sent.is_empty(), "it does not even ask");
    world.cache.unpin(load).unwrap();
    // The question itself finds it, should nobody have reported it.
    let World { now, admission, cache, consumer, .. } = &mut world;
    assert_eq!(admission.ensure(*now, "a", 1, 0, cache, consumer), Some(Decision::Wait));
    assert_eq!(admission.live_transfers(), 1);
    world.settle();
    assert_eq!(world.ensure("a"), Decision::Ready);
}

#[test]
fn room_that_was_there_and_is_gone_when_the_producer_agrees_is_waited_for() {
    let mut world = World::new(6);
    world.set("p", Manner::Asked);
    world.request("a", false, &[("h", "p", 4)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    let save = world.save("s", 4, false);
    world.agree("h");
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.sent.len(), 1, "nobody is asked while there is no room");
    world.set("p", Manner::Healthy);
    world.saved(save, "s");
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.admission.troubled_sources().count(), 0);
}

#[test]
fn an_item_named_twice_in_a_request_counts_once() {
    let mut world = World::new(4);
    let first = world.item("h", "p", 3, 3);
    let second = Item { end: 6, local_input: true, ..first.clone() };
    world.request_of("a", vec![first, second]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.compute("a", 5);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.cache.usage().pinned_entries, 1, "its second place is not computed");
    world.compute("a", 6);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.cache.usage().pinned_entries, 0);
}

#[test]
fn the_younger_takes_nothing_from_an_older_one_that_gets_on() {
    let mut world = World::new(6);
    world.set("p", Manner::Slow);
    world.request("old", false, &[("h", "q", 3), ("i", "p", 2)]);
    world.request("young", false, &[("j", "q", 4)]);
    assert_eq!(world.ensure("old"), Decision::Wait);
    assert_eq!(world.cache.usage().pinned_entries, 1, "one item is there, the other is coming");
    for _ in 0..20 {
        assert_eq!(world.ensure("young"), Decision::Wait);
        world.pass(STEP);
    }
    world.land(world.reading("i", "p").unwrap());
    assert_eq!(world.ensure("old"), Decision::Ready);
    assert_eq!(world.sent.len(), 2, "what was complete was not read again");
    world.finish("old");
    assert_eq!(world.ensure("young"), Decision::Ready);
}

#[test]
fn an_entry_that_it_can_do_without_costs_a_request_nothing() {
    let mut world = World::new(6);
    world.set("q", Manner::Asked);
    let pixels = world.item("x", "p", 3, 3);
    let reference = world.item("y", "q", 4, 7);
    world.request_of("a", vec![Item { local_input: true, ..pixels }, reference]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.admission.fell_back("a").count(), 1, "both do not fit");
    world.save("x", 3, true);
    assert_eq!(world.ensure("a"), Decision::Wait, "and need not now that one of them is there");
    world.set("q", Manner::Healthy);
    world.agree("y");
    assert_eq!(world.ensure("a"), Decision::Fallback);
}
