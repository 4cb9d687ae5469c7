//! S2 in nanoseconds: the lease counts from the request, and a digest stands above it.

use chiasm_core::consumer::{FailureClass, FailureReason, ReadEnd};

use super::{DIGEST, SECOND, World, ack_for, at, landed, near, wanted};

const LEASE_MS: u64 = 30_000;
/// What is left of it: one second is the margin.
const USABLE: u64 = 29 * SECOND;
const SENT: u64 = 5 * SECOND;

/// A read that was asked for at `SENT`, granted without a digest.
fn reading_without_digest(acked: u64) -> World {
    let mut world = World::connected(16);
    world.start(at(SENT), &wanted("h", 2));
    let sent = world.last_sent();
    let mut ack = ack_for(&sent, 2);
    ack.chiasm.as_mut().unwrap().digest = None;
    ack.chiasm.as_mut().unwrap().lease_ms = Some(LEASE_MS);
    world.receive(at(acked), &near(), &ack.encode());
    world
}

/// Hazard A1: the bytes of a recycled block became another hash's.
#[test]
fn hazard_a1_a_read_without_digest_counts_only_if_it_ended_inside_the_lease() {
    for (late, published) in [(-1, true), (0, false), (1, false)] {
        let mut world = reading_without_digest(SENT + SECOND);
        let id = world.reads[0].transfer;
        assert!(!world.reads[0].digest);
        let now = at((SENT + USABLE).checked_add_signed(late).unwrap());
        world.ended(now, id, landed(2, None));
        let outcome = world.take_finished().unwrap().outcome;
        assert_eq!((outcome.is_ok(), world.holds("h")), (published, published), "{late}");
        if let Err(failure) = outcome {
            assert_eq!(failure.reason, FailureReason::LeaseRanOut);
            assert_eq!(failure.class, FailureClass::Retryable);
            assert_eq!(world.cache.usage().free, 16);
        }
        world.at_rest();
    }
}

#[test]
fn hazard_a1_a_read_whose_digest_matches_counts_whenever_it_ended() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    world.ended(at(3600 * SECOND), id, landed(2, Some(DIGEST)));
    assert!(world.take_finished().unwrap().outcome.is_ok());
}

/// Also one that ended early: the digest is the better witness.
#[test]
fn a_read_whose_digest_differs_or_is_missing_never_counts() {
    for digest in [None, Some(chiasm_core::digest::Digest([8; 16]))] {
        let mut world = World::connected(16);
        let id = world.reading(at(0), &wanted("h", 2));
        world.ended(at(1), id, landed(2, digest));
        let failure = world.failure();
        assert_eq!(
            (failure.reason, failure.class),
            (FailureReason::Digest, FailureClass::ReadWrong)
        );
        assert!(!world.holds("h"));
        world.at_rest();
    }
}

#[test]
fn a_read_of_another_length_never_counts() {
    for bytes in [0, 127, 129, u64::MAX] {
        let mut world = World::connected(16);
        let id = world.reading(at(0), &wanted("h", 2));
        world.ended(at(1), id, ReadEnd::Landed { bytes, digest: Some(DIGEST) });
        let failure = world.failure();
        assert_eq!(failure.reason, FailureReason::Length { landed: bytes, expected: 128 });
        assert_eq!(failure.class, FailureClass::ReadWrong);
        world.at_rest();
    }
}

/// The age of an ack is checked before it is acted on, and counts from the request.
#[test]
fn an_ack_that_comes_after_the_usable_lease_starts_nothing() {
    for (late, reads) in [(-1, 1), (0, 0), (1, 0)] {
        let world = reading_without_digest((SENT + USABLE).checked_add_signed(late).unwrap());
        assert_eq!(world.reads.len(), reads, "{late}");
        assert_eq!(world.finished.len(), 1 - reads);
    }
}

#[test]
fn a_lease_no_longer_than_the_margin_is_of_no_use() {
    for (lease_ms, reads) in [(0, 0), (999, 0), (1000, 0), (1001, 1), (u64::MAX, 1)] {
        let mut world = World::connected(16);
        world.start(at(SENT), &wanted("h", 2));
        let sent = world.last_sent();
        let mut ack = ack_for(&sent, 2);
        ack.chiasm.as_mut().unwrap().lease_ms = Some(lease_ms);
        world.receive(at(SENT), &near(), &ack.encode());
        assert_eq!(world.reads.len(), reads, "{lease_ms}");
    }
}

/// A request that waited for its link was sent when the link came up.
#[test]
fn the_lease_counts_from_when_the_request_went_out() {
    let mut world = World::new(16);
    let id = world.start(at(0), &wanted("h", 2));
    world.up(at(SENT), &near());
    let sent = world.last_sent();
    let mut ack = ack_for(&sent, 2);
    ack.chiasm.as_mut().unwrap().digest = None;
    world.receive(at(SENT + 1), &near(), &ack.encode());
    world.ended(at(SENT + USABLE - 1), id, landed(2, None));
    assert!(world.take_finished().unwrap().outcome.is_ok());
}
