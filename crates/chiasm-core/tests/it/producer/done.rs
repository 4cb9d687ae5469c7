//! Readers that say that they are done: each ends its own grant, and nobody else's.

use chiasm_core::host_hint::HostHint;
use chiasm_core::plane::Plane;
use chiasm_core::producer::{PeerId, ReaderRegion};
use chiasm_core::wire::{AckExtension, AckLimits, AckStatus, XferAck, XferDone};

use super::{ALICE, ATTEMPT, BOB, LEASE_NANOS, World, at, planes, request};

impl World {
    /// An shm grant for this session, asked for under this number.
    fn shared(&mut self, peer: PeerId, session: &str, hash: &str, attempt: u32) -> Vec<u8> {
        let mut request = request(session, hash);
        let chiasm = request.chiasm.as_mut().unwrap();
        chiasm.planes = planes([Plane::Shm]);
        chiasm.attempt = attempt;
        let reply = self.send(at(0), peer, &request);
        assert_eq!((reply.status, reply.token), (AckStatus::Ok, None));
        reply.bytes
    }

    /// Whether this ended a grant.
    fn done(&mut self, peer: PeerId, session: &str, hash: &str, attempt: u32) -> bool {
        let done = XferDone { mm_hash: hash, session_id: session, attempt }.encode();
        let before = self.producer.counters();
        let answer = self.producer.handle_request(at(1), peer, &done, &mut self.cache);
        assert_eq!(answer, None, "nobody answers a done");
        self.check();
        let after = self.producer.counters();
        let counted = (after.done - before.done, after.stray_dones - before.stray_dones);
        assert!(counted == (1, 0) || counted == (0, 1), "{counted:?}");
        counted == (1, 0)
    }
}

fn extension(bytes: &[u8]) -> AckExtension<'_> {
    XferAck::decode(bytes, &AckLimits::default()).unwrap().chiasm.unwrap()
}

#[test]
fn shm_is_granted_to_who_looks_for_regions_in_the_same_place() {
    let mut world = World::new(16);
    world.saved("h", 3);
    let bytes = world.shared(ALICE, "s", "h", 1);
    let ack = extension(&bytes);
    assert_eq!((ack.plane, ack.region), (Some(Plane::Shm), Some("chiasm-ours")));
    for host in [None, Some(HostHint([5; 16]))] {
        let mut request = request("other", "h");
        let chiasm = request.chiasm.as_mut().unwrap();
        (chiasm.host, chiasm.planes) = (host, planes([Plane::Shm, Plane::Tcp]));
        let reply = world.send(at(0), ALICE, &request);
        let ack = extension(&reply.bytes);
        assert_eq!((ack.plane, ack.region), (Some(Plane::Tcp), None), "{host:?}");
        request.chiasm.as_mut().unwrap().planes = planes([Plane::Shm]);
        let reply = world.send(at(0), ALICE, &request);
        assert_eq!(reply.reason.as_deref(), Some("no_plane"));
    }
}

#[test]
fn each_done_ends_exactly_its_own_grant() {
    let mut world = World::new(16);
    let (one, other) = (world.saved("one", 3), world.saved("other", 2));
    world.shared(ALICE, "s", "one", 1);
    world.shared(ALICE, "s", "other", 2);
    world.shared(BOB, "t", "one", 1);
    assert_eq!((world.pins(one), world.pins(other)), (2, 1));
    assert!(world.done(ALICE, "s", "one", 1));
    assert_eq!((world.pins(one), world.pins(other)), (1, 1));
    assert!(!world.done(ALICE, "s", "one", 1), "a replay finds nothing");
    assert!(world.done(ALICE, "s", "other", 2));
    assert!(world.done(BOB, "t", "one", 1));
    world.at_rest();
}

#[test]
fn hazard_d7_a_done_of_another_connection_ends_nothing() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    world.shared(ALICE, "s", "h", 1);
    assert!(!world.done(BOB, "s", "h", 1), "with the session, the hash and the number known");
    assert!(!world.done(BOB, "t", "h", 1));
    assert!(!world.done(ALICE, "t", "h", 1), "a session that nobody has");
    assert_eq!(world.pins(key), 1);
    // The connection is lost: the grant is nobody's until its lease ends (S8) ...
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert!(!world.done(ALICE, "s", "h", 1));
    // ... and so is its session.
    assert_eq!(world.ask(at(0), BOB, "s", "h").reason.as_deref(), Some("session_in_use"));
    assert!(!world.done(BOB, "s", "h", 1));
    assert!(!world.done(BOB, "s", "h", ATTEMPT));
    assert_eq!(world.pins(key), 1);
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.at_rest();
}

#[test]
fn a_done_that_a_renewal_has_overtaken_ends_nothing() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    world.shared(ALICE, "s", "h", 1);
    let renewed = world.shared(ALICE, "s", "h", 2);
    assert_eq!(extension(&renewed).attempt, 2);
    assert_eq!(world.pins(key), 1);
    assert!(!world.done(ALICE, "s", "h", 1));
    assert_eq!(world.pins(key), 1);
    assert!(world.done(ALICE, "s", "h", 2));
    world.at_rest();
}

#[test]
fn a_tcp_grant_that_nobody_opens_can_be_given_back_and_a_stream_cannot() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    world.granted(at(0), ALICE, "s", "h");
    assert!(world.done(ALICE, "s", "h", ATTEMPT));
    let token = world.granted(at(0), ALICE, "s", "h");
    let stream = world.producer.open_stream(at(0), token).unwrap().stream;
    assert!(!world.done(ALICE, "s", "h", ATTEMPT), "its bytes are on their way");
    assert_eq!(world.pins(key), 1);
    world.producer.stream_ended(stream, true, &mut world.cache);
    world.at_rest();
}

#[test]
fn ten_thousand_grants_that_are_done_leave_nothing_pinned() {
    let mut world = World::new(16);
    world.saved("h", 3);
    for attempt in 1..=10_000 {
        world.shared(ALICE, "s", "h", attempt);
        assert!(world.done(ALICE, "s", "h", attempt));
    }
    world.producer.peer_gone(ALICE, &mut world.cache);
    world.at_rest();
}

#[test]
fn bytes_that_are_neither_request_nor_done_are_dropped_and_counted() {
    let mut world = World::new(16);
    let done = XferDone { mm_hash: "h", session_id: "s", attempt: 1 }.encode();
    let (cut, mut long) = (&done[..done.len() - 1], done.clone());
    long.push(0);
    for (count, bytes) in (1..).zip([cut, &long, b"\x81\xa4type\xa4done", b"\x81\xa4type\xa3ack"]) {
        assert_eq!(world.producer.handle_request(at(0), ALICE, bytes, &mut world.cache), None);
        assert_eq!(world.producer.counters().malformed, count);
    }
    assert_eq!(world.producer.counters().stray_dones, 0);
}

#[test]
fn a_reader_that_is_proven_dead_ends_its_grants_on_shm_and_no_others() {
    let mut world = World::new(16);
    let (one, other) = (world.saved("one", 3), world.saved("other", 2));
    world.shared(ALICE, "s", "one", 1);
    world.shared(ALICE, "s", "other", 2);
    world.shared(BOB, "t", "one", 1);
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!((world.pins(one), world.pins(other)), (2, 1), "a lost connection proves nothing");
    assert!(world.producer.holds(ALICE));
    world.producer.reader_dead(ALICE, &mut world.cache);
    world.check();
    assert_eq!((world.pins(one), world.pins(other)), (1, 0));
    assert!(!world.producer.holds(ALICE));
    assert_eq!(world.producer.counters().lost, 2);
    assert!(world.done(BOB, "t", "one", 1));
    world.at_rest();
}

#[test]
fn the_region_of_a_reader_is_told_with_its_first_grant_on_shm() {
    let mut world = World::new(16);
    world.saved("h", 3);
    let mut request = request("s", "h");
    let chiasm = request.chiasm.as_mut().unwrap();
    (chiasm.epoch, chiasm.region) = (9, Some("chiasm-theirs"));
    world.send(at(0), ALICE, &request);
    assert_eq!(world.producer.take_new_reader(), None, "that was tcp");
    request.chiasm.as_mut().unwrap().planes = planes([Plane::Shm]);
    world.send(at(0), ALICE, &request);
    let region = ReaderRegion { name: "chiasm-theirs".into(), epoch: 9 };
    assert_eq!(world.producer.take_new_reader(), Some((ALICE, region)));
    world.send(at(0), ALICE, &request);
    assert_eq!(world.producer.take_new_reader(), None, "it is known");
    world.shared(BOB, "t", "h", 1);
    assert_eq!(world.producer.take_new_reader(), None, "it does not say");
}
