//! The block cache: what upstream's own tests assert of theirs, what is ours, its cost, and a naive
//! model of it.

mod allocation;
mod cost;
mod entries;
mod eviction;
mod model;
mod staging;

use chiasm_core::cache::{Cache, EntryKey, EvictionPolicy};
use chiasm_core::digest::Digest;
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_core::mm_hash::MmHash;

const META: EntryMeta =
    EntryMeta { rows: 4, width: 8, dtype: Some(Dtype::Bfloat16), bytes: 4 * 8 * 2 };

const DIGEST: Digest = Digest([7; 16]);

fn cache_for_test(blocks: u32) -> Cache {
    Cache::new(blocks, EvictionPolicy::default())
}

fn hash(text: &str) -> MmHash {
    MmHash::new(text).expect("a short text")
}

/// A local save under way.
fn saving(cache: &mut Cache, text: &str, blocks: u32) -> EntryKey {
    let key = cache.reserve(&hash(text), META, blocks).expect("room for a save");
    cache.check().unwrap();
    key
}

/// A local save that is done.
fn saved(cache: &mut Cache, text: &str, blocks: u32) -> EntryKey {
    let key = saving(cache, text, blocks);
    cache.mark_ready(key, Some(DIGEST)).expect("a save under way");
    cache.check().unwrap();
    key
}

/// A region of one-block saves under way `b0`, `b1`, .. in block order.
fn full_of_single_blocks(blocks: u32) -> (Cache, Vec<EntryKey>) {
    let mut cache = cache_for_test(blocks);
    let keys = (0..blocks)
        .map(|block| cache.reserve(&hash(&format!("b{block}")), META, 1).expect("a free block"))
        .collect();
    cache.check().unwrap();
    (cache, keys)
}

fn extents(cache: &Cache, key: EntryKey) -> Vec<(u32, u32)> {
    let entry = cache.entry(key).expect("an entry");
    entry.extents().iter().map(|extent: &Extent| (extent.first(), extent.count())).collect()
}

fn evicted(cache: &Cache) -> Vec<&str> {
    cache.evicted().iter().map(|entry| entry.hash.as_str()).collect()
}
