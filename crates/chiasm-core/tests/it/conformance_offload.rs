//! Conformance 8: one instance that reuses what it has encoded itself. No peer, no network.

use chiasm_core::admission::Decision;
use chiasm_core::cache::ReserveError;
use serde_json::json;

use crate::conformance_pair::{Pair, hash, item, meta};

/// A request of `names` whose media are all here and of which nothing is announced.
fn request(pair: &mut Pair, id: &str, names: &[(&str, u32)]) {
    let blocks = pair.consumer.usage().total;
    let mut end = 0;
    let items = names.iter().map(|(name, rows)| {
        end += rows;
        item(name, (*rows, end), true, &json!({}), blocks)
    });
    let items = items.collect();
    pair.request_of(id, items);
}

fn saved(pair: &mut Pair, name: &str, rows: u32) {
    let key = pair.consumer.reserve(&hash(name), meta(rows), rows).expect("room");
    pair.consumer.mark_ready(pair.now, key, None).expect("a save under way");
}

/// 8.1: allocated at first sight, no hit before the save has landed, then a hit on the same blocks.
#[test]
fn what_is_saved_once_is_loaded_from_the_same_blocks() {
    let mut pair = Pair::new(8);
    request(&mut pair, "first", &[("h", 3)]);
    assert_eq!(pair.step("first"), Decision::Ready, "the engine encodes it");
    let key = pair.consumer.reserve(&hash("h"), meta(3), 3).unwrap();
    let blocks = pair.consumer.cache().entry(key).unwrap().extents().to_vec();
    assert_eq!(pair.step("first"), Decision::Ready);
    request(&mut pair, "early", &[("h", 3)]);
    assert_eq!(pair.step("early"), Decision::Ready);
    assert_eq!(pair.consumer.promised("h"), None, "its bytes have not landed");

    pair.consumer.mark_ready(pair.now, key, None).unwrap();
    pair.finish("first");
    pair.finish("early");
    request(&mut pair, "second", &[("h", 3)]);
    assert_eq!(pair.step("second"), Decision::Ready);
    assert_eq!(pair.consumer.promised("h"), Some(key));
    assert_eq!(pair.consumer.cache().entry(key).unwrap().extents(), blocks);
    assert!(pair.asked.is_empty());
}

/// 8.4
#[test]
fn the_oldest_save_makes_room_for_the_next() {
    let mut pair = Pair::new(6);
    for name in ["a", "b", "c"] {
        saved(&mut pair, name, 2);
    }
    saved(&mut pair, "d", 2);
    let here = |name: &str| pair.consumer.cache().find(name).is_some();
    assert_eq!(["a", "b", "c", "d"].map(here), [false, true, true, true]);
}

/// 8.5
#[test]
fn all_items_of_a_request_are_promised_together() {
    let mut pair = Pair::new(8);
    let names = [("a", 2), ("b", 3), ("c", 1)];
    for (name, rows) in names {
        saved(&mut pair, name, rows);
    }
    request(&mut pair, "r", &names);
    assert_eq!(pair.step("r"), Decision::Ready);
    for (name, _) in names {
        let found = pair.consumer.cache().find(name).map(|(key, _)| key);
        assert_eq!(pair.consumer.promised(name), found);
    }
    assert_eq!(pair.consumer.usage().pinned_entries, 3);
}

/// 8.6: a load is only for what a request of this step needs: not for what merely lies there, and
/// not for what the request has computed.
#[test]
fn nothing_is_promised_that_no_running_request_needs() {
    let mut pair = Pair::new(8);
    for name in ["asked", "computed", "idle"] {
        saved(&mut pair, name, 2);
    }
    request(&mut pair, "r", &[("computed", 2), ("asked", 2), ("nowhere", 2)]);
    assert_eq!(pair.step_at("r", 2), Decision::Ready);
    let promised = ["asked", "computed", "idle", "nowhere"];
    let promised = promised.map(|name| pair.consumer.promised(name).is_some());
    assert_eq!(promised, [true, false, false, false]);
    pair.finish("r");
    assert_eq!(pair.consumer.promised("asked"), None);
}

/// 8.7: until the load is reported complete no save gets the blocks, even if the request has ended.
#[test]
fn a_load_under_way_keeps_its_blocks() {
    let mut pair = Pair::new(4);
    saved(&mut pair, "h", 3);
    request(&mut pair, "r", &[("h", 3)]);
    assert_eq!(pair.step("r"), Decision::Ready);
    let key = pair.consumer.promised("h").unwrap();
    pair.consumer.pin(key).unwrap();
    pair.finish("r");
    let refused = pair.consumer.reserve(&hash("other"), meta(2), 2);
    assert_eq!(refused, Err(ReserveError::Full { needed: 2, free: 1, evictable: 0 }));
    pair.consumer.unpin(pair.now, key).unwrap();
    assert!(pair.consumer.reserve(&hash("other"), meta(2), 2).is_ok());
}

/// 8.10: a save that finds no room is left out, and nobody waits for it.
#[test]
fn a_full_region_costs_a_save_and_delays_no_request() {
    let mut pair = Pair::new(4);
    saved(&mut pair, "held", 4);
    request(&mut pair, "holder", &[("held", 4)]);
    assert_eq!(pair.step("holder"), Decision::Ready);
    request(&mut pair, "r", &[("h", 3)]);
    assert_eq!(pair.step("r"), Decision::Ready);
    let refused = pair.consumer.reserve(&hash("h"), meta(3), 3);
    assert_eq!(refused, Err(ReserveError::Full { needed: 3, free: 0, evictable: 0 }));
    assert_eq!(pair.step("r"), Decision::Ready);
    assert!(pair.consumer.cache().find("h").is_none());
}
