//! The block cache under any series of calls, beside a naive model of who holds which blocks.

use std::collections::BTreeMap;

use chiasm_core::cache::{Cache, EntryKey, EntryState, EvictionPolicy, PublishError, ReserveError};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;

use crate::input::Input;

const BLOCKS: u32 = 40;

#[derive(Clone, Debug)]
struct Known {
    hash: String,
    state: EntryState,
    pins: u32,
    blocks: u32,
    named: bool,
}

/// A byte for the operation, one for the entry, and what it needs more.
pub(crate) fn cache(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut cache = Cache::new(BLOCKS, EvictionPolicy::Fifo);
    let mut known: BTreeMap<EntryKey, Known> = BTreeMap::new();
    let mut made: Vec<EntryKey> = Vec::new();
    while !input.is_empty() {
        let operation = input.below(9);
        if operation < 2 {
            make(&mut cache, &mut input, &mut known, &mut made, operation == 0);
        } else if let Some(key) = made.get(input.below(made.len().clamp(1, 256))).copied() {
            change(&mut cache, &mut known, key, operation);
        }
        check(&cache, &known);
    }
}

fn make(
    cache: &mut Cache,
    input: &mut Input<'_>,
    known: &mut BTreeMap<EntryKey, Known>,
    made: &mut Vec<EntryKey>,
    save: bool,
) {
    let name = format!("h{}", input.below(12));
    let blocks = u32::from(input.byte()) % (BLOCKS + 3);
    let hash = MmHash::new(&name).expect("short");
    let meta = EntryMeta::new(blocks, 1, Dtype::Float32).expect("small");
    let outcome =
        if save { cache.reserve(&hash, meta, blocks) } else { cache.stage(&hash, meta, blocks) };
    match outcome {
        Ok(key) => {
            for evicted in cache.evicted() {
                let gone = known.remove(&evicted.key).expect("it was there");
                assert_eq!((gone.state, gone.pins), (EntryState::Ready, 0), "nobody held it");
            }
            let state = EntryState::NotReady;
            let new = Known { hash: name, state, pins: 0, blocks, named: save };
            assert!(known.insert(key, new).is_none() && !made.contains(&key), "a key of its own");
            made.push(key);
        }
        Err(ReserveError::Duplicate { key }) => {
            assert!(save && known[&key].named && known[&key].hash == name);
        }
        Err(ReserveError::TooLarge { .. }) => assert!(blocks > BLOCKS),
        Err(_) => {}
    }
}

/// What the model says must happen, and that it does.
fn change(
    cache: &mut Cache,
    known: &mut BTreeMap<EntryKey, Known>,
    key: EntryKey,
    operation: usize,
) {
    let before = known.get(&key).cloned();
    let free = before.as_ref().is_some_and(|entry| {
        !known.iter().any(|(other, it)| *other != key && it.named && it.hash == entry.hash)
    });
    let is = |state, pinned: Option<bool>| {
        before.as_ref().is_some_and(|entry| {
            entry.state == state && pinned.is_none_or(|pinned| pinned == (entry.pins > 0))
        })
    };
    let named = before.as_ref().is_some_and(|entry| entry.named);
    let expected = match operation {
        2 => is(EntryState::NotReady, None) && named,
        3 => is(EntryState::NotReady, None) && !named && free,
        4 | 5 => is(EntryState::NotReady, None),
        6 => is(EntryState::Quarantined, None),
        7 => is(EntryState::Ready, None),
        _ => is(EntryState::Ready, Some(true)),
    };
    let done = match operation {
        2 => cache.mark_ready(key, None).is_ok(),
        3 => match cache.publish(key, None) {
            Ok(()) => true,
            Err(PublishError::AlreadyPublished(other) | PublishError::SavePending(other)) => {
                assert!(known[&other].named && known[&other].hash == known[&key].hash);
                false
            }
            Err(_) => false,
        },
        4 => cache.discard(key).is_ok(),
        5 => cache.quarantine(key).is_ok(),
        6 => cache.release_quarantined(key).is_ok(),
        7 => cache.pin(key).is_ok(),
        _ => cache.unpin(key).is_ok(),
    };
    assert_eq!(done, expected, "operation {operation} of {before:?}");
    if !done {
        return;
    }
    if operation == 4 || operation == 6 {
        known.remove(&key);
        return;
    }
    let entry = known.get_mut(&key).expect("it is there");
    match operation {
        2 | 3 => (entry.state, entry.named) = (EntryState::Ready, true),
        5 => (entry.state, entry.named) = (EntryState::Quarantined, false),
        7 => entry.pins += 1,
        _ => entry.pins -= 1,
    }
}

fn check(cache: &Cache, known: &BTreeMap<EntryKey, Known>) {
    cache.check().expect("the cache's own invariants");
    let mut taken = vec![false; BLOCKS as usize];
    for (key, model) in known {
        let entry = cache.entry(*key).expect("it is there");
        assert_eq!((entry.state(), entry.pins()), (model.state, model.pins));
        assert_eq!((entry.hash().as_str(), entry.blocks()), (model.hash.as_str(), model.blocks));
        for extent in entry.extents() {
            for block in extent.first()..extent.end() {
                let block = &mut taken[block as usize];
                assert!(!std::mem::replace(block, true), "a block of two entries");
            }
        }
        let found = cache.find(&model.hash).map(|(found, _)| found);
        assert_eq!(found == Some(*key), model.named);
    }
    let usage = cache.usage();
    let free = taken.iter().filter(|taken| !**taken).count();
    let live = known.values().filter(|entry| entry.state != EntryState::Quarantined).count();
    assert_eq!((usage.free as usize, usage.entries), (free, live));
}
