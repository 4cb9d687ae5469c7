//! What a call costs with ten thousand requests waiting. Steps are counted, not timed.

use chiasm_core::admission::Decision;

use super::producers::Manner;
use super::world::World;

#[test]
fn ten_thousand_waiting_requests_cost_a_look_up_per_call() {
    let mut world = World::new(1_000_000);
    for name in ["p", "q", "r"] {
        world.set(name, Manner::Asked);
    }
    let producers = ["p", "q", "r"];
    let ids: Vec<_> = (0..10_000).map(|number| format!("request-{number}")).collect();
    for (number, id) in ids.iter().enumerate() {
        let items: Vec<_> = (0..8)
            .map(|item| {
                let name = format!("hash-{number}-{item}");
                world.item(&name, producers[(number + item) % 3], 1, 1)
            })
            .collect();
        world.admission.track(world.now, id, items, &mut world.cache, &mut world.consumer).unwrap();
    }
    let step = |world: &mut World| {
        let before = world.admission.steps();
        for id in &ids {
            let decision =
                world.admission.ensure(world.now, id, 8, 0, &mut world.cache, &mut world.consumer);
            assert_eq!(decision, Some(Decision::Wait));
        }
        world.admission.steps() - before
    };
    let first = step(&mut world);
    assert!(first <= 3 * 80_000, "{first} steps for 80,000 items seen for the first time");
    assert_eq!(step(&mut world), 0, "nothing has changed");
    world.settle();
    assert_eq!(world.admission.live_transfers(), 3 * 256);

    // One read lands: its request is looked at, and whoever gets the free slot.
    world.set("p", Manner::Slow);
    world.agree("hash-0-0");
    let before = world.admission.steps();
    world.land(world.reading("hash-0-0", "p").unwrap());
    let landed = world.admission.steps() - before;
    assert!(landed <= 4 * 8, "{landed} steps for one read that has landed");
    assert_eq!(step(&mut world), 0);
}

#[test]
fn ten_thousand_requests_that_wait_for_room_cost_a_look_at_the_first() {
    let mut world = World::new(16);
    let load = world.save("kept", 16, true);
    world.cache.pin(load).unwrap();
    let ids: Vec<_> = (0..10_000).map(|number| format!("request-{number}")).collect();
    for id in &ids {
        let items = (0..8).map(|item| world.item(&format!("{id}-{item}"), "p", 1, 1)).collect();
        world.admission.track(world.now, id, items, &mut world.cache, &mut world.consumer).unwrap();
    }
    let step = |world: &mut World| {
        let before = world.admission.steps();
        for id in &ids {
            let decision =
                world.admission.ensure(world.now, id, 8, 0, &mut world.cache, &mut world.consumer);
            assert_eq!(decision, Some(Decision::Wait));
        }
        world.admission.steps() - before
    };
    step(&mut world);
    let second = step(&mut world);
    assert!(second <= 4 * 8, "{second} steps although only the first may start");
}

#[test]
fn a_running_request_costs_nothing_however_far_it_decodes() {
    let mut world = World::new(64);
    world.request("a", false, &[("h", "p", 3), ("i", "p", 2)]);
    world.ensure("a");
    assert_eq!(world.ensure("a"), Decision::Ready);
    world.compute("a", 5);
    world.ensure("a");
    let before = world.admission.steps();
    for tokens in 5..10_000 {
        world.compute("a", tokens);
        assert_eq!(world.ensure("a"), Decision::Ready);
    }
    assert_eq!(world.admission.steps(), before);
}
