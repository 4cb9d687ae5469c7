//! D: abuse of resources.

use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::limits::UPSTREAM_LEASE;
use chiasm_core::producer::PeerId;
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckStatus, Progression, ProgressionScan};

use super::{ask, assert_served, decoded, request_bytes};
use crate::conformance_pair::{Pair, hash, instance_for_test, meta};

/// 56 bytes ask for 14 MB in upstream, in every ack: all descriptors of a region of a million blocks.
#[test]
fn hazard_d1_an_ack_does_not_grow_with_the_region() {
    let now = Nanos::from_nanos(1);
    let mut answers = Vec::new();
    for blocks in [8, 1_000_000] {
        let mut producer = instance_for_test(blocks, UPSTREAM_LEASE);
        let key = producer.reserve(&hash("h"), meta(3), 3).expect("room");
        producer.mark_ready(now, key, None).expect("a save under way");
        let first = ask(&mut producer, now, PeerId(1), "s", "h").len();
        let second = ask(&mut producer, now, PeerId(1), "s", "h").len();
        assert_eq!(first, second);
        answers.push(first);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0] < 450, "{answers:?}");
}

/// One peer, one connection, as many invented sessions and hashes as it likes.
#[test]
fn hazard_d2_one_peer_pins_a_share_and_saves_go_on() {
    let now = Nanos::from_nanos(1);
    let mut producer = instance_for_test(1600, UPSTREAM_LEASE);
    for name in 0..1600 {
        let key = producer.reserve(&hash(&name.to_string()), meta(1), 1).expect("room");
        producer.mark_ready(now, key, None).expect("a save under way");
    }
    let mut granted = 0;
    for name in 0..1600_u32 {
        let bytes = request_bytes(&format!("invented {}", name % 20), &name.to_string());
        let answer = producer.handle_request(now, PeerId(1), &bytes).expect("an answer");
        granted += usize::from(decoded(&answer.into_bytes()).status == AckStatus::Ok);
    }
    assert!(granted > 0 && granted <= 800, "{granted}");
    assert_eq!(producer.producer().live_grants(), granted);
    // There is room for saves, and for another peer.
    for name in ["new", "newer", "newest"] {
        let key = producer.reserve(&hash(name), meta(100), 100).expect("room is made");
        producer.mark_ready(now, key, None).expect("a save under way");
    }
    let answer = ask(&mut producer, now, PeerId(2), "s", "newest");
    assert_eq!(decoded(&answer).status, AckStatus::Ok);
    // And it cannot renew for ever what it does not read: with the peer and the lease all of it ends.
    producer.peer_gone(now, PeerId(1));
    producer.handle_timeout(now.after(UPSTREAM_LEASE + Duration::from_nanos(1)));
    assert_eq!(producer.producer().live_grants(), 0);
    assert!(!producer.cache().has_held_entries());
}

/// Upstream's engine loops for ever where nothing is pending.
#[test]
fn hazard_d6_an_instance_at_rest_asks_for_nothing() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    assert_served(&mut pair, "a", "h", 3);
    for instance in [&pair.producer, &pair.consumer] {
        assert_eq!(instance.poll_timeout(), Nanos::NEVER, "no timer");
        assert!(!instance.has_work() && !instance.cache().has_held_entries());
        assert!(instance.dispatches().outstanding().is_empty());
    }
    // Still it serves when it is asked again.
    pair.pass(Duration::from_hours(1));
    assert!(pair.consumer.evict("h"));
    pair.request("b", "h", 3, false);
    assert_eq!(pair.step("b"), Decision::Wait);
    assert_eq!(pair.step("b"), Decision::Ready);
}

/// Registering a producer of a million blocks takes upstream's scheduler half a second. Here its list
/// is read in slices of as many rows as its owner has time for, and nothing is kept per block.
#[test]
fn hazard_d8_a_list_of_a_million_blocks_is_read_in_slices() {
    const BLOCKS: u32 = 1_000_000;
    let region = Progression::new(1 << 40, 7168, 7168, BLOCKS, 0).expect("a region");
    let bytes = region.encode();
    let mut scan = ProgressionScan::new(&bytes, BLOCKS).expect("within the limit");
    let mut slices = 0;
    let read = loop {
        slices += 1;
        if let Some(read) = scan.advance(&bytes, 1000).expect("a progression") {
            break read;
        }
    };
    assert!(slices >= BLOCKS / 1000, "{slices} slices of at most 1000 rows");
    assert_eq!(read, region);
    assert!(size_of_val(&read) <= 64);
}
