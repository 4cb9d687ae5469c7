//! Conformance 9 to 11: admission against a real producer.

use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::limits::READ_TIMEOUT;
use rstest::rstest;
use serde_json::{Value, json};

use crate::conformance_pair::{Network, Pair, TICK, meta};

/// 9.1: the blocks and the shape are the announcement's, later steps read nothing.
#[test]
fn an_unseen_item_waits_is_read_and_has_the_announced_shape() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    pair.network = Network::SlowBytes;
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!(pair.consumer.usage().live, 3);
    assert_eq!(pair.consumer.promised("h"), None);
    pair.land();
    for _ in 0..3 {
        assert_eq!(pair.step("a"), Decision::Ready);
    }
    let key = pair.consumer.promised("h").unwrap();
    let entry = pair.consumer.cache().entry(key).unwrap();
    assert_eq!((*entry.meta(), entry.blocks()), (meta(3), 3));
    assert_eq!(pair.asked, ["h"]);
    pair.finish("a");
    pair.assert_at_rest();
}

/// 9.2: upstream takes a value that is no object for no announcement, and the request runs. Here it
/// runs as well where the engine can encode the item; where it cannot, the request fails instead of
/// the engine.
#[rstest]
#[case::another_hash(json!({"x": 123}), Decision::Ready)]
#[case::no_object(json!({"h": 123}), Decision::Fallback)]
#[case::nothing(json!({}), Decision::Ready)]
#[case::metadata_only(json!({"h": {"modality": "image", "metadata": {}}}), Decision::Ready)]
fn without_a_usable_announcement_the_engine_encodes(#[case] params: Value, #[case] runs: Decision) {
    let mut pair = Pair::new(8);
    pair.request_with("pixels", "h", 3, true, &params);
    assert_eq!(pair.step("pixels"), runs);
    pair.request_with("metadata", "h", 3, false, &params);
    assert_eq!(pair.step("metadata"), Decision::Unavailable);
    assert_eq!(pair.failed, ["metadata"]);
    assert!(pair.asked.is_empty());
    assert_eq!(pair.consumer.usage().entries, 0);
}

/// 9.7: upstream defers whoever names a hash whose lost read still holds its blocks. Here the hash is
/// free: the next attempt reads into other blocks, and the old ones are not touched.
#[test]
fn a_lost_read_keeps_its_blocks_and_not_its_hash() {
    let mut pair = Pair::new(16);
    pair.encoded("h", 3);
    pair.network = Network::SlowBytes;
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    let lost = pair.reading[0].0.local.clone();
    pair.pass(READ_TIMEOUT + TICK);
    assert_eq!(pair.step("a"), Decision::Wait, "neither failed nor ready");
    pair.pass(Duration::from_secs(1));
    let (again, _) = &pair.reading[1];
    assert_ne!(again.local, lost);
    assert_eq!((pair.consumer.usage().quarantined, pair.consumer.usage().live), (3, 3));
    pair.land();
    assert!(pair.consumer.cache().find("h").is_none(), "the lost one brings nothing");
    pair.land();
    assert_eq!(pair.step("a"), Decision::Ready);
}

/// 10.1: an engine that looks after 0, 20, 40 and 121 s and never in between; or after 61 s, when a
/// clock that a retry had started anew would not be over.
#[rstest]
#[case::in_flight(false, 1)]
#[case::retryable(true, 3)]
fn the_budget_survives_retries_and_long_steps(
    #[case] retryable: bool,
    #[case] attempts: usize,
    #[values(61, 121)] last: u64,
) {
    let mut pair = Pair::new(8);
    if retryable {
        pair.encoding("h", 3);
    } else {
        pair.encoded("h", 3);
        pair.network = Network::SlowBytes;
    }
    pair.request("a", "h", 3, false);
    let start = pair.now;
    for seconds in [0, 20, 40] {
        pair.now = start.after(Duration::from_secs(seconds));
        assert_eq!(pair.step("a"), Decision::Wait, "after {seconds} s");
        assert!(pair.failed.is_empty());
    }
    pair.now = start.after(Duration::from_secs(last));
    assert_eq!(pair.step("a"), Decision::Unavailable);
    assert_eq!(pair.failed, ["a"]);
    assert_eq!(pair.asked.len(), attempts);
}

/// 10.2: between two attempts nothing is held, and the next one needs no step of the engine.
#[test]
fn a_retry_holds_nothing_and_needs_no_step() {
    let mut pair = Pair::new(8);
    let key = pair.encoding("h", 3);
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!((pair.asked.len(), pair.consumer.usage().free), (1, 8));
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!(pair.asked.len(), 1, "not in the same step (hazard C9)");
    pair.pass(Duration::from_secs(1));
    assert!(pair.asked.len() > 1);
    pair.producer.mark_ready(pair.now, key, None).unwrap();
    pair.pass(Duration::from_secs(5));
    assert_eq!(pair.step("a"), Decision::Ready);
    assert!(pair.failed.is_empty());
}

/// 10.4: an item that finds no room is looked at again in each step, and its clock runs.
#[test]
fn waiting_for_room_counts_against_the_budget() {
    let mut pair = Pair::new(4);
    pair.encoded("h", 3);
    let held = pair.consumer.reserve(&crate::conformance_pair::hash("held"), meta(4), 4).unwrap();
    pair.consumer.mark_ready(pair.now, held, None).unwrap();
    pair.consumer.pin(held).unwrap();
    pair.request("late", "h", 3, false);
    pair.request("early", "h", 3, false);
    assert_eq!(pair.step("early"), Decision::Wait);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.step("late"), Decision::Wait);
    pair.pass(Duration::from_secs(59));
    assert_eq!(pair.step("early"), Decision::Wait, "at the budget");
    pair.pass(TICK);
    assert_eq!(pair.step("early"), Decision::Unavailable);
    pair.consumer.unpin(pair.now, held).unwrap();
    pair.settle();
    assert_eq!(pair.step("late"), Decision::Ready);
    assert_eq!(pair.failed, ["early"]);
}

/// 11.1 to 11.3: with local input the engine encodes and the announcement is not tried again; without
/// it the request fails, once; in both cases no entry and no read is left, before the request ends.
#[rstest]
#[case::missing(false)]
#[case::gone_meanwhile(true)]
fn a_failed_read_leaves_neither_entry_nor_read(
    #[case] was_announced: bool,
    #[values(false, true)] pixels: bool,
) {
    let mut pair = Pair::new(8);
    let key = pair.encoded("h", 3);
    let params = pair.announce("h");
    if was_announced {
        // Evicted between announcement and request: announced entries have no lease.
        for name in ["x", "y", "z"] {
            pair.encoded(name, 4);
        }
    } else {
        assert!(pair.producer.evict("h"));
    }
    assert!(pair.producer.cache().entry(key).is_none());
    pair.request_with("a", "h", 3, pixels, &params);
    assert_eq!(pair.step("a"), Decision::Wait);
    let outcome = if pixels { Decision::Fallback } else { Decision::Unavailable };
    for _ in 0..3 {
        assert_eq!(pair.step("a"), outcome);
        pair.pass(Duration::from_secs(1));
    }
    assert_eq!(pair.failed.len(), usize::from(!pixels));
    assert_eq!(pair.asked, ["h"], "tried once");
    assert_eq!((pair.consumer.usage().free, pair.consumer.usage().entries), (8, 0));
    pair.assert_at_rest();

    // The next request of the hash is none the worse for it.
    pair.encoded("h", 3);
    pair.request("b", "h", 3, false);
    assert_eq!(pair.step("b"), Decision::Wait);
    assert_eq!(pair.step("b"), Decision::Ready);
}
