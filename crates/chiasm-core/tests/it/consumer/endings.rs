//! How transfers end: room, sources that disagree, deadlines.

use chiasm_core::consumer::{FailureClass, FailureReason, ReadEnd, Wanted};
use chiasm_core::digest::Digest;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::time::Nanos;

use super::{DIGEST, SECOND, World, ack_for, at, far, landed, meta, near, wanted};

#[test]
fn what_has_landed_is_published_and_free_to_go() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 3));
    world.ended(at(1), id, landed(3, Some(DIGEST)));
    let finished = world.take_finished().unwrap();
    assert_eq!((finished.transfer, finished.hash.as_str(), finished.source), (id, "h", near()));
    let arrived = finished.outcome.unwrap();
    assert_eq!(world.cache.find("h").unwrap().0, arrived.entry);
    let entry = world.cache.entry(arrived.entry).unwrap();
    assert_eq!((*entry.meta(), entry.digest(), entry.pins()), (meta(3), Some(DIGEST), 0));
    assert_eq!((arrived.bytes, arrived.conflict), (192, false));
    assert_eq!(world.consumer.counters().bytes.values().sum::<u64>(), 192);
    world.at_rest();
}

#[test]
fn a_read_that_failed_gives_its_blocks_back_at_once() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 3));
    world.ended(at(1), id, ReadEnd::Failed(FailureReason::Plane("reset".into())));
    assert_eq!(world.class(), FailureClass::Retryable);
    assert_eq!(world.cache.usage().free, 16);
    world.at_rest();
}

#[test]
fn blocks_are_taken_when_the_producer_has_agreed_and_not_before() {
    let mut world = World::connected(4);
    let hash = MmHash::new("mine").unwrap();
    let mine = world.cache.reserve(&hash, meta(4), 4).unwrap();
    world.cache.mark_ready(mine, None).unwrap();
    world.start(at(0), &wanted("h", 3));
    assert!(world.holds("mine"), "hazard_c8: nothing is evicted for a hope");
    let sent = world.last_sent();
    world.ack(at(1), &sent, 3);
    assert!(!world.holds("mine"));
    assert_eq!(world.reads.len(), 1);
}

#[test]
fn no_room_is_told_from_never_any_room() {
    let mut world = World::connected(4);
    let hash = MmHash::new("mine").unwrap();
    let mine = world.cache.reserve(&hash, meta(2), 2).unwrap();
    world.start(at(0), &wanted("h", 3));
    let sent = world.last_sent();
    world.ack(at(1), &sent, 3);
    assert_eq!(world.class(), FailureClass::NoRoom);
    world.start(at(0), &wanted("huge", 5));
    let sent = world.last_sent();
    world.ack(at(1), &sent, 5);
    let failure = world.failure();
    assert_eq!((failure.reason, failure.class), (FailureReason::TooLarge, FailureClass::Terminal));
    world.cache.discard(mine).unwrap();
    world.at_rest();
}

/// Two sources of one hash, both reading: the first valid one publishes.
fn second_source(first: Option<Digest>, second: Option<Digest>) -> (World, bool) {
    let mut world = World::connected(16);
    let one = world.reading(at(0), &wanted("h", 2));
    world.start(at(0), &Wanted { source: far(), ..wanted("h", 2) });
    world.up(at(0), &far());
    let sent = world.last_sent();
    let mut ack = ack_for(&sent, 2);
    ack.chiasm.as_mut().unwrap().digest = second;
    world.receive(at(0), &far(), &ack.encode());
    let two = world.reads[1].transfer;
    assert_ne!(world.reads[0].local, world.reads[1].local, "each reads into blocks of its own");
    if first.is_none() {
        // A local save instead of a first source.
        world.ended(at(1), one, ReadEnd::Failed(FailureReason::Plane("reset".into())));
        world.take_finished();
        let hash = MmHash::new("h").unwrap();
        let key = world.cache.reserve(&hash, meta(2), 2).unwrap();
        world.cache.mark_ready(key, None).unwrap();
    } else {
        world.ended(at(1), one, landed(2, first));
        assert!(!world.take_finished().unwrap().outcome.unwrap().conflict);
    }
    let there = world.cache.find("h").unwrap().0;
    world.ended(at(2), two, landed(2, second));
    let arrived = world.take_finished().unwrap().outcome.unwrap();
    assert_eq!(arrived.entry, there, "the entry that was there stays");
    assert_eq!(world.cache.usage().live, 2);
    world.at_rest();
    (world, arrived.conflict)
}

#[test]
fn two_sources_of_the_same_bytes_make_one_entry() {
    let (world, conflict) = second_source(Some(DIGEST), Some(DIGEST));
    assert!(!conflict);
    assert_eq!(world.consumer.counters().arrived, 2);
}

#[test]
fn two_sources_of_different_bytes_are_told() {
    assert!(second_source(Some(DIGEST), Some(Digest([1; 16]))).1);
}

#[test]
fn bytes_that_nobody_can_compare_are_no_conflict() {
    assert!(!second_source(Some(DIGEST), None).1);
    assert!(!second_source(None, Some(DIGEST)).1);
}

/// It must not pass for what was asked for.
#[test]
fn an_entry_of_another_form_that_came_first_is_no_answer() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    let hash = MmHash::new("h").unwrap();
    let key = world.cache.reserve(&hash, meta(3), 3).unwrap();
    world.cache.mark_ready(key, None).unwrap();
    world.ended(at(1), id, landed(2, Some(DIGEST)));
    let failure = world.failure();
    assert_eq!(failure.class, FailureClass::Terminal);
    assert!(failure.reason.to_string().contains("of shape [3, 16]"), "{}", failure.reason);
    assert_eq!(world.cache.find("h").unwrap().0, key);
    world.at_rest();
}

#[test]
fn a_local_save_under_way_wins_and_the_transfer_may_be_tried_again() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    let hash = MmHash::new("h").unwrap();
    let key = world.cache.reserve(&hash, meta(2), 2).unwrap();
    world.ended(at(1), id, landed(2, Some(DIGEST)));
    let failure = world.failure();
    assert_eq!(failure.reason, FailureReason::SavePending);
    assert_eq!(failure.class, FailureClass::Retryable);
    assert_eq!(world.cache.usage().live, 2);
    world.cache.discard(key).unwrap();
    world.at_rest();
}

#[test]
fn an_ack_may_come_up_to_its_deadline_and_not_after() {
    let mut world = World::connected(16);
    let id = world.start(at(7), &wanted("h", 2));
    let deadline = 30 * SECOND + 7;
    assert_eq!(world.consumer.poll_timeout(), at(deadline + 1));
    world.timeout(at(deadline));
    assert_eq!(world.take_finished(), None);
    world.timeout(at(deadline + 1));
    let finished = world.take_finished().unwrap();
    assert_eq!((finished.transfer, world.consumer.live_transfers()), (id, 0));
    let failure = finished.outcome.unwrap_err();
    assert_eq!(
        (failure.reason, failure.class),
        (FailureReason::AckTimeout, FailureClass::Retryable)
    );
    world.timeout(at(2 * deadline));
    world.at_rest();
}

/// The read's own time starts at the ack.
#[test]
fn a_read_that_takes_too_long_is_told_at_once_and_its_blocks_stay_until_the_plane_lets_go() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 3));
    let sent = world.last_sent();
    world.ack(at(10 * SECOND), &sent, 3);
    let id = world.reads[0].transfer;
    world.timeout(at(30 * SECOND));
    assert_eq!((world.take_finished(), world.aborted.len()), (None, 0));
    assert_eq!(world.consumer.poll_timeout(), at(30 * SECOND + 1));
    world.timeout(at(30 * SECOND + 1));
    assert_eq!(world.failure().reason, FailureReason::ReadTimeout);
    assert_eq!(world.aborted, [id]);
    assert_eq!((world.cache.usage().quarantined, world.consumer.live_transfers()), (3, 1));
    assert_eq!(world.consumer.poll_timeout(), Nanos::NEVER);

    // Another attempt does not get these blocks, and is not disturbed by the old one's end.
    let again = world.reading(at(31 * SECOND), &wanted("h", 3));
    let local = world.reads[1].local.clone();
    assert_ne!(world.reads[0].local, local);
    world.ended(at(32 * SECOND), id, landed(3, Some(DIGEST)));
    assert_eq!(world.cache.usage().quarantined, 0);
    assert_eq!(world.take_finished(), None, "its outcome was told before");
    assert!(!world.holds("h"));
    assert_eq!(world.start(at(32 * SECOND), &wanted("h", 3)), again, "still under way");
    world.ended(at(33 * SECOND), again, landed(3, Some(DIGEST)));
    assert!(world.take_finished().unwrap().outcome.is_ok());
    world.at_rest();
}

#[test]
fn a_second_report_of_an_end_changes_nothing() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 3));
    for _ in 0..3 {
        world.ended(at(1), id, landed(3, Some(DIGEST)));
    }
    assert!(world.take_finished().unwrap().outcome.is_ok());
    assert_eq!(world.consumer.counters().arrived, 1);
    world.at_rest();
}

#[test]
fn a_report_for_a_transfer_that_reads_nothing_changes_nothing() {
    let mut world = World::connected(16);
    let id = world.start(at(0), &wanted("h", 3));
    world.ended(at(1), id, landed(3, Some(DIGEST)));
    assert_eq!((world.take_finished(), world.holds("h")), (None, false));
    let sent = world.last_sent();
    world.ack(at(2), &sent, 3);
    assert_eq!(world.reads.len(), 1);
}
