//! Which entries go, and when none does.

use chiasm_core::cache::{Evicted, ReserveError, StateError};

use super::{META, cache_for_test, evicted, hash, saved, saving};

#[test]
fn the_entry_that_became_ready_first_goes_first() {
    let mut cache = cache_for_test(3);
    let slow = saving(&mut cache, "slow", 1);
    saved(&mut cache, "a", 1);
    saved(&mut cache, "b", 1);
    cache.mark_ready(slow, None).unwrap();
    for (new, old) in [("x", "a"), ("y", "b"), ("z", "slow")] {
        saving(&mut cache, new, 1);
        assert_eq!(evicted(&cache), [old]);
        assert!(cache.find(old).is_none());
    }
}

#[test]
fn publication_counts_like_readiness() {
    let mut cache = cache_for_test(2);
    let read = cache.stage(&hash("read"), META, 1).unwrap();
    saved(&mut cache, "a", 1);
    cache.publish(read, None).unwrap();
    saving(&mut cache, "x", 1);
    assert_eq!(evicted(&cache), ["a"]);
    saving(&mut cache, "y", 1);
    assert_eq!(evicted(&cache), ["read"]);
}

#[test]
fn the_last_unpin_makes_an_entry_the_youngest() {
    let mut cache = cache_for_test(3);
    let pinned = saved(&mut cache, "a", 1);
    saved(&mut cache, "b", 1);
    saved(&mut cache, "c", 1);
    cache.pin(pinned).unwrap();
    cache.unpin(pinned).unwrap();
    for (new, old) in [("x", "b"), ("y", "c"), ("z", "a")] {
        saving(&mut cache, new, 1);
        assert_eq!(evicted(&cache), [old]);
    }
}

#[test]
fn a_lookup_makes_no_entry_younger() {
    let mut cache = cache_for_test(2);
    saved(&mut cache, "a", 1);
    saved(&mut cache, "b", 1);
    let (key, _) = cache.find("a").unwrap();
    assert!(cache.entry(key).is_some());
    saving(&mut cache, "x", 1);
    assert_eq!(evicted(&cache), ["a"]);
}

#[test]
fn entries_that_are_pinned_or_not_ready_are_passed_over() {
    let mut cache = cache_for_test(3);
    let pinned = saved(&mut cache, "pinned", 1);
    cache.pin(pinned).unwrap();
    saving(&mut cache, "saving", 1);
    saved(&mut cache, "c", 1);
    saving(&mut cache, "x", 1);
    assert_eq!(evicted(&cache), ["c"]);
}

#[test]
fn nothing_goes_where_every_entry_is_held() {
    let mut cache = cache_for_test(3);
    let pinned = saved(&mut cache, "pinned", 2);
    cache.pin(pinned).unwrap();
    saving(&mut cache, "saving", 1);
    assert_eq!(
        cache.reserve(&hash("x"), META, 1),
        Err(ReserveError::Full { needed: 1, free: 0, evictable: 0 })
    );
    cache.check().unwrap();
    assert!(cache.find("pinned").is_some());
    assert!(cache.find("saving").is_some());
}

/// Hazard C8: what would not succeed evicts nothing.
#[test]
fn hazard_c8_nothing_goes_where_all_that_may_go_is_not_enough() {
    let mut cache = cache_for_test(4);
    saving(&mut cache, "held", 2);
    saved(&mut cache, "a", 1);
    assert_eq!(
        cache.stage(&hash("x"), META, 3),
        Err(ReserveError::Full { needed: 3, free: 1, evictable: 1 })
    );
    assert!(cache.find("a").is_some());
    assert!(cache.evicted().is_empty());
}

#[test]
fn as_many_entries_go_as_are_needed_and_no_more() {
    let mut cache = cache_for_test(6);
    for name in ["a", "b", "c"] {
        saved(&mut cache, name, 2);
    }
    saving(&mut cache, "x", 3);
    assert_eq!(evicted(&cache), ["a", "b"]);
    assert!(cache.find("c").is_some());
    assert_eq!(cache.usage().free, 1);
    saving(&mut cache, "y", 1);
    assert!(evicted(&cache).is_empty(), "a free block needs no eviction");
}

#[test]
fn evicted_entries_are_reported_with_key_and_blocks() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 3);
    saving(&mut cache, "x", 2);
    assert_eq!(cache.evicted(), [Evicted { key, hash: hash("a"), blocks: 3 }]);
    assert_eq!(cache.pin(key), Err(StateError::UnknownKey(key)));
    assert!(cache.reserve(&hash("x"), META, 1).is_err());
    assert!(cache.evicted().is_empty(), "a refused call evicts nothing and reports so");
}

/// S2: a pinned entry's blocks are nobody else's until the pin is gone.
#[test]
fn blocks_of_a_pinned_entry_are_never_given_to_another() {
    let mut cache = cache_for_test(4);
    let pinned = saved(&mut cache, "granted", 2);
    cache.pin(pinned).unwrap();
    for round in 0..20 {
        let other = saved(&mut cache, &format!("other{round}"), 2);
        let blocks = super::extents(&cache, other);
        assert_ne!(blocks, super::extents(&cache, pinned));
    }
    cache.unpin(pinned).unwrap();
    saving(&mut cache, "x", 4);
    assert!(cache.entry(pinned).is_none());
}
