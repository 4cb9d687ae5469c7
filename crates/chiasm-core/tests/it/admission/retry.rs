//! Retries, back-off and breakers.

use std::time::Duration;

use chiasm_core::admission::{Decision, Event, Gate, Verdict};
use chiasm_core::consumer::{FailureReason, ReadEnd};
use chiasm_core::plane::Plane;
use chiasm_core::wire::AckStatus;

use super::producers::Manner;
use super::world::{CONNECT_TIMEOUT, NANO, World, producer};

const STEP: Duration = Duration::from_millis(10);

fn opened(world: &World) -> usize {
    world.events.iter().filter(|event| matches!(event, Event::BreakerOpened { .. })).count()
}

#[test]
fn hazard_c9_not_ready_is_asked_again_with_back_off_not_in_every_step() {
    let mut world = World::new(8);
    world.set("p", Manner::Nacks(AckStatus::NotReady));
    world.request("a", false, &[("h", "p", 3)]);
    for _ in 0..1000 {
        assert_eq!(world.ensure("a"), Decision::Wait);
        world.pass(Duration::from_millis(1));
    }
    assert!((4..=8).contains(&world.sent.len()), "{} requests in 1000 steps", world.sent.len());
    assert_eq!(opened(&world), 0, "a producer that answers is not down");
    world.set("p", Manner::Healthy);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.report("a")[0].attempts as usize, world.sent.len());
}

#[test]
fn hazard_c10_a_refused_producer_costs_an_item_with_pixels_less_than_a_second() {
    let mut world = World::new(8);
    world.set("p", Manner::Refuses);
    world.request("a", true, &[("h", "p", 3)]);
    let start = world.now;
    let decision = world.run_until_decided("a", STEP, 100);
    assert_eq!(decision, Decision::Fallback);
    let waited = world.now.since(start);
    assert!(waited < Duration::from_millis(250), "{waited:?}");
    assert_eq!(world.contacts.len(), 3);
    let report = &world.report("a")[0];
    assert_eq!((report.verdict, report.attempts), (Verdict::Fallback, 3));
    assert_eq!(report.reason.unwrap().word(), "producer_down");
    // The next one does not even try.
    world.request("b", true, &[("i", "p", 3)]);
    assert_eq!(world.ensure("b"), Decision::Fallback);
    assert_eq!(world.contacts.len(), 3);
}

#[test]
fn hazard_c10_also_where_items_ask_one_after_the_other_for_want_of_room() {
    // A refused attempt gives its room to the next one at the same instant, and so on.
    let mut world = World::new(4);
    world.set("p", Manner::Refuses);
    let names: Vec<String> = (0..10).map(|n| format!("r{n}")).collect();
    for name in &names {
        world.request(name, true, &[(name, "p", 3)]);
    }
    let start = world.now;
    for name in &names {
        assert_eq!(world.run_until_decided(name, STEP, 100), Decision::Fallback);
    }
    let waited = world.now.since(start);
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    assert_eq!(world.contacts.len(), 3);
}

#[test]
fn a_black_holed_producer_costs_an_item_with_pixels_one_connect_timeout() {
    let mut world = World::new(8);
    world.set("p", Manner::BlackHole);
    world.request("a", true, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(CONNECT_TIMEOUT.saturating_sub(NANO));
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(NANO);
    assert_eq!(world.ensure("a"), Decision::Fallback);
}

#[test]
fn items_without_pixels_wait_for_the_producers_return_inside_their_budget() {
    let mut world = World::new(8);
    world.set("p", Manner::Refuses);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(Duration::from_secs(40));
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert!(world.contacts.len() < 15, "{} connections in 40 s", world.contacts.len());
    world.set("p", Manner::Healthy);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert!(world.events.iter().any(|event| matches!(event, Event::BreakerClosed { .. })));
    assert_eq!(world.admission.gate(world.now, &producer("p")), Gate::Closed);
}

#[test]
fn a_restart_of_the_producer_is_one_outage_however_many_items_wait() {
    let mut world = World::new(64);
    world.set("p", Manner::Asked);
    let names = ["h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7"];
    let items: Vec<_> = names.iter().map(|name| (*name, "p", 2)).collect();
    world.request("a", true, &items);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.questions.len(), 8);
    // Its connection breaks under all eight, and comes back.
    world.set("p", Manner::Refuses);
    world.set("p", Manner::Healthy);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.pass(Duration::from_millis(50));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(opened(&world), 0);
}

#[test]
fn one_probe_at_a_time_goes_to_a_producer_that_is_down() {
    let mut world = World::new(64);
    world.set("p", Manner::Refuses);
    world.request("a", false, &[("h0", "p", 2), ("h1", "p", 2), ("h2", "p", 2)]);
    world.request("b", false, &[("h3", "p", 2)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Wait);
    world.pass(Duration::from_secs(1));
    assert_eq!(opened(&world), 1);
    world.set("p", Manner::Asked);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.questions.len(), 1, "the probe");
    let probe = world.questions.pop_front().unwrap();
    world.answer(&probe, AckStatus::NotReady);
    assert_eq!(world.questions.len(), 3, "it answers, so the others are asked for at once");
    for name in ["h0", "h1", "h2", "h3"] {
        if name != probe.hash {
            world.set("p", Manner::Healthy);
            world.agree(name);
        }
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.ensure("b"), Decision::Ready);
}

#[test]
fn a_probe_that_is_aborted_is_followed_by_another() {
    let mut world = World::new(64);
    world.set("p", Manner::Refuses);
    world.request("a", false, &[("h0", "p", 2)]);
    world.request("b", false, &[("h1", "p", 2)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Wait);
    world.pass(Duration::from_millis(500));
    world.set("p", Manner::Asked);
    world.pass(Duration::from_secs(2));
    assert_eq!(world.questions.len(), 1);
    let probed = if world.questions[0].hash == "h0" { "a" } else { "b" };
    let other = if probed == "a" { "b" } else { "a" };
    world.set("p", Manner::Healthy);
    world.finish(probed);
    world.pass(NANO);
    assert_eq!(world.ensure(other), Decision::Ready);
}

#[test]
fn while_a_breaker_is_open_a_request_with_pixels_probes_only_when_it_is_time() {
    let mut world = World::new(64);
    world.set("p", Manner::Refuses);
    world.request("a", true, &[("h", "p", 2)]);
    assert_eq!(world.run_until_decided("a", STEP, 100), Decision::Fallback);
    world.set("p", Manner::Healthy);
    world.request("b", true, &[("i", "p", 2)]);
    assert_eq!(world.ensure("b"), Decision::Fallback, "still taken to be down");
    world.pass(Duration::from_secs(1));
    world.request("c", true, &[("j", "p", 2)]);
    assert_eq!(world.ensure("c"), Decision::Wait, "it is the probe");
    assert_eq!(world.ensure("c"), Decision::Ready);
    assert_eq!(world.ensure("b"), Decision::Fallback, "for good, over many steps");
    assert_eq!(world.sent.len(), 1);
}

#[test]
fn wrong_bytes_get_one_more_try_and_then_no_other() {
    for pixels in [false, true] {
        let mut world = World::new(8);
        world.set("p", Manner::WrongBytes);
        world.request("a", pixels, &[("h", "p", 3)]);
        let wanted = if pixels { Decision::Fallback } else { Decision::Unavailable };
        assert_eq!(world.run_until_decided("a", STEP, 100), wanted);
        assert_eq!(world.sent.len(), 2);
        assert_eq!(world.verdict("a").1.unwrap().word(), "digest");
        let blamed =
            world.events.iter().filter(|event| matches!(event, Event::WrongBytes { .. })).count();
        assert_eq!(blamed, 2);
        // Wrong bytes count like an outage: the third opens the breaker.
        world.request("b", true, &[("i", "p", 3)]);
        assert_eq!(world.run_until_decided("b", STEP, 100), Decision::Fallback);
        assert_eq!(world.sent.len(), 3);
        assert_eq!(world.admission.gate(world.now, &producer("p")), Gate::Open);
    }
}

#[test]
fn wrong_bytes_once_are_forgiven() {
    let mut world = World::new(8);
    world.set("p", Manner::WrongBytes);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    world.set("p", Manner::Healthy);
    world.pass(Duration::from_millis(60));
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.admission.troubled_sources().count(), 0);
}

#[test]
fn after_a_fallback_the_announcement_is_never_tried_again() {
    let mut world = World::new(8);
    world.set("p", Manner::Nacks(AckStatus::Missing));
    world.request("a", true, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("a"), Decision::Fallback);
    world.set("p", Manner::Healthy);
    for tokens in (0..3).rev() {
        world.compute("a", tokens);
        for _ in 0..50 {
            assert_eq!(world.ensure("a"), Decision::Fallback);
            world.pass(STEP);
        }
    }
    assert_eq!(world.sent.len(), 1);
    let lines = world.events.iter().filter(|event| matches!(event, Event::FellBack { .. })).count();
    assert_eq!(lines, 1);
    // The entry that another request's read brings is good for it all the same.
    world.request("b", false, &[("h", "p", 3)]);
    world.ensure("b");
    assert_eq!(world.ensure("a"), Decision::Ready);
    assert_eq!(world.report("a")[0].verdict, Verdict::Ready);
    assert_eq!(world.admission.fell_back("a").count(), 1, "once named, always named");
}

#[test]
fn same_seed_same_run() {
    let run = || {
        let mut world = World::new(8);
        world.set("p", Manner::Refuses);
        world.set("q", Manner::Nacks(AckStatus::NotReady));
        world.request("a", false, &[("h", "p", 3), ("i", "q", 2)]);
        for _ in 0..200 {
            world.ensure("a");
            world.pass(Duration::from_millis(100));
        }
        (world.sent, world.contacts.len(), format!("{:?}", world.events))
    };
    assert_eq!(run(), run());
}

#[test]
fn a_probe_that_finds_no_room_is_sent_when_there_is_some() {
    let mut world = World::new(6);
    world.set("p", Manner::Refuses);
    world.request("a", true, &[("h", "p", 2)]);
    assert_eq!(world.run_until_decided("a", STEP, 100), Decision::Fallback);
    world.pass(Duration::from_secs(2));
    let load = world.save("kept", 6, true);
    world.cache.pin(load).unwrap();
    world.request("b", false, &[("i", "p", 2)]);
    assert_eq!(world.ensure("b"), Decision::Wait);
    world.set("p", Manner::Healthy);
    world.pass(Duration::from_secs(5));
    assert!(world.sent.is_empty());
    world.cache.unpin(load).unwrap();
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ensure("b"), Decision::Ready);
}

/// Another plane is tried without a pause, once: a producer that looks new with every answer keeps
/// nobody busy.
#[test]
fn a_plane_that_does_not_reach_is_followed_by_another_attempt_at_once() {
    let mut world = World::new(8);
    world.set("p", Manner::Slow);
    world.request("a", false, &[("h", "p", 3)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    let fall_away = |world: &mut World| {
        let transfer = *world.reads.keys().next().expect("bytes are on their way");
        world.reads.clear();
        let reason = FailureReason::PlaneAway { plane: Plane::Shm, why: "for a test".into() };
        let end = ReadEnd::Failed(reason);
        world.consumer.read_ended(world.now, transfer, end, &mut world.cache);
        world.settle();
    };
    fall_away(&mut world);
    assert_eq!(world.sent.len(), 2, "no time has passed");
    fall_away(&mut world);
    assert_eq!(world.sent.len(), 2);
    world.pass(Duration::from_secs(1));
    assert_eq!((world.ensure("a"), world.sent.len()), (Decision::Wait, 3));
    assert_eq!(opened(&world), 0, "the producer answers");
}
