//! Remote reads before they are published, and quarantine.

use chiasm_core::cache::{EntryState, PublishError, StateError};

use super::{DIGEST, META, cache_for_test, extents, hash, saved, saving};

#[test]
fn a_staging_entry_is_found_by_its_hash_only_once_it_is_published() {
    let mut cache = cache_for_test(4);
    let key = cache.stage(&hash("a"), META, 2).unwrap();
    cache.check().unwrap();
    assert!(cache.find("a").is_none());
    assert!(!cache.entry(key).unwrap().is_published());
    assert_eq!(cache.usage().live, 2);
    assert!(cache.has_held_entries());
    cache.publish(key, Some(DIGEST)).unwrap();
    cache.check().unwrap();
    let (found, entry) = cache.find("a").unwrap();
    assert_eq!((found, entry.state(), entry.digest()), (key, EntryState::Ready, Some(DIGEST)));
    assert_eq!(cache.usage().evictable, 2);
}

#[test]
fn of_two_reads_of_one_hash_the_first_valid_one_publishes_and_the_other_is_told_so() {
    let mut cache = cache_for_test(4);
    let slow = cache.stage(&hash("a"), META, 2).unwrap();
    let fast = cache.stage(&hash("a"), META, 2).unwrap();
    cache.publish(fast, Some(DIGEST)).unwrap();
    let before = cache.usage();
    assert_eq!(cache.publish(slow, None), Err(PublishError::AlreadyPublished(fast)));
    cache.check().unwrap();
    assert_eq!(cache.usage(), before, "a refused publication changes nothing");
    assert_eq!(cache.entry(slow).unwrap().state(), EntryState::NotReady);
    cache.discard(slow).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.find("a").unwrap().0, fast);
}

#[test]
fn a_read_cannot_take_the_name_of_a_save_under_way() {
    let mut cache = cache_for_test(4);
    let read = cache.stage(&hash("a"), META, 1).unwrap();
    let save = saving(&mut cache, "a", 1);
    assert_eq!(cache.publish(read, None), Err(PublishError::SavePending(save)));
    cache.quarantine(save).unwrap();
    cache.publish(read, None).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.find("a").unwrap().0, read);
}

#[test]
fn a_save_is_marked_ready_and_a_read_is_published_and_not_the_other_way_round() {
    let mut cache = cache_for_test(4);
    let read = cache.stage(&hash("a"), META, 1).unwrap();
    assert_eq!(cache.mark_ready(read, None), Err(StateError::Unpublished(read)));
    let save = saving(&mut cache, "b", 1);
    assert_eq!(cache.publish(save, None), Err(StateError::NotStaged(save).into()));
    cache.mark_ready(save, None).unwrap();
    assert_eq!(cache.publish(save, None), Err(StateError::AlreadyReady(save).into()));
    cache.check().unwrap();
}

/// Hazard C1: an abandoned read neither keeps its blocks nor poisons its hash.
#[test]
fn hazard_c1_a_discarded_read_leaves_no_blocks_and_no_name() {
    let mut cache = cache_for_test(4);
    let read = cache.stage(&hash("a"), META, 4).unwrap();
    cache.discard(read).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.usage().free, 4);
    saved(&mut cache, "a", 4);
}

/// Hazard A3: nothing but an explicit release gives blocks to another that may still be written.
#[test]
fn hazard_a3_quarantined_blocks_stay_taken_until_released() {
    let mut cache = cache_for_test(4);
    let lost = saving(&mut cache, "a", 3);
    cache.quarantine(lost).unwrap();
    cache.check().unwrap();
    assert!(!cache.can_fit_now(2));
    assert!(cache.reserve(&hash("b"), META, 2).is_err());
    assert_eq!((cache.usage().quarantined, cache.usage().live, cache.usage().entries), (3, 0, 0));
    cache.release_quarantined(lost).unwrap();
    cache.check().unwrap();
    assert_eq!((cache.usage().quarantined, cache.usage().free), (0, 4));
    saving(&mut cache, "b", 4);
}

/// Hazard C2: a lost read does not poison its hash.
#[test]
fn hazard_c2_a_quarantined_entry_gives_up_its_name_at_once() {
    let mut cache = cache_for_test(4);
    let lost = saving(&mut cache, "a", 2);
    cache.quarantine(lost).unwrap();
    assert!(cache.find("a").is_none());
    assert!(!cache.entry(lost).unwrap().is_published());
    let again = saved(&mut cache, "a", 2);
    assert_eq!(extents(&cache, again), [(2, 2)]);
    cache.release_quarantined(lost).unwrap();
    cache.check().unwrap();
    assert_eq!(cache.find("a").unwrap().0, again, "the release is not of the new entry's name");
}

#[test]
fn a_quarantined_entry_can_only_be_released_and_only_once() {
    let mut cache = cache_for_test(4);
    let key = cache.stage(&hash("a"), META, 2).unwrap();
    assert_eq!(cache.release_quarantined(key), Err(StateError::NotQuarantined(key)));
    cache.quarantine(key).unwrap();
    let quarantined = Err(StateError::Quarantined(key));
    assert_eq!(cache.mark_ready(key, None), quarantined);
    assert_eq!(cache.publish(key, None), Err(StateError::Quarantined(key).into()));
    assert_eq!(cache.discard(key), quarantined);
    assert_eq!(cache.quarantine(key), quarantined);
    assert_eq!(cache.pin(key), quarantined);
    assert_eq!(cache.unpin(key), quarantined);
    assert_eq!(cache.evict(key), quarantined);
    cache.check().unwrap();
    cache.release_quarantined(key).unwrap();
    assert_eq!(cache.release_quarantined(key), Err(StateError::UnknownKey(key)));
    cache.check().unwrap();
}
