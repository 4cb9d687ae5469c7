//! To whom a session id belongs.

use chiasm_core::limits::{MAX_SESSION_ID_BYTES, MAX_SESSIONS_PER_PEER};
use chiasm_core::plane::Plane;
use chiasm_core::producer::PeerId;
use chiasm_core::wire::{AckStatus, XferDone};

use super::{ALICE, ATTEMPT, BOB, LEASE_NANOS, World, at, planes, request};

#[test]
fn a_second_live_connection_cannot_use_a_session_until_the_first_is_gone() {
    let mut world = World::new(16);
    world.saved("h", 2);
    world.granted(at(0), ALICE, "s", "h");
    let reply = world.ask(at(0), BOB, "s", "h");
    assert_eq!(reply.status, AckStatus::Internal);
    assert_eq!(reply.reason.as_deref(), Some("session_in_use"));
    world.producer.peer_gone(ALICE, &mut world.cache);
    world.granted(at(0), BOB, "s", "h");
    assert_eq!(world.held(), (1, 2));
}

#[test]
fn a_session_is_claimed_even_by_a_request_that_is_refused_later() {
    let mut world = World::new(16);
    assert_eq!(world.ask(at(0), ALICE, "s", "nowhere").status, AckStatus::Missing);
    assert_eq!(world.ask(at(0), BOB, "s", "nowhere").status, AckStatus::Internal);
}

#[test]
fn session_ids_have_a_longest_length() {
    let mut world = World::new(16);
    world.saved("h", 2);
    let longest = "s".repeat(MAX_SESSION_ID_BYTES);
    let reply = world.ask(at(0), ALICE, &longest, "h");
    assert_eq!((reply.status, reply.session), (AckStatus::Ok, longest.clone()));
    let reply = world.ask(at(0), ALICE, &format!("{longest}s"), "h");
    assert_eq!((reply.status, reply.session.as_str()), (AckStatus::Internal, ""));
}

#[test]
fn one_connection_may_use_so_many_sessions_and_no_more() {
    let mut world = World::new(16);
    world.saved("h", 1);
    for session in 0..MAX_SESSIONS_PER_PEER {
        let reply = world.ask(at(0), ALICE, &format!("s{session}"), "nowhere");
        assert_eq!(reply.status, AckStatus::Missing);
    }
    let reply = world.ask(at(0), ALICE, "one more", "h");
    assert_eq!((reply.status, reply.reason.as_deref()), (AckStatus::Internal, Some("session_id")));
    world.granted(at(0), ALICE, "s0", "h");
    world.granted(at(0), BOB, "one more", "h");
    world.producer.peer_gone(ALICE, &mut world.cache);
    world.granted(at(0), PeerId(3), "s1", "h");
}

/// The shm grant outlives its connection, and its reader reads on. Who has a copy of its requests could
/// renew it on another connection, make it its own, and give it back under the reader.
#[test]
fn a_session_is_nobody_elses_while_a_grant_of_it_lives() {
    let mut world = World::new(16);
    let key = world.saved("h", 4);
    world.saved("i", 1);
    let mut shm = request("s", "h");
    shm.chiasm.as_mut().unwrap().planes = planes([Plane::Shm]);
    assert_eq!(world.send(at(0), ALICE, &shm).status, AckStatus::Ok);
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!(world.held(), (1, 4), "a loss of the connection ends tcp grants only (S8)");
    let copy = world.send(at(5), BOB, &shm);
    assert_eq!(copy.reason.as_deref(), Some("session_in_use"));
    assert_eq!(world.ask(at(5), BOB, "s", "i").reason.as_deref(), Some("session_in_use"));
    let done = XferDone { session_id: "s", mm_hash: "h", attempt: ATTEMPT }.encode();
    world.producer.handle_request(at(6), BOB, &done, &mut world.cache);
    world.producer.peer_gone(BOB, &mut world.cache);
    assert_eq!((world.held(), world.pins(key)), ((1, 4), 1));
    world.producer.handle_timeout(at(LEASE_NANOS), &mut world.cache);
    assert_eq!(world.pins(key), 1, "to the end of its lease");
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    assert_eq!(world.pins(key), 0);
    assert_eq!(world.send(at(LEASE_NANOS + 2), PeerId(3), &shm).status, AckStatus::Ok);
    assert_eq!(world.pins(key), 1, "then it is free");
}

#[test]
fn a_session_is_free_with_the_last_of_its_grants() {
    let mut world = World::new(16);
    world.saved("one", 1);
    world.saved("other", 1);
    let token = world.granted(at(0), ALICE, "s", "one");
    let stream = world.producer.open_stream(at(0), token).unwrap().stream;
    let mut shm = request("s", "other");
    shm.chiasm.as_mut().unwrap().planes = planes([Plane::Shm]);
    assert_eq!(world.send(at(0), ALICE, &shm).status, AckStatus::Ok);
    world.producer.peer_gone(ALICE, &mut world.cache);
    world.producer.reader_dead(ALICE, &mut world.cache);
    assert_eq!(world.ask(at(1), BOB, "s", "one").status, AckStatus::Internal);
    world.producer.stream_ended(stream, true, &mut world.cache);
    world.granted(at(1), BOB, "s", "one");
}

/// Hazard B7: ("s", "x:h1") and ("s:x", "h1") were one key.
#[test]
fn hazard_b7_pairs_that_read_alike_are_two_grants() {
    for [(session, hash), (other_session, other_hash)] in [
        [("s", "x:h1"), ("s:x", "h1")],
        [("a", ":b"), ("a:", "b")],
        [("a", "bc"), ("ab", "c")],
        [("a\0", "b"), ("a", "\0b")],
    ] {
        let mut world = World::new(16);
        let (first, second) = (world.saved(hash, 1), world.saved(other_hash, 2));
        let token = world.granted(at(0), ALICE, session, hash);
        let other_token = world.granted(at(0), ALICE, other_session, other_hash);
        assert_ne!(token, other_token);
        assert_eq!((world.pins(first), world.pins(second)), (1, 1));
        let stream = world.producer.open_stream(at(1), token).unwrap();
        assert_eq!(stream.bytes, 64);
        world.producer.stream_ended(stream.stream, true, &mut world.cache);
        assert_eq!((world.pins(first), world.pins(second)), (0, 1));
        let stream = world.producer.open_stream(at(1), other_token).unwrap();
        world.producer.stream_ended(stream.stream, true, &mut world.cache);
        world.at_rest();
    }
}
