//! Nobody wants it any more, in every state.

use chiasm_core::consumer::{FailureReason, ReadEnd};

use super::{DIGEST, World, at, landed, near, wanted};

#[test]
fn before_the_link_stands() {
    let mut world = World::new(16);
    let id = world.start(at(0), &wanted("h", 2));
    world.cancel(id);
    world.at_rest();
    world.up(at(1), &near());
    assert_eq!(world.sent, []);
    world.at_rest();
}

#[test]
fn before_the_ack() {
    let mut world = World::connected(16);
    let id = world.start(at(0), &wanted("h", 2));
    world.cancel(id);
    world.at_rest();
    let sent = world.last_sent();
    world.ack(at(1), &sent, 2);
    assert_eq!(world.reads, []);
    world.at_rest();
}

#[test]
fn while_reading_the_blocks_wait_for_the_plane() {
    for end in [landed(2, Some(DIGEST)), ReadEnd::Failed(FailureReason::Plane("aborted".into()))] {
        let mut world = World::connected(16);
        let id = world.reading(at(0), &wanted("h", 2));
        world.cancel(id);
        assert_eq!((world.aborted.as_slice(), world.cache.usage().quarantined), (&[id][..], 2));
        world.cancel(id);
        assert_eq!(world.aborted, [id], "once");
        world.ended(at(1), id, end);
        assert!(!world.holds("h"), "an aborted read is never published");
        world.at_rest();
    }
}

#[test]
fn after_the_end_it_is_too_late() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    world.ended(at(1), id, landed(2, Some(DIGEST)));
    world.cancel(id);
    assert!(world.take_finished().unwrap().outcome.is_ok());
    assert!(world.holds("h"));
    world.at_rest();
}

#[test]
fn a_new_attempt_of_the_same_form_is_not_the_cancelled_one() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    world.cancel(id);
    let again = world.start(at(1), &wanted("h", 2));
    assert_ne!(again, id);
    world.ended(at(2), id, ReadEnd::Failed(FailureReason::Plane("aborted".into())));
    assert_eq!(world.start(at(3), &wanted("h", 2)), again);
}
