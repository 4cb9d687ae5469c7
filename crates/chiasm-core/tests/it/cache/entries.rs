//! States, pins and names of entries. The first part is upstream's `test_embedding_cache.py`, with
//! values where upstream asserts.

use chiasm_core::cache::{EntryKey, EntryState, ReserveError, StateError};

use super::{DIGEST, META, cache_for_test, hash, saved, saving};

#[test]
fn a_new_entry_is_neither_ready_nor_evictable() {
    let mut cache = cache_for_test(4);
    let key = saving(&mut cache, "a", 3);
    let entry = cache.entry(key).unwrap();
    assert_eq!(entry.state(), EntryState::NotReady);
    assert_eq!(entry.digest(), None);
    assert_eq!(entry.pins(), 0);
    assert_eq!((entry.hash(), entry.meta(), entry.blocks()), (&hash("a"), &META, 3));
    let usage = cache.usage();
    assert_eq!((usage.free, usage.live, usage.evictable, usage.entries), (1, 3, 0, 1));
}

#[test]
fn a_second_save_of_a_hash_is_a_duplicate_of_the_first() {
    let mut cache = cache_for_test(4);
    let key = saving(&mut cache, "a", 1);
    assert_eq!(cache.reserve(&hash("a"), META, 1), Err(ReserveError::Duplicate { key }));
    cache.mark_ready(key, None).unwrap();
    assert_eq!(cache.reserve(&hash("a"), META, 9), Err(ReserveError::Duplicate { key }));
    assert_eq!(cache.usage().free, 3);
}

#[test]
fn a_missing_hash_is_not_found() {
    assert!(cache_for_test(4).find("a").is_none());
}

#[test]
fn an_entry_is_found_by_its_hash_ready_or_not() {
    let mut cache = cache_for_test(4);
    let key = saving(&mut cache, "a", 1);
    let (found, entry) = cache.find("a").unwrap();
    assert_eq!((found, entry.state(), entry.is_published()), (key, EntryState::NotReady, true));
    cache.mark_ready(key, None).unwrap();
    let (found, entry) = cache.find("a").unwrap();
    assert_eq!((found, entry.state(), entry.is_published()), (key, EntryState::Ready, true));
}

#[test]
fn mark_ready_makes_an_entry_ready_and_evictable_at_once() {
    let mut cache = cache_for_test(4);
    let key = saving(&mut cache, "a", 3);
    cache.mark_ready(key, Some(DIGEST)).unwrap();
    cache.check().unwrap();
    let entry = cache.entry(key).unwrap();
    assert_eq!((entry.state(), entry.digest()), (EntryState::Ready, Some(DIGEST)));
    assert_eq!(cache.usage().evictable, 3);
}

#[test]
fn a_ready_entry_cannot_be_marked_ready_again() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 1);
    assert_eq!(cache.mark_ready(key, None), Err(StateError::AlreadyReady(key)));
    assert_eq!(cache.entry(key).unwrap().digest(), Some(DIGEST), "the digest is kept");
}

#[test]
fn an_entry_that_is_not_ready_cannot_be_pinned_unpinned_or_evicted() {
    let mut cache = cache_for_test(4);
    let key = saving(&mut cache, "a", 1);
    assert_eq!(cache.pin(key), Err(StateError::NotReady(key)));
    assert_eq!(cache.unpin(key), Err(StateError::NotReady(key)));
    assert_eq!(cache.evict(key), Err(StateError::NotReady(key)));
    assert_eq!(cache.usage().pinned_entries, 0);
}

#[test]
fn a_pin_takes_evictability_and_the_unpin_gives_it_back() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 3);
    cache.pin(key).unwrap();
    cache.check().unwrap();
    assert_eq!((cache.usage().evictable, cache.usage().pinned_entries), (0, 1));
    assert_eq!(cache.evict(key), Err(StateError::Pinned(key)));
    cache.unpin(key).unwrap();
    cache.check().unwrap();
    assert_eq!((cache.usage().evictable, cache.usage().pinned_entries), (3, 0));
}

#[test]
fn pins_nest() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 3);
    cache.pin(key).unwrap();
    cache.pin(key).unwrap();
    assert_eq!((cache.entry(key).unwrap().pins(), cache.usage().pinned_entries), (2, 1));
    cache.unpin(key).unwrap();
    cache.check().unwrap();
    assert_eq!((cache.usage().evictable, cache.usage().pinned_entries), (0, 1));
    cache.unpin(key).unwrap();
    assert_eq!((cache.usage().evictable, cache.usage().pinned_entries), (3, 0));
}

#[test]
fn an_unpin_without_a_pin_is_refused() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 1);
    assert_eq!(cache.unpin(key), Err(StateError::NotPinned(key)));
    cache.pin(key).unwrap();
    cache.unpin(key).unwrap();
    assert_eq!(cache.unpin(key), Err(StateError::NotPinned(key)));
    cache.check().unwrap();
}

#[test]
fn entries_are_held_while_not_ready_pinned_or_quarantined() {
    let mut cache = cache_for_test(4);
    assert!(!cache.has_held_entries());
    let key = saving(&mut cache, "a", 1);
    assert!(cache.has_held_entries(), "not ready");
    cache.mark_ready(key, None).unwrap();
    assert!(!cache.has_held_entries());
    cache.pin(key).unwrap();
    assert!(cache.has_held_entries(), "pinned");
    cache.unpin(key).unwrap();
    assert!(!cache.has_held_entries());
    let lost = saving(&mut cache, "b", 1);
    cache.quarantine(lost).unwrap();
    assert!(cache.has_held_entries(), "quarantined");
    cache.release_quarantined(lost).unwrap();
    assert!(!cache.has_held_entries());
}

#[test]
fn discard_of_an_entry_that_is_not_ready_frees_all_its_blocks() {
    let mut cache = cache_for_test(4);
    let key = saving(&mut cache, "a", 3);
    cache.discard(key).unwrap();
    cache.check().unwrap();
    assert!(cache.find("a").is_none());
    assert!(cache.entry(key).is_none());
    assert_eq!((cache.usage().free, cache.usage().entries), (4, 0));
}

#[test]
fn a_ready_entry_cannot_be_discarded_or_quarantined() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 1);
    assert_eq!(cache.discard(key), Err(StateError::AlreadyReady(key)));
    assert_eq!(cache.quarantine(key), Err(StateError::AlreadyReady(key)));
    assert_eq!(cache.release_quarantined(key), Err(StateError::NotQuarantined(key)));
    assert_eq!(cache.entry(key).unwrap().state(), EntryState::Ready);
}

/// Upstream's `pin_if_ready` is a lookup and a pin, which here nothing can come between.
#[test]
fn a_lookup_before_the_pin_tells_missing_from_not_ready() {
    let mut cache = cache_for_test(4);
    assert!(cache.find("a").is_none());
    let key = saving(&mut cache, "a", 1);
    let (found, _) = cache.find("a").unwrap();
    assert_eq!(cache.pin(found), Err(StateError::NotReady(key)));
    cache.mark_ready(key, None).unwrap();
    cache.pin(found).unwrap();
    assert_eq!(cache.usage().evictable, 0);
}

#[test]
fn a_removed_entry_is_gone_and_its_hash_free() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 3);
    cache.evict(key).unwrap();
    cache.check().unwrap();
    assert!(cache.find("a").is_none());
    assert_eq!(cache.usage().free, 4);
    saving(&mut cache, "a", 4);
}

#[test]
fn a_stale_key_is_an_error_and_never_the_slots_next_entry() {
    let mut cache = cache_for_test(4);
    let stale = saving(&mut cache, "a", 1);
    cache.discard(stale).unwrap();
    let tenant = saved(&mut cache, "b", 1);
    assert_eq!(stale.index(), tenant.index(), "the slot is used again, or this test says nothing");
    assert_ne!(stale.generation(), tenant.generation());
    assert_every_operation_refuses(&mut cache, stale);
    let entry = cache.entry(tenant).unwrap();
    assert_eq!((entry.state(), entry.pins()), (EntryState::Ready, 0));
}

#[test]
fn a_made_up_key_is_an_error() {
    let mut cache = cache_for_test(4);
    let key = saved(&mut cache, "a", 1);
    let same = EntryKey::from_parts(key.index(), key.generation());
    assert!(cache.entry(same).is_some());
    for (index, generation) in [
        (key.index(), 0),
        (key.index(), u64::MAX),
        (key.index() + 1, key.generation()),
        (u32::MAX, 1),
    ] {
        assert_every_operation_refuses(&mut cache, EntryKey::from_parts(index, generation));
    }
}

fn assert_every_operation_refuses(cache: &mut super::Cache, key: EntryKey) {
    let unknown = Err(StateError::UnknownKey(key));
    assert!(cache.entry(key).is_none());
    assert_eq!(cache.mark_ready(key, None), unknown);
    assert_eq!(cache.publish(key, None), Err(StateError::UnknownKey(key).into()));
    assert_eq!(cache.discard(key), unknown);
    assert_eq!(cache.quarantine(key), unknown);
    assert_eq!(cache.release_quarantined(key), unknown);
    assert_eq!(cache.pin(key), unknown);
    assert_eq!(cache.unpin(key), unknown);
    assert_eq!(cache.evict(key), unknown);
    cache.check().unwrap();
}
