//! A producer that is about to stop: nothing new, and what was granted is kept.

use chiasm_core::wire::AckStatus;

use super::{ALICE, BOB, World, at, request};

#[test]
fn a_draining_producer_refuses_every_request_and_keeps_its_grants() {
    let mut world = World::new(16);
    let key = world.saved("h", 2);
    let token = world.granted(at(0), ALICE, "alice", "h");
    world.producer.drain();
    assert!(world.producer.is_draining());

    for (peer, session, hash) in
        [(ALICE, "alice", "h"), (ALICE, "alice", "nowhere"), (BOB, "bob", "h")]
    {
        let reply = world.ask(at(1), peer, session, hash);
        assert_eq!(reply.status, AckStatus::Internal, "final: what is here goes away");
        assert_eq!(reply.reason.as_deref(), Some("draining"));
    }
    assert_eq!(world.held(), (1, 2), "the renewal took nothing away either");

    let read = world.producer.open_stream(at(2), token).expect("the grant stands");
    assert_eq!(world.pins(key), 1);
    world.producer.stream_ended(read.stream, true, &mut world.cache);
    world.at_rest();
    assert_eq!(world.producer.counters().nacks[usize::from(AckStatus::Internal.code())], 3);
}

#[test]
fn who_could_never_have_been_served_is_told_that_instead() {
    let mut world = World::new(16);
    world.producer.drain();
    let mut other = request("s", "h");
    other.compatibility_hash = "another";
    assert_eq!(world.send(at(0), ALICE, &other).reason.as_deref(), Some("compat_hash"));
}

#[test]
fn a_draining_producer_remembers_no_new_session() {
    let mut world = World::new(16);
    world.producer.drain();
    for number in 0..100 {
        let reply = world.ask(at(0), ALICE, &format!("s{number}"), "h");
        assert_eq!(reply.reason.as_deref(), Some("draining"));
    }
}
