//! Two producers, one hash: whose failure is whose.

use std::time::Duration;

use chiasm_core::admission::{Decision, Event};
use chiasm_core::wire::AckStatus;

use super::producers::Manner;
use super::world::{NANO, World, producer};

#[test]
fn one_transfer_serves_all_requests_that_wait_for_it() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    for id in ["a", "b", "c"] {
        world.request(id, false, &[("h", "p", 3)]);
        assert_eq!(world.ensure(id), Decision::Wait);
    }
    assert_eq!(world.sent.len(), 1);
    world.land(world.reading("h", "p").unwrap());
    for id in ["a", "b", "c"] {
        assert_eq!(world.ensure(id), Decision::Ready);
    }
    assert_eq!(world.cache.usage().live, 3);
    for id in ["a", "b", "c"] {
        world.finish(id);
    }
    world.assert_at_rest();
}

#[test]
fn hazard_c4_a_failure_is_charged_only_to_requests_that_named_that_source() {
    let mut world = World::new(8);
    world.set("p", Manner::Asked);
    world.set("q", Manner::Asked);
    world.request("a", false, &[("h", "p", 3)]);
    world.request("b", false, &[("h", "q", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Wait);
    let question = world.questions.pop_front().unwrap();
    assert_eq!(question.source, producer("p"));
    world.answer(&question, AckStatus::Missing);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert_eq!(world.failed, ["a"]);
    world.agree("h");
    assert_eq!(world.ensure("b"), Decision::Wait, "its bytes are landing");
    world.land(world.reading("h", "q").unwrap());
    assert_eq!(world.ensure("b"), Decision::Ready);
    assert_eq!(world.failed, ["a"]);
}

#[test]
fn hazard_c5_the_failure_of_an_aborted_request_is_nobodys() {
    let mut world = World::new(8);
    world.set("p", Manner::Asked);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    let question = world.questions.pop_front().unwrap();
    world.finish("a");
    world.answer(&question, AckStatus::Missing);
    world.pass(Duration::from_mins(10));
    world.set("p", Manner::Healthy);
    world.request("b", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Ready);
    assert!(world.failed.is_empty());
}

#[test]
fn hazard_c6_a_healthy_source_never_waits_behind_a_dead_one() {
    let mut world = World::new(8);
    world.set("p", Manner::Silent);
    world.set("q", Manner::Healthy);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.request("b", false, &[("h", "q", 3)]);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Ready, "in the same instant");
    assert_eq!(
        world.ensure("a"),
        Decision::Ready,
        "and the entry serves whoever waits for the hash"
    );
    assert_eq!(world.admission.live_transfers(), 0, "the other read is not wanted any more");
    world.finish("a");
    world.finish("b");
    world.assert_at_rest();
}

#[test]
fn two_sources_read_in_parallel_and_the_first_valid_one_is_published() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    world.set("q", Manner::Slow);
    world.request("a", false, &[("h", "p", 3)]);
    world.request("b", false, &[("h", "q", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.cache.usage().live, 6, "two staging entries");
    let (first, second) = (world.reading("h", "q").unwrap(), world.reading("h", "p").unwrap());
    world.land(first);
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.ensure("b"), Decision::Ready);
    world.land(second);
    assert_eq!(world.cache.usage().live, 3);
    assert!(!world.events.iter().any(|event| matches!(event, Event::Disagree { .. })));
    world.finish("a");
    world.finish("b");
    world.assert_at_rest();
}

#[test]
fn hazard_a6_two_sources_with_different_bytes_are_named_both() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    let honest = world.reading("h", "p").unwrap();
    world.set("q", Manner::OtherBytes);
    world.request("b", false, &[("h", "q", 3)]);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Ready);
    world.land(honest);
    let disagreement = world.events.iter().find_map(|event| match event {
        Event::Disagree { first, second, .. } => Some((first.clone(), second.clone())),
        _ => None,
    });
    assert_eq!(disagreement, Some((Some(producer("q")), producer("p"))));
    assert_eq!(world.ensure("a"), Decision::Ready, "the first to arrive stays");
}

#[test]
fn hazard_c8_a_producer_that_refuses_costs_nobody_an_entry() {
    let mut world = World::new(4);
    world.save("kept", 4, true);
    world.set("p", Manner::Nacks(AckStatus::Missing));
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert!(world.cache.find("kept").is_some());
    world.set("p", Manner::Silent);
    world.request("b", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("b"), Decision::Wait);
    world.pass(Duration::from_secs(29));
    assert!(world.cache.find("kept").is_some(), "nothing is evicted before the producer agrees");
}

#[test]
fn a_request_of_two_sources_fails_for_the_one_that_fails() {
    let mut world = World::new(8);
    world.set("p", Manner::Asked);
    world.set("q", Manner::Slow);
    world.request("a", false, &[("h", "p", 3), ("i", "q", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    let question = world.questions.pop_front().unwrap();
    world.answer(&question, AckStatus::Internal);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    assert_eq!(world.aborted, 1, "the other read is given up");
    assert_eq!(world.cache.usage().free, 8);
    world.finish("a");
    world.pass(NANO);
    world.assert_at_rest();
}
