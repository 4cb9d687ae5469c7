//! B: one input that kills an engine.

use std::time::Duration;

use chiasm_core::admission::{Decision, Item};
use chiasm_core::announcement::{Announcement, Expectation, RemoteAnnouncement};
use chiasm_core::cache::ReserveError;
use chiasm_core::consumer::{FailureReason, ReadEnd};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::limits::UPSTREAM_LEASE;
use rstest::rstest;
use serde_json::json;

use super::{assert_served, decoded, landed, with_field};
use crate::conformance_pair::{BLOCK_BYTES, Network, Pair, hash, instance_for_test, meta, source};

/// A client says two rows, the producer has three. Upstream's consumer raises out of `schedule()`.
#[test]
fn hazard_b1_an_announced_shape_that_the_producer_does_not_have() {
    let mut pair = Pair::new(16);
    pair.encoded("h", 3);
    let params = with_field(pair.announce("h"), "h", "shape", json!([2, 16]));
    let params = with_field(params, "h", "size_bytes", json!(128));
    pair.request_with("liar", "h", 2, false, &params);
    assert_eq!(pair.step("liar"), Decision::Wait);
    assert_eq!(pair.step("liar"), Decision::Unavailable);
    assert_eq!((pair.failed.as_slice(), landed(&pair, "h")), (&["liar".to_owned()][..], None));
    pair.finish("liar");
    assert_served(&mut pair, "honest", "h", 3);
    pair.assert_at_rest();
}

/// An OK ack whose blocks are not those of the entry that it grants.
#[rstest]
#[case::none(0)]
#[case::too_few(2)]
#[case::too_many(4)]
#[case::all_there_are(u32::MAX)]
fn hazard_b2_an_ok_ack_with_another_number_of_blocks(#[case] blocks: u32) {
    let mut pair = Pair::new(16);
    pair.encoded("h", 3);
    pair.late = Some(Vec::new());
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    let bytes = pair.late.take().expect("answers are held back").remove(0);
    let mut ack = decoded(&bytes);
    let extension = ack.chiasm.as_mut().expect("a Chiasm ack");
    extension.extents = Extent::new(0, blocks).into_iter().collect();
    pair.consumer.receive(pair.now, &source(), &ack.encode());
    pair.settle();
    assert!(pair.reading.is_empty() && landed(&pair, "h").is_none());
    assert_eq!(pair.step("a"), Decision::Unavailable);
    assert_eq!(pair.failed, ["a"]);
    pair.finish("a");
    assert_served(&mut pair, "b", "h", 3);
}

/// The producer is killed between its ack and the read, so that the plane cannot even begin. Upstream's
/// data plane raises, and the consumer's engine goes down with the producer.
#[test]
fn hazard_b3_a_read_that_cannot_begin_costs_an_attempt_and_no_engine() {
    let mut pair = Pair::new(16);
    pair.encoded("h", 3);
    pair.encoded("other", 2);
    pair.network = Network::SlowBytes;
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    let (order, _) = pair.reading.pop_front().expect("the read that is to begin");
    let killed = FailureReason::Plane("the remote side is gone".into());
    pair.consumer.read_ended(pair.now, order.transfer, ReadEnd::Failed(killed));
    pair.lose_link();
    assert_eq!(pair.consumer.usage().free, 16, "its blocks are free at once");
    assert_eq!(pair.step("a"), Decision::Wait, "an attempt, not the request");
    assert!(pair.failed.is_empty());

    pair.network = Network::Fast;
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.step("a"), Decision::Ready);
    pair.finish("a");
    assert_served(&mut pair, "b", "other", 2);
}

/// Upstream's allocation asserts, also where nothing is read from anybody.
#[test]
fn hazard_b8_an_output_larger_than_the_region_is_not_saved_and_that_is_all() {
    let mut pair = Pair::new(8);
    let refused = pair.consumer.reserve(&hash("huge"), meta(9), 9);
    assert!(matches!(refused, Err(ReserveError::TooLarge { .. })), "{refused:?}");
    assert!(landed(&pair, "huge").is_none());
    let whole = pair.consumer.reserve(&hash("whole"), meta(8), 8).expect("just fits");
    pair.consumer.mark_ready(pair.now, whole, None).expect("a save under way");
    // The producer has room for what this consumer has not.
    let mut pair = Pair::new(8);
    pair.producer = instance_for_test(16, UPSTREAM_LEASE);
    pair.encoded("huge", 9);
    pair.encoded("fits", 2);
    pair.request("a", "huge", 9, false);
    assert_eq!(pair.step("a"), Decision::Unavailable);
    assert!(pair.asked.is_empty());
    pair.finish("a");
    assert_served(&mut pair, "b", "fits", 2);
}

/// Whatever width a modality has, or none: its size is a value, or there is none, and nobody divides by
/// it.
#[test]
fn hazard_b9_an_output_of_a_width_that_nobody_has_measured_is_a_value() {
    let blocks = |rows, width| {
        let meta = EntryMeta::new(rows, width, Dtype::Float32)?;
        Some((meta, meta.blocks(BLOCK_BYTES)?))
    };
    for (width, expected) in [(0, 0), (1, 1), (16, 3), (17, 4), (u32::MAX, 805_306_368)] {
        assert_eq!(blocks(3, width).map(|(_, blocks)| blocks), Some(expected), "{width}");
    }
    assert_eq!(blocks(u32::MAX, u32::MAX), None);
    // A width that is not the blocks' own still goes from one to the other.
    let mut pair = Pair::new(16);
    let (odd, count) = blocks(3, 21).expect("small");
    let key = pair.producer.reserve(&hash("odd"), odd, count).expect("room");
    pair.producer.mark_ready(pair.now, key, Some(Digest([7; 16]))).expect("a save under way");
    let offer = RemoteAnnouncement::of_entry(source(), &odd, BLOCK_BYTES).expect("small");
    let unmeasured = Expectation {
        rows: Some(3),
        width: None,
        dtype: None,
        block_size_bytes: BLOCK_BYTES,
        region_blocks: 16,
    };
    let announced = Ok(Announcement::Remote(offer));
    let item = Item::new(hash("odd"), 3, false, Some(&announced), &unmeasured);
    pair.request_of("a", vec![item]);
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!(pair.step("a"), Decision::Ready);
    let (_, entry) = pair.consumer.cache().find("odd").expect("it has arrived");
    assert_eq!(entry.meta(), &odd);
    pair.finish("a");
    pair.assert_at_rest();
}
