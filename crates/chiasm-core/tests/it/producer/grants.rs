//! The life of a grant: pin, lease, renewal, end.

use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::limits::MAX_EXTENTS;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, AckStatus, XferAck};

use super::{ALICE, LEASE, LEASE_NANOS, World, at, planes, request};

#[test]
fn a_grant_pins_its_entry_and_says_everything_about_it() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    let reply = world.ask(at(10), ALICE, "s", "h");
    let ack = XferAck::decode(&reply.bytes, &AckLimits::default()).unwrap();
    let chiasm = ack.chiasm.unwrap();
    assert_eq!((ack.mm_hash, ack.session_id), ("h", "s"));
    assert_eq!((chiasm.epoch, chiasm.attempt, chiasm.plane), (5, 7, Some(Plane::Tcp)));
    assert_eq!((chiasm.shape, chiasm.dtype), (Some((3, 16)), Some(Dtype::Float32)));
    assert_eq!((chiasm.bytes, chiasm.block_size_bytes), (Some(192), Some(64)));
    assert_eq!((chiasm.lease_ms, chiasm.digest), (Some(30_000), Some(Digest([9; 16]))));
    assert_eq!(chiasm.fingerprint, Some("ours"));
    assert_eq!(chiasm.extents, world.cache.entry(key).unwrap().extents());
    assert!(ack.src_block_indices.is_empty() && ack.mem_descriptor.is_empty());
    assert_eq!((world.pins(key), world.held()), (1, (1, 3)));
}

#[test]
fn a_repeated_request_renews_the_lease_and_keeps_the_token() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    let first = world.granted(at(0), ALICE, "s", "h");
    let second = world.granted(at(LEASE_NANOS), ALICE, "s", "h");
    assert_eq!(first, second, "a request that expects another form must not void it");
    assert_eq!((world.pins(key), world.held()), (1, (1, 3)));
    assert_eq!(world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache), []);
    assert_eq!(world.pins(key), 1, "the old lease ended, the new one did not");
    assert!(world.producer.open_stream(at(2 * LEASE_NANOS), first).is_some());
    assert_eq!(world.producer.open_stream(at(2 * LEASE_NANOS), second), None, "it opens once");
    assert_eq!(world.producer.counters().bad_tokens, 1);
}

/// What shm readers were promised holds whatever becomes of a later tcp grant.
#[test]
fn another_plane_is_another_grant() {
    let mut world = World::new(16);
    let key = world.saved("h", 3);
    let mut shm = request("s", "h");
    shm.chiasm.as_mut().unwrap().planes = planes([Plane::Shm, Plane::Tcp]);
    assert_eq!(world.send(at(0), ALICE, &shm).token, None);
    let token = world.granted(at(5), ALICE, "s", "h");
    assert_eq!((world.pins(key), world.held()), (2, (2, 3)));
    let stream = world.producer.open_stream(at(6), token).unwrap().stream;
    world.producer.stream_ended(stream, true, &mut world.cache);
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!(world.pins(key), 1);
    world.producer.handle_timeout(at(LEASE_NANOS), &mut world.cache);
    assert_eq!(world.pins(key), 1);
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.at_rest();
}

#[test]
fn a_lease_expires_strictly_after_its_end() {
    for (late, live) in [(-1, 1), (0, 1), (1, 0)] {
        let mut world = World::new(16);
        let key = world.saved("h", 3);
        world.granted(at(100), ALICE, "s", "h");
        let now = at((100 + LEASE_NANOS).checked_add_signed(late).unwrap());
        assert_eq!(world.producer.handle_timeout(now, &mut world.cache), []);
        assert_eq!(
            (world.pins(key), world.producer.live_grants()),
            (live, live as usize),
            "{late}"
        );
        assert_eq!(world.producer.counters().expired, u64::from(1 - live));
    }
}

#[test]
fn a_token_opens_up_to_the_end_of_the_lease_and_not_after_it() {
    for (late, opens) in [(-1, true), (0, true), (1, false)] {
        let mut world = World::new(16);
        world.saved("h", 3);
        let token = world.granted(at(0), ALICE, "s", "h");
        let now = at(LEASE_NANOS.checked_add_signed(late).unwrap());
        assert_eq!(world.producer.open_stream(now, token).is_some(), opens, "{late}");
    }
}

/// The owner that comes back exactly when it was told to always finds something to do.
#[test]
fn the_timeout_is_the_first_instant_at_which_something_ends() {
    let mut world = World::new(16);
    assert_eq!(world.producer.poll_timeout(), Nanos::NEVER);
    world.saved("a", 1);
    world.saved("b", 1);
    world.granted(at(3), ALICE, "s", "b");
    world.granted(at(5), ALICE, "s", "a");
    for due in [3 + LEASE_NANOS + 1, 5 + LEASE_NANOS + 1] {
        let before = world.producer.live_grants();
        assert_eq!(world.producer.poll_timeout(), at(due));
        world.producer.handle_timeout(at(due - 1), &mut world.cache);
        assert_eq!(world.producer.live_grants(), before);
        world.producer.handle_timeout(at(due), &mut world.cache);
        assert_eq!(world.producer.live_grants(), before - 1);
    }
    world.at_rest();
}

#[test]
fn what_is_left_of_a_lease_is_rounded_down() {
    let mut world = World::new(16);
    world.saved("h", 1);
    let reply = world.ask(at(999_999), ALICE, "s", "h");
    assert_eq!(reply.lease_ms, Some(u64::try_from(LEASE.as_millis()).unwrap()));
}

#[test]
fn closing_ends_everything() {
    let mut world = World::new(16);
    world.saved("a", 1);
    world.saved("b", 2);
    let token = world.granted(at(0), ALICE, "s", "a");
    world.granted(at(0), ALICE, "s", "b");
    let stream = world.producer.open_stream(at(0), token).unwrap().stream;
    world.producer.close(&mut world.cache);
    world.at_rest();
    world.producer.stream_ended(stream, true, &mut world.cache);
    assert_eq!(world.producer.counters().completed, 0, "its end was told before");
}

/// An entry that lies in `extents` pieces, with the session and the hash as vLLM and the consumer
/// make them.
fn ack_bytes(extents: u32) -> usize {
    let hash = "0123456789abcdef".repeat(4);
    let session = format!("{:016x}.{}", 0x0123_4567_89ab_cdef_u64, 100_000);
    let mut world = World::new(1 << 20);
    // Pieces of one block behind a large entry, so that numbers are of usual length.
    world.saved("front", 900_000);
    let spacers: Vec<_> = (0..2 * extents).map(|n| world.saving(&n.to_string(), 1)).collect();
    world.saving("back", (1 << 20) - 900_000 - 2 * extents);
    for spacer in spacers.iter().step_by(2) {
        world.cache.discard(*spacer).unwrap();
    }
    let front = world.cache.find("front").unwrap().0;
    world.cache.pin(front).unwrap();
    let meta = EntryMeta::new(extents, 7168, Dtype::Bfloat16).unwrap();
    let key = world.cache.reserve(&MmHash::new(&hash).unwrap(), meta, extents).unwrap();
    world.cache.mark_ready(key, Some(Digest([0xab; 16]))).unwrap();
    let mut request = request(&session, &hash);
    request.chiasm.as_mut().unwrap().attempt = 100_000;
    let reply = world.send(at(0), ALICE, &request);
    assert_eq!((reply.status, reply.extents.len()), (AckStatus::Ok, extents as usize));
    reply.bytes.len()
}

/// Under 450 bytes to a Chiasm peer. Upstream's is 14 MB for this region.
#[test]
fn an_ack_of_one_extent_is_small_and_one_of_the_most_extents_is_bounded() {
    assert_eq!(ack_bytes(1), 316);
    assert_eq!(ack_bytes(u32::try_from(MAX_EXTENTS).unwrap()), 698);
}
