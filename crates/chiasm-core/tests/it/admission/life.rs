//! The life of a request: abort at every state, ids used again, sessions that grow, pins.

use std::time::Duration;

use chiasm_core::admission::{Decision, Verdict};
use chiasm_core::wire::AckStatus;
use rstest::rstest;

use super::producers::Manner;
use super::world::{World, hash};

#[rstest]
#[case::connecting(Manner::BlackHole)]
#[case::asked(Manner::Silent)]
#[case::reading(Manner::Slow)]
#[case::pausing(Manner::Nacks(AckStatus::NotReady))]
#[case::breaker_open(Manner::Refuses)]
#[case::ready(Manner::Healthy)]
#[case::failed(Manner::Nacks(AckStatus::Missing))]
#[case::plane_failed(Manner::NoBytes)]
#[case::wrong(Manner::WrongBytes)]
fn an_abort_leaves_nothing_behind(#[case] manner: Manner) {
    for steps in 0..4 {
        let mut world = World::new(8);
        world.set("p", manner);
        world.request("a", false, &[("h", "p", 3), ("i", "q", 2)]);
        for _ in 0..steps {
            world.ensure("a");
            world.pass(Duration::from_millis(400));
        }
        world.finish("a");
        world.set("p", Manner::Healthy);
        world.pass(Duration::from_secs(31));
        world.assert_at_rest();
        // The id and the hashes are as good as new.
        world.request("a", false, &[("h", "p", 3)]);
        let decision = world.run_until_decided("a", Duration::from_secs(1), 20);
        assert_eq!(decision, Decision::Ready);
        assert!(world.failed.len() <= 1);
    }
}

#[test]
fn an_abort_while_waiting_for_room_lets_the_next_one_start() {
    let mut world = World::new(4);
    let load = world.save("kept", 2, true);
    world.cache.pin(load).unwrap();
    world.request("large", false, &[("h", "p", 4)]);
    world.request("small", false, &[("i", "p", 2)]);
    assert_eq!(world.ensure("large"), Decision::Wait);
    assert_eq!(world.ensure("small"), Decision::Wait);
    world.finish("large");
    assert_eq!(world.ensure("small"), Decision::Ready);
}

#[test]
fn an_abort_while_waiting_for_a_save_leaves_the_save_alone() {
    let mut world = World::new(4);
    let save = world.save("h", 2, false);
    world.request("a", false, &[("h", "p", 2)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.finish("a");
    world.saved(save, "h");
    world.assert_at_rest();
}

#[test]
fn a_failed_request_is_reported_exactly_once_and_not_after_its_end() {
    let mut world = World::new(8);
    world.set("p", Manner::Nacks(AckStatus::Missing));
    world.request("a", false, &[("h", "p", 3), ("i", "p", 2)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    for _ in 0..5 {
        assert_eq!(world.ensure("a"), Decision::Unavailable);
    }
    assert_eq!(world.failed, ["a"]);
    let verdicts: Vec<_> = world.report("a").iter().map(|item| item.verdict).collect();
    assert_eq!(verdicts, [Verdict::Unavailable, Verdict::Unavailable]);
    world.finish("a");

    // Finished before anybody took the report: the id may be another request's by now.
    world.request("b", false, &[("h", "evil", 3)]);
    let decision =
        world.admission.ensure(world.now, "b", 1, 0, &mut world.cache, &mut world.consumer);
    assert_eq!(decision, Some(Decision::Unavailable));
    world.finish("b");
    assert_eq!(world.failed, ["a"]);
}

#[test]
fn a_request_that_is_not_tracked_or_has_grown_has_to_be_tracked_first() {
    let mut world = World::new(8);
    let ask = |world: &mut World, items| {
        world.admission.ensure(world.now, "a", items, 0, &mut world.cache, &mut world.consumer)
    };
    assert_eq!(ask(&mut world, 1), None);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(ask(&mut world, 2), None);
    assert_eq!(ask(&mut world, 1), Some(Decision::Wait));
}

#[test]
fn a_streaming_session_adds_items_to_a_live_id() {
    let mut world = World::new(8);
    world.request("a", false, &[("h", "p", 3)]);
    world.ensure("a");
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.set("p", Manner::Slow);
    world.request("a", false, &[("h", "p", 3), ("i", "p", 2)]);
    assert_eq!(world.ensure("a"), Decision::Wait, "the new item is not there yet");
    assert_eq!(world.sent.len(), 2, "the old one is");
    world.land(world.reading("i", "p").unwrap());
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.cache.usage().pinned_entries, 2);
    world.finish("a");
    world.assert_at_rest();
}

#[test]
fn tracking_again_does_not_bring_a_failed_source_back() {
    let mut world = World::new(8);
    world.set("p", Manner::Nacks(AckStatus::Missing));
    world.request("a", true, &[("h", "p", 3)]);
    world.ensure("a");
    assert_eq!(world.ensure("a"), Decision::Fallback);
    world.set("p", Manner::Healthy);
    world.request("a", true, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Fallback);
    assert_eq!(world.sent.len(), 1);
}

#[test]
fn hazard_a9_what_is_promised_survives_an_allocation_in_the_same_step() {
    let mut world = World::new(4);
    world.save("h", 3, true);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Ready);
    let entry = world.admission.promised("h").unwrap();
    // The engine allocates for an item that it encodes, before it loads.
    assert!(world.cache.reserve(&hash("encoded"), super::world::meta(2), 2).is_err());
    assert!(world.cache.entry(entry).is_some());
    // The load takes its own pin; then the engine has its copy.
    world.cache.pin(entry).unwrap();
    world.release("a", "h");
    world.cache.unpin(entry).unwrap();
    assert!(world.cache.reserve(&hash("encoded"), super::world::meta(2), 2).is_ok());
    assert_eq!(world.admission.promised("h"), None);
}

#[test]
fn a_released_item_that_is_still_needed_is_pinned_or_read_anew() {
    let mut world = World::new(4);
    world.request("a", false, &[("h", "p", 3)]);
    world.ensure("a");
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.release("a", "h");
    world.release("a", "h");
    world.release("a", "unknown");
    world.release("unknown", "h");
    assert_eq!(world.cache.usage().pinned_entries, 0);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.cache.usage().pinned_entries, 1);
    world.release("a", "h");
    world.save("other", 4, true);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.sent.len(), 2);
}

#[test]
fn completed_reads_are_held_until_the_engine_comes_round() {
    let mut world = World::new(4);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    // A forward pass later, others have wanted the room.
    assert!(world.cache.reserve(&hash("encoded"), super::world::meta(2), 2).is_err());
    world.pass(Duration::from_secs(2));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.sent.len(), 1);
}
