//! Conformance 12: what an announcement does to the entry that it names, and what comes of it.

use std::time::Duration;

use chiasm_core::admission::Decision;
use serde_json::json;

use crate::conformance_pair::Pair;

/// 12.2
#[test]
fn an_announced_entry_is_as_evictable_as_before() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 3);
    let before = pair.producer.usage();
    let params = pair.announce("h");
    assert_eq!(
        params["h"],
        json!({
            "modality": "image",
            "metadata": {},
            "item_indices": [0],
            "peer_host": "10.0.0.1",
            "peer_port": 5601,
            "size_bytes": 192,
            "shape": [3, 16],
        })
    );
    assert_eq!(pair.producer.usage(), before);
    assert_eq!(before.evictable, 3);
}

/// 12.3: announced while its bytes are still on their way, and read when they have landed.
#[test]
fn an_entry_that_is_not_ready_is_announced_just_the_same() {
    let mut pair = Pair::new(8);
    let key = pair.encoding("h", 3);
    let params = pair.announce("h");
    pair.request_with("a", "h", 3, false, &params);
    assert_eq!(pair.step("a"), Decision::Wait);
    pair.producer.mark_ready(pair.now, key, None).unwrap();
    assert_eq!(pair.announce("h"), params);
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.step("a"), Decision::Ready);
}

/// 12.4: without an entry there is no address, and whoever has the media encodes them.
#[test]
fn without_an_entry_nothing_is_offered() {
    let mut pair = Pair::new(8);
    let params = pair.announce("h");
    assert_eq!(params["h"], json!({"modality": "image", "metadata": {}, "item_indices": [0]}));
    pair.request_with("a", "h", 3, true, &params);
    assert_eq!(pair.step("a"), Decision::Ready);
    assert!(pair.asked.is_empty());
}
