//! What an operation costs, counted in steps, never in time.

use chiasm_core::cache::Cache;
use chiasm_core::limits::MAX_EXTENTS;

use super::{META, cache_for_test, full_of_single_blocks, hash};

/// Most steps of one save (which evicts one entry), pin, unpin and mark in a region that is full of
/// ready entries of `blocks` blocks each.
fn steps_of_a_save(cache: &mut Cache, blocks: u32) -> u64 {
    let mut saves = 0_u32;
    let mut save = |cache: &mut Cache| {
        let key = cache.reserve(&hash(&format!("h{saves}")), META, blocks).unwrap();
        saves += 1;
        cache.mark_ready(key, None).unwrap();
        cache.pin(key).unwrap();
        cache.unpin(key).unwrap();
    };
    while cache.usage().free >= blocks {
        save(cache);
    }
    let mut most = 0;
    for _ in 0..100 {
        let before = cache.steps();
        save(cache);
        assert_eq!(cache.evicted().len(), 1, "the region is full of entries of one size");
        most = most.max(cache.steps() - before);
    }
    cache.check().unwrap();
    most
}

#[test]
fn a_save_costs_the_same_in_a_region_of_ten_thousand_and_of_a_million_blocks() {
    let small = steps_of_a_save(&mut cache_for_test(10_000), 64);
    let large = steps_of_a_save(&mut cache_for_test(1_000_000), 64);
    assert_eq!(small, large);
}

#[test]
fn a_save_of_4096_blocks_costs_what_a_save_of_one_costs() {
    let [one, many] = [1, 4096].map(|blocks| {
        let mut cache = cache_for_test(1_000_000);
        // Room for 16 large entries or many small ones; the rest is held.
        cache.stage(&hash("held"), META, 1_000_000 - 16 * 4096).unwrap();
        steps_of_a_save(&mut cache, blocks)
    });
    assert_eq!(one, many);
}

/// However many holes there are, no more of them are looked at than an entry may have extents.
#[test]
fn a_search_among_many_holes_looks_at_few() {
    let (mut cache, keys) = full_of_single_blocks(20_000);
    for key in keys.iter().step_by(2) {
        cache.discard(*key).unwrap();
    }
    let before = cache.steps();
    assert!(cache.reserve(&hash("a"), META, 5_000).is_err());
    assert!(cache.steps() - before <= MAX_EXTENTS as u64);
    let before = cache.steps();
    let key = cache.reserve(&hash("a"), META, 64).unwrap();
    cache.discard(key).unwrap();
    // Per extent: two holes looked at in the plans, and in each of the two sets of holes a take of at
    // most 7 steps and a return of at most 8.
    assert!(cache.steps() - before <= 32 * MAX_EXTENTS as u64, "{}", cache.steps() - before);
}
