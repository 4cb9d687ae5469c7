//! Which blocks an entry gets.

use chiasm_core::cache::{EntryState, ReserveError};
use chiasm_core::limits::MAX_EXTENTS;

use super::{META, cache_for_test, evicted, extents, full_of_single_blocks, hash, saved, saving};

/// `MAX_EXTENTS` as a number of blocks.
#[expect(clippy::cast_possible_truncation, reason = "far below 2^32")]
const MAX: u32 = MAX_EXTENTS as u32;

#[test]
fn an_empty_region_gives_one_ascending_extent() {
    let mut cache = cache_for_test(8);
    let first = saving(&mut cache, "a", 3);
    let second = saving(&mut cache, "b", 5);
    assert_eq!(extents(&cache, first), [(0, 3)]);
    assert_eq!(extents(&cache, second), [(3, 5)]);
}

#[test]
fn more_than_the_region_is_too_large_whatever_is_in_it() {
    let mut cache = cache_for_test(4);
    saved(&mut cache, "a", 4);
    let refused = ReserveError::TooLarge { needed: 5, region: 4 };
    assert_eq!(cache.reserve(&hash("b"), META, 5), Err(refused));
    assert_eq!(cache.stage(&hash("b"), META, 5), Err(refused));
    assert_eq!(
        cache.stage(&hash("b"), META, u32::MAX).unwrap_err().to_string(),
        "4294967295 blocks are more than the region's 4: raise ec_cpu_bytes"
    );
    assert!(cache.find("a").is_some());
}

#[test]
fn a_full_region_refuses_and_says_what_is_free_and_evictable() {
    let mut cache = cache_for_test(8);
    saving(&mut cache, "a", 5);
    saved(&mut cache, "b", 2);
    assert_eq!(
        cache.reserve(&hash("c"), META, 4),
        Err(ReserveError::Full { needed: 4, free: 1, evictable: 2 })
    );
    assert!(cache.find("b").is_some(), "nothing is evicted in vain");
    assert!(cache.can_fit_now(3));
    assert!(!cache.can_fit_now(4));
}

#[test]
fn an_entry_of_no_blocks_succeeds_without_extents() {
    let mut cache = cache_for_test(2);
    saving(&mut cache, "a", 1);
    let key = saved(&mut cache, "b", 0);
    assert_eq!(extents(&cache, key), []);
    cache.pin(key).unwrap();
    cache.unpin(key).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.usage().free, 1);
}

/// S7: a client chooses hashes, so entries that cost no blocks are counted too.
#[test]
fn entries_of_no_blocks_are_capped_by_the_number_of_blocks() {
    let mut cache = cache_for_test(3);
    for name in ["a", "b", "c", "d"] {
        saved(&mut cache, name, 0);
    }
    assert_eq!(evicted(&cache), ["a"]);
    assert_eq!(cache.usage().entries, 3);
    for name in ["b", "c", "d"] {
        let (key, _) = cache.find(name).unwrap();
        cache.pin(key).unwrap();
    }
    assert_eq!(
        cache.stage(&hash("e"), META, 0),
        Err(ReserveError::Full { needed: 0, free: 3, evictable: 0 })
    );
    cache.check().unwrap();
}

#[test]
fn a_region_of_no_blocks_is_a_cache_that_holds_nothing() {
    let mut cache = cache_for_test(0);
    cache.check().unwrap();
    assert_eq!(
        cache.reserve(&hash("a"), META, 1),
        Err(ReserveError::TooLarge { needed: 1, region: 0 })
    );
    saved(&mut cache, "b", 0);
}

#[test]
fn the_largest_possible_region_is_counted_without_overflow() {
    let mut cache = cache_for_test(u32::MAX);
    let all = saved(&mut cache, "a", u32::MAX);
    assert_eq!(extents(&cache, all), [(0, u32::MAX)]);
    saved(&mut cache, "b", u32::MAX);
    assert_eq!(evicted(&cache), ["a"]);
}

#[test]
fn the_smallest_hole_that_is_large_enough_is_taken() {
    let mut cache = cache_for_test(20);
    let wide = saving(&mut cache, "wide", 6);
    saving(&mut cache, "x", 1);
    let exact = saving(&mut cache, "exact", 3);
    saving(&mut cache, "y", 1);
    cache.discard(wide).unwrap();
    cache.discard(exact).unwrap();
    // Holes now: 0..6, 7..10, 11..20.
    let key = saving(&mut cache, "a", 3);
    assert_eq!(extents(&cache, key), [(7, 3)]);
    let key = saving(&mut cache, "b", 2);
    assert_eq!(extents(&cache, key), [(0, 2)]);
}

#[test]
fn one_extent_is_given_whenever_a_hole_allows() {
    let (mut cache, keys) = full_of_single_blocks(40);
    for at in (0..30).step_by(2).chain(30..40) {
        cache.discard(keys[at]).unwrap();
    }
    // Holes: every other block below 30, and 30..40.
    let key = saving(&mut cache, "a", 10);
    assert_eq!(extents(&cache, key), [(30, 10)]);
}

#[test]
fn where_no_hole_is_large_enough_the_fewest_extents_are_given_in_ascending_order() {
    let (mut cache, keys) = full_of_single_blocks(20);
    for at in [0, 1, 2, 4, 6, 7, 8, 9, 11, 12] {
        cache.discard(keys[at]).unwrap();
    }
    // Holes of 3, 1, 4 and 2: four and three are the fewest for six; the rest of two goes where it
    // fits exactly.
    let key = saving(&mut cache, "a", 6);
    assert_eq!(extents(&cache, key), [(6, 4), (11, 2)]);
    let key = saving(&mut cache, "b", 4);
    assert_eq!(extents(&cache, key), [(0, 3), (4, 1)]);
}

#[test]
fn neighbours_that_are_freed_become_one_hole() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (mut cache, keys) = full_of_single_blocks(3);
        for at in order {
            cache.discard(keys[at]).unwrap();
            cache.check().unwrap();
        }
        let key = saving(&mut cache, "a", 3);
        assert_eq!(extents(&cache, key), [(0, 3)]);
    }
}

#[test]
fn an_entry_may_have_exactly_the_greatest_number_of_extents() {
    let (mut cache, keys) = full_of_single_blocks(2 * MAX);
    for key in keys.iter().step_by(2) {
        cache.discard(*key).unwrap();
    }
    let key = saving(&mut cache, "a", MAX);
    assert_eq!(cache.entry(key).unwrap().extents().len(), MAX_EXTENTS);
    cache.discard(key).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.usage().free, MAX);
}

/// A deliberate difference: upstream would give out any number of single blocks.
#[test]
fn where_free_blocks_are_too_scattered_it_evicts_further_in_order() {
    let (mut cache, keys) = full_of_single_blocks(2 * MAX + 20);
    for key in keys.iter().step_by(2) {
        cache.discard(*key).unwrap();
    }
    // 74 single holes; the blocks between become ready from the last one down. The last block and its
    // neighbour make a hole of two: 65 blocks in 64 extents are one too few. The next makes it four.
    for key in keys.iter().skip(1).step_by(2).rev() {
        cache.mark_ready(*key, None).unwrap();
    }
    let key = saving(&mut cache, "a", MAX + 2);
    assert_eq!(evicted(&cache), ["b147", "b145"]);
    assert_eq!(extents(&cache, key).last(), Some(&(144, 4)));
    assert!(extents(&cache, key).len() <= MAX_EXTENTS);
}

/// There are enough blocks, free or evictable, but what is held leaves them in too many pieces.
#[test]
fn where_held_entries_scatter_the_rest_it_refuses_and_evicts_nothing() {
    let (mut cache, keys) = full_of_single_blocks(2 * MAX + 20);
    for (at, key) in keys.iter().enumerate() {
        match at % 4 {
            0 => cache.discard(*key).unwrap(),
            2 => cache.mark_ready(*key, None).unwrap(),
            _ => {}
        }
    }
    let (free, evictable) = (37, 37);
    assert_eq!(
        cache.stage(&hash("a"), META, MAX + 1),
        Err(ReserveError::Full { needed: MAX + 1, free, evictable })
    );
    assert!(cache.can_fit_now(MAX + 1), "which counts blocks only");
    assert!(cache.evicted().is_empty());
    assert_eq!(cache.usage().evictable, evictable);
    // One block fewer needs every extent that is allowed, and most of the evictable ones.
    let key = cache.stage(&hash("a"), META, MAX).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.entry(key).unwrap().extents().len(), MAX_EXTENTS);
    assert_eq!(cache.evicted().len(), 27);
}

#[test]
fn a_refused_save_leaves_no_name_behind() {
    let mut cache = cache_for_test(2);
    let first = saving(&mut cache, "a", 2);
    assert!(cache.reserve(&hash("b"), META, 1).is_err());
    assert!(cache.find("b").is_none());
    cache.discard(first).unwrap();
    let second = saving(&mut cache, "b", 1);
    assert_eq!(cache.entry(second).unwrap().state(), EntryState::NotReady);
}
