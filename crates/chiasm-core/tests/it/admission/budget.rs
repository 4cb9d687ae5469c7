//! One clock per (request, `mm_hash`): when it starts, what does not restart it, when it is over.

use std::time::Duration;

use chiasm_core::admission::{Decision, Event, Verdict};
use chiasm_core::wire::AckStatus;
use rstest::rstest;

use super::producers::Manner;
use super::world::{NANO, World};

const BUDGET: Duration = Duration::from_mins(1);

#[rstest]
#[case::an_ack(Manner::Silent)]
#[case::a_producer_that_is_never_ready(Manner::Nacks(AckStatus::NotReady))]
#[case::a_producer_that_is_gone(Manner::Refuses)]
#[case::a_producer_out_of_reach(Manner::BlackHole)]
#[case::bytes_that_never_come(Manner::Slow)]
#[case::a_plane_that_fails(Manner::NoBytes)]
fn the_budget_is_over_when_more_than_it_has_passed(#[case] manner: Manner) {
    let mut world = World::new(8);
    world.set("p", manner);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(BUDGET.saturating_sub(NANO));
    assert_eq!(world.ensure("a"), Decision::Wait, "one nanosecond before");
    world.pass(NANO);
    assert_eq!(world.ensure("a"), Decision::Wait, "at the budget");
    assert!(world.failed.is_empty());
    world.pass(NANO);
    assert_eq!(world.failed, ["a"], "one nanosecond after, without a step of the engine");
    assert_eq!(world.ensure("a"), Decision::Unavailable);
    let report = &world.report("a")[0];
    assert_eq!(report.verdict, Verdict::Unavailable);
    assert_eq!(report.reason.unwrap().word(), "budget");
    assert_eq!(report.waited, BUDGET + NANO);
    world.pass(BUDGET);
    assert_eq!(world.failed, ["a"], "reported once");
    world.finish("a");
    world.heal();
    world.pass(BUDGET);
    world.assert_at_rest();
}

#[test]
fn ensure_finds_a_spent_budget_even_if_nobody_looked_at_the_clock() {
    let mut world = World::new(8);
    world.set("p", Manner::Silent);
    world.request("a", true, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.now = world.now.after(BUDGET);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.now = world.now.after(NANO);
    assert_eq!(world.ensure("a"), Decision::Fallback);
}

#[test]
fn the_clock_starts_at_the_first_wait_not_when_the_request_is_seen() {
    let mut world = World::new(8);
    world.set("p", Manner::Silent);
    world.request("a", true, &[("h", "p", 3)]);
    world.pass(2 * BUDGET);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(BUDGET);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(NANO);
    assert_eq!(world.ensure("a"), Decision::Fallback);
}

#[test]
fn retries_and_long_steps_do_not_restart_it() {
    let mut world = World::new(8);
    world.set("p", Manner::Nacks(AckStatus::NotReady));
    world.request("a", false, &[("h", "p", 3)]);
    for _ in 0..3 {
        assert_eq!(world.ensure("a"), Decision::Wait);
        world.pass(Duration::from_secs(20));
    }
    assert!(world.sent.len() > 10, "it was asked for again and again");
    world.pass(Duration::from_secs(61));
    assert_eq!(world.ensure("a"), Decision::Unavailable);
}

#[test]
fn two_requests_of_one_hash_have_clocks_of_their_own() {
    let mut world = World::new(8);
    world.set("p", Manner::Silent);
    world.request("old", false, &[("h", "p", 3)]);
    world.request("new", false, &[("h", "p", 3)]);
    world.request("gone", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("old"), Decision::Wait);
    assert_eq!(world.ensure("gone"), Decision::Wait);
    world.pass(Duration::from_secs(40));
    assert_eq!(world.ensure("new"), Decision::Wait);
    world.finish("gone");
    world.pass(Duration::from_secs(20) + NANO);
    assert_eq!(world.ensure("old"), Decision::Unavailable);
    assert_eq!(world.ensure("new"), Decision::Wait);
    world.set("p", Manner::Healthy);
    world.heal();
    world.pass(Duration::from_secs(35));
    assert_eq!(world.ensure("new"), Decision::Ready);
    assert_eq!(world.failed, ["old"]);
}

#[test]
fn a_new_wait_after_a_decision_has_a_new_budget() {
    let mut world = World::new(4);
    world.request("a", false, &[("h", "p", 3)]);
    world.ensure("a");
    world.pass(Duration::from_secs(50));
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.compute("a", 3);
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.save("other", 4, true);
    world.set("p", Manner::Silent);
    world.compute("a", 0);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(Duration::from_secs(59));
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.ensure("a"), Decision::Unavailable);
}

#[test]
fn an_item_that_was_promised_and_is_gone_has_a_new_budget() {
    let mut world = World::new(4);
    world.request("a", false, &[("h", "p", 3)]);
    world.ensure("a");
    world.pass(Duration::from_secs(50));
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.release("a", "h");
    world.save("other", 4, true);
    world.set("p", Manner::Silent);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(BUDGET);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(NANO);
    assert_eq!(world.ensure("a"), Decision::Unavailable);
}

#[test]
fn each_ack_time_out_is_one_event_with_what_is_left() {
    let mut world = World::new(8);
    world.set("p", Manner::Silent);
    world.request("a", false, &[("h", "p", 3)]);
    world.ensure("a");
    world.pass(Duration::from_secs(45));
    let lines: Vec<_> = world
        .events
        .iter()
        .filter_map(|event| match event {
            Event::AckTimeout { attempt, waited, budget_left, .. } => {
                Some((*attempt, *waited, *budget_left))
            }
            _ => None,
        })
        .collect();
    let waited = Duration::from_secs(30) + NANO;
    assert_eq!(lines, [(1, waited, BUDGET.saturating_sub(waited))]);
}
