//! Each quota, biting at its default (S7, hazard D2).

use chiasm_core::limits::{MAX_GRANTS, MAX_GRANTS_PER_PEER};
use chiasm_core::producer::{PeerId, ProducerLimits};
use chiasm_core::wire::AckStatus;

use super::{ALICE, BOB, LEASE_NANOS, Reply, World, at};

fn over_quota(reply: &Reply) -> bool {
    let quota = reply.reason.as_deref() == Some("quota");
    assert_eq!(quota, reply.status == AckStatus::NotReady, "{reply:?}");
    quota
}

#[test]
fn one_peer_has_so_many_grants_and_streams() {
    let mut world = World::new(4096);
    for n in 0..=MAX_GRANTS_PER_PEER {
        world.saved(&n.to_string(), 1);
    }
    let first = world.granted(at(0), ALICE, "s", "0");
    for n in 1..MAX_GRANTS_PER_PEER {
        world.granted(at(0), ALICE, if n % 2 == 0 { "s" } else { "t" }, &n.to_string());
    }
    // A stream is still one of them.
    let stream = world.producer.open_stream(at(0), first).unwrap().stream;
    let last = MAX_GRANTS_PER_PEER.to_string();
    assert!(over_quota(&world.ask(at(1), ALICE, "s", &last)));
    assert_eq!(world.producer.live_grants(), MAX_GRANTS_PER_PEER);
    assert_eq!(world.producer.counters().over_quota, 1);
    // A renewal is no new grant, and others have a quota of their own.
    world.granted(at(1), ALICE, "t", "1");
    world.granted(at(1), BOB, "u", &last);
    world.producer.stream_ended(stream, true, &mut world.cache);
    world.granted(at(1), ALICE, "s", &last);
}

#[test]
fn all_peers_together_have_so_many() {
    let mut world = World::new(8192);
    world.saved("h", 1);
    for n in 0..MAX_GRANTS {
        let peer = PeerId((n / MAX_GRANTS_PER_PEER) as u64);
        let session = format!("{}.{}", peer.0, n % 16);
        let hash = n.to_string();
        world.saved(&hash, 1);
        let reply = world.producer.handle_request(
            at(0),
            peer,
            &super::request(&session, &hash).encode(),
            &mut world.cache,
        );
        assert_eq!(Reply::of(&reply.unwrap().into_bytes()).status, AckStatus::Ok);
    }
    assert!(over_quota(&world.ask(at(1), PeerId(1000), "new", "h")));
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.granted(at(LEASE_NANOS + 1), PeerId(1000), "new", "h");
}

#[test]
fn one_peer_pins_half_of_the_region() {
    let mut world = World::new(16);
    for (name, blocks) in [("a", 4), ("b", 4), ("c", 1)] {
        world.saved(name, blocks);
    }
    world.granted(at(0), ALICE, "s", "a");
    world.granted(at(0), ALICE, "s", "b");
    assert!(over_quota(&world.ask(at(0), ALICE, "s", "c")));
    world.granted(at(0), BOB, "t", "c");
}

#[test]
fn all_peers_together_pin_three_quarters() {
    let mut world = World::new(16);
    for (name, blocks) in [("a", 6), ("b", 6), ("c", 1)] {
        world.saved(name, blocks);
    }
    world.granted(at(0), ALICE, "s", "a");
    world.granted(at(0), BOB, "t", "b");
    assert_eq!(world.held(), (2, 12));
    assert!(over_quota(&world.ask(at(0), PeerId(3), "u", "c")));
    assert_eq!(world.held(), (2, 12));
    // What is pinned already costs nothing more, whoever asks.
    world.granted(at(0), PeerId(3), "u", "a");
    assert_eq!(world.held(), (3, 12));
}

/// Else an entry larger than a share could never be read.
#[test]
fn one_grant_is_always_possible() {
    let mut world = World::new(16);
    world.saved("whole", 16);
    world.granted(at(0), ALICE, "s", "whole");
    assert_eq!(world.held(), (1, 16));
}

#[test]
fn the_rest_of_the_region_stays_free_for_saves() {
    let limits = ProducerLimits::for_region(1001);
    assert_eq!((limits.max_blocks_per_peer, limits.max_blocks), (500, 751));
    let small = ProducerLimits::for_region(1);
    assert_eq!((small.max_blocks_per_peer, small.max_blocks), (0, 1));
}

#[test]
fn a_refused_quota_pins_nothing_and_a_later_request_gets_through() {
    let mut world = World::new(16);
    let (a, b) = (world.saved("a", 8), world.saved("b", 8));
    let token = world.granted(at(0), ALICE, "s", "a");
    assert!(over_quota(&world.ask(at(0), ALICE, "s", "b")));
    assert_eq!((world.pins(a), world.pins(b)), (1, 0));
    let stream = world.producer.open_stream(at(0), token).unwrap().stream;
    assert!(over_quota(&world.ask(at(0), ALICE, "s", "b")));
    world.producer.stream_ended(stream, true, &mut world.cache);
    world.granted(at(0), ALICE, "s", "b");
}
