//! Each limit bites, and only the request that meets it feels it.

use chiasm_core::admission::limits::{
    MAX_EVENTS, MAX_ITEMS_PER_REQUEST, MAX_REFUSALS_REMEMBERED, MAX_REQUEST_ID_BYTES, MAX_REQUESTS,
    MAX_TRANSFERS_PER_SOURCE,
};
use chiasm_core::admission::{AdmissionConfig, Decision, Event, Item, Reason, Untracked};

use super::producers::Manner;
use super::world::World;

fn track(world: &mut World, id: &str, items: Vec<Item>) -> Result<(), Untracked> {
    world.admission.track(world.now, id, items, &mut world.cache, &mut world.consumer)
}

fn taken(world: &mut World) -> Vec<String> {
    world.settle();
    std::mem::take(&mut world.failed)
}

#[test]
fn requests_beyond_the_limit_are_decided_on_the_spot() {
    let mut world = World::new(8);
    let item = world.item("h", "p", 1, 1);
    for number in 0..MAX_REQUESTS {
        let tracked = world.admission.track(
            world.now,
            &number.to_string(),
            vec![],
            &mut world.cache,
            &mut world.consumer,
        );
        assert!(tracked.is_ok());
    }
    let with_pixels = Item { local_input: true, ..item.clone() };
    let refused = track(&mut world, "with pixels", vec![with_pixels.clone()]).unwrap_err();
    assert_eq!(refused.decision, Decision::Fallback);
    assert_eq!(refused.to_string(), "the request is not tracked: more than 65536 requests at once");
    let refused = track(&mut world, "without", vec![with_pixels.clone(), item]).unwrap_err();
    assert_eq!(refused.decision, Decision::Unavailable);
    assert_eq!(taken(&mut world), ["without"]);
    world.finish("7");
    assert!(track(&mut world, "with pixels", vec![with_pixels]).is_ok());
}

#[test]
fn items_beyond_the_limits_fail_a_request_alone() {
    let mut world = World::new(8);
    let item = world.item("h", "p", 1, 1);
    world.request("a", false, &[("i", "p", 2)]);
    let many = vec![item.clone(); MAX_ITEMS_PER_REQUEST + 1];
    assert!(matches!(
        track(&mut world, "b", many.clone()),
        Err(Untracked { reason: Reason::TooMany { .. }, decision: Decision::Unavailable })
    ));
    assert_eq!(taken(&mut world), ["b"]);
    world.request("c", true, &[("i", "p", 2)]);
    assert!(track(&mut world, "c", many).is_err(), "a live one outgrows it");
    assert_eq!(taken(&mut world), ["c"]);
    assert_eq!(world.ensure("c"), Decision::Unavailable);
    world.ensure("a");
    assert_eq!(world.ensure("a"), Decision::Ready);

    let config = AdmissionConfig { max_items: 3, ..AdmissionConfig::default() };
    let mut world = World::with(8, config);
    world.request("a", false, &[("i", "p", 1), ("j", "p", 1)]);
    let pair = vec![item.clone(), Item { hash: super::world::hash("k"), ..item }];
    assert!(track(&mut world, "b", pair.clone()).is_err());
    world.finish("a");
    assert!(track(&mut world, "c", pair).is_ok());
}

#[test]
fn a_request_id_beyond_the_limit_is_not_kept() {
    let mut world = World::new(8);
    let item = world.item("h", "p", 1, 1);
    let longest = "x".repeat(MAX_REQUEST_ID_BYTES);
    assert!(track(&mut world, &longest, vec![item.clone()]).is_ok());
    let refused = track(&mut world, &format!("{longest}x"), vec![item]).unwrap_err();
    assert_eq!(refused.decision, Decision::Unavailable);
}

#[test]
fn events_beyond_the_limit_are_counted() {
    let mut world = World::new(8);
    for number in 0..MAX_EVENTS + 10 {
        let id = number.to_string();
        let item = world.item("h", "evil", 1, 1);
        track(&mut world, &id, vec![item]).unwrap();
        world.admission.ensure(world.now, &id, 1, 0, &mut world.cache, &mut world.consumer);
    }
    // One line for the endpoint, one for each request.
    assert_eq!(world.admission.dropped_events(), 11);
    world.settle();
    assert_eq!(world.events.len(), MAX_EVENTS);
    assert_eq!(world.failed.len(), MAX_EVENTS + 10, "reports are not log lines");
}

#[test]
fn refusals_are_remembered_up_to_the_limit() {
    let mut world = World::new(8);
    let refused = |world: &mut World, host: usize| {
        world.request("a", true, &[("h", &format!("evil{host}"), 1)]);
        world.ensure("a");
        world.finish("a");
        world.events.iter().filter(|event| matches!(event, Event::Refused(_))).count()
    };
    for host in 0..MAX_REFUSALS_REMEMBERED {
        assert_eq!(refused(&mut world, host), host + 1);
    }
    assert_eq!(refused(&mut world, 0), MAX_REFUSALS_REMEMBERED, "said already");
    assert_eq!(refused(&mut world, MAX_REFUSALS_REMEMBERED), MAX_REFUSALS_REMEMBERED + 1);
    assert_eq!(refused(&mut world, 0), MAX_REFUSALS_REMEMBERED + 2, "forgotten, so said again");
}

#[test]
fn transfers_from_one_producer_are_limited_and_the_rest_takes_turns() {
    let mut world = World::new(2048);
    world.set("p", Manner::Asked);
    let names: Vec<_> = (0..MAX_TRANSFERS_PER_SOURCE + 44).map(|it| format!("h{it}")).collect();
    let items: Vec<_> = names.iter().map(|name| (name.as_str(), "p", 1)).collect();
    world.request("large", false, &items);
    world.request("same producer", false, &[("i", "p", 1)]);
    world.request("another", false, &[("j", "q", 1)]);
    assert_eq!(world.ensure("large"), Decision::Wait);
    assert_eq!(world.ensure("same producer"), Decision::Wait);
    world.ensure("another");
    assert_eq!(world.ensure("another"), Decision::Ready, "another producer is not concerned");
    assert_eq!(world.questions.len(), MAX_TRANSFERS_PER_SOURCE);
    assert_eq!(world.admission.live_transfers(), MAX_TRANSFERS_PER_SOURCE);
    world.set("p", Manner::Healthy);
    let first = world.questions[0].hash.clone();
    world.agree(&first);
    assert_eq!(
        world.sent.len(),
        MAX_TRANSFERS_PER_SOURCE + 1 + 45,
        "one slot serves them all in turn"
    );
    assert_eq!(world.ensure("same producer"), Decision::Ready);
    world.heal();
    assert_eq!(world.ensure("large"), Decision::Ready);
}

#[test]
fn an_aborted_transfer_gives_its_turn_to_the_next() {
    let config = AdmissionConfig { max_transfers_per_source: 1, ..AdmissionConfig::default() };
    let mut world = World::with(8, config);
    world.set("p", Manner::Silent);
    world.request("a", false, &[("h", "p", 1)]);
    world.request("b", false, &[("i", "p", 1)]);
    assert_eq!(world.ensure("a"), Decision::Wait);
    assert_eq!(world.ensure("b"), Decision::Wait);
    assert_eq!(world.sent.len(), 1);
    world.set("p", Manner::Healthy);
    world.finish("a");
    assert_eq!(world.ensure("b"), Decision::Ready);
}
