//! A: wrong data.

use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::cache::{EntryState, ReserveError};
use chiasm_core::limits::UPSTREAM_LEASE;
use chiasm_core::producer::{GrantToken, PeerId};
use chiasm_core::time::Nanos;
use rstest::rstest;
use serde_json::json;

use super::{ask, assert_served, decoded, landed, token_of, with_field};
use crate::conformance_pair::{BLOCK_BYTES, Network, Pair, hash, instance_for_test, meta, source};

/// Upstream looks at its acks only when a request with media is asked about, so an ack lies in its
/// queue for as long as there is none, and is acted upon whatever its age.
#[test]
fn hazard_a2_nothing_waits_for_a_step_and_nothing_old_is_acted_upon() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    pair.encoded("old", 3);
    pair.late = Some(Vec::new());
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    // No step of the engine from here on: the bytes land all the same.
    let ack = pair.late.take().expect("answers are held back").remove(0);
    pair.consumer.receive(pair.now, &source(), &ack);
    pair.settle();
    assert_eq!(landed(&pair, "h"), Some(EntryState::Ready));
    assert_eq!(pair.step("a"), Decision::Ready);
    pair.finish("a");

    // The ack of an aborted request, seen a minute later by an idle engine.
    pair.network = Network::SlowBytes;
    pair.late = Some(Vec::new());
    pair.request("b", "old", 3, false);
    assert_eq!(pair.step("b"), Decision::Wait);
    pair.finish("b");
    pair.pass(2 * UPSTREAM_LEASE);
    let ack = pair.late.take().expect("answers are held back").remove(0);
    pair.consumer.receive(pair.now, &source(), &ack);
    pair.settle();
    assert!(pair.reading.is_empty(), "nothing is read under a grant that has ended");
    assert_eq!(landed(&pair, "old"), None);
    assert_served(&mut pair, "c", "old", 3);
    pair.assert_at_rest();
}

/// Upstream releases the handle in the very call that put it into quarantine, and the late bytes land
/// in somebody else's blocks.
#[test]
fn hazard_a4_the_loss_of_the_peer_ends_no_quarantine() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    pair.network = Network::SlowBytes;
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    pair.finish("a");
    pair.lose_link();
    assert_eq!((pair.aborted.len(), pair.consumer.usage().quarantined), (1, 3));
    // Whoever wants room meanwhile gets other blocks, or none.
    let refused = pair.consumer.reserve(&hash("other"), meta(6), 6);
    assert_eq!(refused, Err(ReserveError::Full { needed: 6, free: 5, evictable: 0 }));
    let (order, _) = pair.reading.front().expect("the plane still writes").clone();
    let other = pair.consumer.reserve(&hash("other"), meta(5), 5).expect("the rest is free");
    let taken = pair.consumer.cache().entry(other).expect("just made").extents().to_vec();
    for (new, old) in taken.iter().flat_map(|new| order.local.iter().map(move |old| (new, old))) {
        assert!(new.end() <= old.first() || old.end() <= new.first(), "{new:?} {old:?}");
    }
    pair.land();
    assert_eq!(pair.consumer.usage().quarantined, 0);
    pair.consumer.discard(pair.now, other).expect("a save under way");
    pair.pass(Duration::from_secs(5));
    assert_served(&mut pair, "b", "h", 3);
    pair.assert_at_rest();
}

/// Over NIXL one OK ack opens the whole region. Here a token opens the blocks of its own entry, once,
/// inside its lease; nothing that a peer is told leads to other blocks, and nothing lets it write.
#[test]
fn hazard_a7_a_grant_opens_its_own_entry_and_nothing_else() {
    let now = Nanos::from_nanos(1);
    let (reader, other) = (PeerId(1), PeerId(2));
    let mut producer = instance_for_test(16, UPSTREAM_LEASE);
    for name in ["private", "granted"] {
        let key = producer.reserve(&hash(name), meta(3), 3).expect("room");
        producer.mark_ready(now, key, None).expect("a save under way");
    }
    let ack = ask(&mut producer, now, reader, "s", "granted");
    let token = token_of(&ack);
    let (_, entry) = producer.cache().find("granted").expect("saved");
    let blocks = entry.extents().to_vec();
    assert_eq!(decoded(&ack).chiasm.expect("a Chiasm ack").extents, blocks);
    assert!(decoded(&ack).agent_metadata.is_empty() && decoded(&ack).mem_descriptor.is_empty());

    for bit in 0..128 {
        let mut guess = token.0;
        guess[bit / 8] ^= 1 << (bit % 8);
        assert!(producer.open_stream(now, GrantToken(guess)).is_none(), "a guess one bit off");
    }
    let read = producer.open_stream(now, token).expect("the token itself opens");
    assert_eq!((read.extents, read.bytes), (blocks, 3 * BLOCK_BYTES));
    assert!(producer.open_stream(now, token).is_none(), "and opens once");
    producer.stream_ended(now, read.stream, true);

    let late = token_of(&ask(&mut producer, now, other, "t", "granted"));
    assert!(
        producer.open_stream(now.after(UPSTREAM_LEASE + Duration::from_nanos(1)), late).is_none()
    );
}

/// The size fits each of these shapes, so only the model's width tells.
#[rstest]
#[case::half(json!([4, 8]), 128)]
#[case::double(json!([4, 32]), 512)]
#[case::none(json!([4, 0]), 256)]
#[case::negative(json!([4, -16]), 256)]
#[case::a_third_dimension(json!([4, 4, 4]), 256)]
fn hazard_a8_another_width_than_the_models_is_never_admitted(
    #[case] shape: serde_json::Value,
    #[case] size_bytes: u64,
) {
    let mut pair = Pair::new(16);
    pair.encoded("h", 4);
    let params = with_field(pair.announce("h"), "h", "shape", shape);
    let params = with_field(params, "h", "size_bytes", json!(size_bytes));
    pair.request_with("no pixels", "h", 4, false, &params);
    pair.request_with("pixels", "h", 4, true, &params);
    assert_eq!(pair.step("no pixels"), Decision::Unavailable);
    assert_eq!(pair.step("pixels"), Decision::Fallback);
    assert_eq!(pair.failed, ["no pixels"]);
    assert!(pair.asked.is_empty() && pair.consumer.promised("h").is_none());
    pair.finish("no pixels");
    pair.finish("pixels");
    assert_served(&mut pair, "honest", "h", 4);
    pair.assert_at_rest();
}
