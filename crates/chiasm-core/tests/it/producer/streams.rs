//! Data streams: a token opens once, and each stream ends exactly one grant.

use chiasm_core::producer::GrantToken;

use super::{ALICE, BOB, LEASE_NANOS, World, at};

#[test]
fn a_token_opens_once() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    let token = world.granted(at(0), ALICE, "s", "h");
    let read = world.producer.open_stream(at(1), token).unwrap();
    assert_eq!((read.bytes, read.deadline), (192, at(LEASE_NANOS)));
    assert_eq!(read.extents, world.cache.entry(key).unwrap().extents());
    assert_eq!(world.producer.open_stream(at(1), token), None);
    assert_eq!((world.held(), world.pins(key)), ((1, 3), 1), "the pin went over to the stream");
    assert_eq!(world.producer.open_stream(at(1), GrantToken::default()), None);
    assert_eq!(world.producer.counters().bad_tokens, 2);
}

#[test]
fn a_stream_ends_exactly_once() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    let first = world.granted(at(0), ALICE, "s", "h");
    let first = world.producer.open_stream(at(1), first).unwrap().stream;
    let second = world.granted(at(1), ALICE, "s", "h");
    let second = world.producer.open_stream(at(1), second).unwrap().stream;
    assert_ne!(first, second);
    assert_eq!(world.pins(key), 2, "a request while a stream is under way is a new grant");
    for _ in 0..3 {
        world.producer.stream_ended(first, true, &mut world.cache);
        assert_eq!(world.pins(key), 1);
    }
    world.producer.stream_ended(second, false, &mut world.cache);
    world.at_rest();
    let counters = world.producer.counters();
    assert_eq!((counters.completed, counters.lost), (1, 1));
}

#[test]
fn the_loss_of_a_connection_ends_its_unopened_tcp_grants_and_nothing_else() {
    let mut world = World::new(16);
    let (a, b) = (world.saved("a", 1), world.saved("b", 1));
    let opened = world.granted(at(0), ALICE, "s", "a");
    let opened = world.producer.open_stream(at(0), opened).unwrap().stream;
    let unopened = world.granted(at(0), ALICE, "s", "b");
    let bobs = world.granted(at(0), BOB, "t", "b");
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!((world.pins(a), world.pins(b)), (1, 1));
    assert_eq!(world.producer.open_stream(at(1), unopened), None);
    assert!(world.producer.open_stream(at(1), bobs).is_some());
    world.producer.stream_ended(opened, true, &mut world.cache);
    assert_eq!((world.pins(a), world.pins(b)), (0, 1));
    let counters = world.producer.counters();
    assert_eq!((counters.completed, counters.lost), (1, 1));
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!(world.pins(b), 1, "a peer is gone once");
}

#[test]
fn a_stream_that_runs_into_the_end_of_its_lease_is_named_to_be_closed() {
    let mut world = World::new(16);
    world.saved("h", 3);
    let token = world.granted(at(0), ALICE, "s", "h");
    let stream = world.producer.open_stream(at(1), token).unwrap().stream;
    assert_eq!(world.producer.handle_timeout(at(LEASE_NANOS), &mut world.cache), []);
    assert_eq!(world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache), [stream]);
    world.at_rest();
    world.producer.stream_ended(stream, false, &mut world.cache);
    let counters = world.producer.counters();
    assert_eq!((counters.expired, counters.lost), (1, 0), "one grant, one end");
}

#[test]
fn an_entry_without_blocks_streams_no_bytes() {
    let mut world = World::new(16);
    world.saved("h", 0);
    let token = world.granted(at(0), ALICE, "s", "h");
    let read = world.producer.open_stream(at(0), token).unwrap();
    assert_eq!((read.bytes, read.extents.len()), (0, 0));
    world.producer.stream_ended(read.stream, true, &mut world.cache);
    world.at_rest();
}
