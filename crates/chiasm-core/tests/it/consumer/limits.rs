//! Bounds of links and of what waits on them (S7).

use chiasm_core::consumer::{FailureClass, FailureReason, TransferId, Wanted};
use chiasm_core::limits::{MAX_LINKS, MAX_UNANSWERED_PER_LINK};
use chiasm_core::wire::{AckStatus, XferAck};

use super::{SECOND, World, at, endpoint, near, wanted};

fn start_many(world: &mut World, count: usize) -> Vec<TransferId> {
    (0..count).map(|n| world.consumer.start(at(0), wanted(&n.to_string(), 1))).collect()
}

#[test]
fn requests_past_the_window_wait_for_an_answer_to_one_before() {
    let mut world = World::connected(16);
    let ids = start_many(&mut world, MAX_UNANSWERED_PER_LINK + 2);
    world.drain();
    assert_eq!(world.sent.len(), MAX_UNANSWERED_PER_LINK);
    assert_eq!(world.closed, [], "a burst of ours is no silence of the producer's");
    let answered = world.sent[500].clone();
    world.nack(at(1), &answered, AckStatus::Missing);
    assert_eq!(world.take_finished().unwrap().transfer, ids[500]);
    assert_eq!(world.last_sent().hash, MAX_UNANSWERED_PER_LINK.to_string());
    assert_eq!(world.sent.len(), MAX_UNANSWERED_PER_LINK + 1);
}

/// The same when they all waited for the link.
#[test]
fn a_burst_that_waited_for_the_link_is_sent_in_windows_too() {
    let mut world = World::new(16);
    start_many(&mut world, MAX_UNANSWERED_PER_LINK + 2);
    world.up(at(1), &near());
    assert_eq!(world.sent.len(), MAX_UNANSWERED_PER_LINK);
    assert_eq!((world.closed.len(), world.finished.len()), (0, 0));
}

#[test]
fn a_producer_that_answers_nothing_is_given_up_for_silent() {
    let mut world = World::connected(16);
    start_many(&mut world, MAX_UNANSWERED_PER_LINK);
    world.drain();
    // It is not mute: it says something else.
    let stray = XferAck::bare("something else", AckStatus::Missing).encode();
    world.receive(at(SECOND), &near(), &stray);
    world.timeout(at(31 * SECOND));
    assert_eq!(world.finished.len(), MAX_UNANSWERED_PER_LINK);
    assert_eq!(world.closed, [], "nobody wants anything from it now");
    world.finished.clear();
    let late = world.start(at(31 * SECOND), &wanted("late", 1));
    assert_eq!(world.closed, [(near(), FailureReason::Silent)]);
    assert_eq!(world.sent.len(), MAX_UNANSWERED_PER_LINK);
    world.down(&near(), &FailureReason::Silent);
    let finished = world.take_finished().unwrap();
    assert_eq!(finished.transfer, late);
    assert_eq!(finished.outcome.unwrap_err().class, FailureClass::Retryable);
    world.at_rest();
}

/// A connection can be stuck in a way that no heartbeat sees: a frame of which the rest never comes, or
/// a peer that knows no PING. Another connection may not be.
#[test]
fn a_link_that_brings_nothing_for_the_time_of_an_ack_is_closed() {
    let mut world = World::connected(16);
    let early = world.start(at(0), &wanted("early", 1));
    let later = world.start(at(20 * SECOND), &wanted("later", 1));
    world.timeout(at(30 * SECOND));
    assert_eq!(world.closed, [], "at its very end the time is not over");
    world.timeout(at(30 * SECOND + 1));
    assert_eq!(world.closed, [(near(), FailureReason::Mute)]);
    let failed = world.take_finished().unwrap();
    assert_eq!(
        (failed.transfer, failed.outcome.unwrap_err().reason),
        (early, FailureReason::AckTimeout)
    );
    world.down(&near(), &FailureReason::Mute);
    let failed = world.take_finished().unwrap();
    assert_eq!(
        (failed.transfer, failed.outcome.unwrap_err().class),
        (later, FailureClass::Retryable)
    );
    world.at_rest();
}

/// A producer that answers somebody is not stuck, only slow with one.
#[test]
fn a_link_that_has_brought_anything_since_stays() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("slow", 1));
    let slow = world.last_sent();
    world.start(at(SECOND), &wanted("quick", 1));
    let quick = world.last_sent();
    world.nack(at(2 * SECOND), &quick, AckStatus::Missing);
    world.timeout(at(31 * SECOND));
    assert_eq!(world.closed, []);
    world.ack(at(32 * SECOND), &slow, 1);
    assert_eq!(world.closed, [], "what comes too late for it gives its grant back");
    world.finished.clear();
    world.down(&near(), &FailureReason::Refused);
    world.at_rest();
}

/// Starting and cancelling is free on a link that does not come up, and on one that is full.
#[test]
fn what_was_cancelled_waits_for_nothing() {
    let mut world = World::new(16);
    for _ in 0..10_000 {
        let id = world.consumer.start(at(0), wanted("h", 1));
        world.consumer.cancel(id, &mut world.cache);
    }
    world.drain();
    let text = format!("{:?}", world.consumer);
    assert!(text.len() < 2000, "something was kept: {} bytes", text.len());
    world.up(at(1), &near());
    assert_eq!(world.sent, []);
    world.at_rest();
}

fn producer(n: usize) -> Wanted {
    Wanted { source: endpoint(&format!("10.0.{}.{}:5601", n / 256, n % 256)), ..wanted("h", 1) }
}

#[test]
fn links_to_so_many_producers_and_no_more() {
    let mut world = World::new(16);
    for n in 0..MAX_LINKS {
        world.consumer.start(at(0), producer(n));
    }
    world.drain();
    assert_eq!((world.opened.len(), world.finished.len()), (MAX_LINKS, 0));
    let refused = world.start(at(0), &producer(MAX_LINKS));
    assert_eq!(world.opened.len(), MAX_LINKS, "refused before anything is opened");
    let finished = world.take_finished().unwrap();
    assert_eq!(finished.transfer, refused);
    let failure = finished.outcome.unwrap_err();
    assert_eq!(failure.reason, FailureReason::TooManyLinks);
    assert_eq!(failure.class, FailureClass::Retryable);
    // An existing link takes more, and one that went down makes room.
    let again = Wanted { rows: 2, blocks: 2, ..producer(7) };
    world.start(at(0), &again);
    assert_eq!(world.finished, []);
    world.consumer.link_down(&producer(3).source, &FailureReason::Refused);
    world.drain();
    world.finished.clear();
    world.start(at(0), &producer(MAX_LINKS));
    assert_eq!(world.opened.len(), MAX_LINKS + 1);
}

/// A link that all transfers have left keeps its place until its owner says that it is gone: it is
/// open. An owner closes links that stand idle, and then the place is free.
#[test]
fn an_idle_link_counts_until_it_is_reported_gone() {
    let mut world = World::new(16);
    for n in 0..MAX_LINKS {
        let id = world.consumer.start(at(0), producer(n));
        world.consumer.cancel(id, &mut world.cache);
    }
    world.start(at(0), &producer(MAX_LINKS));
    assert_eq!(
        world.finished.pop().unwrap().outcome.unwrap_err().reason,
        FailureReason::TooManyLinks
    );
    world.down(&producer(0).source, &FailureReason::Lost("idle".into()));
    world.start(at(0), &producer(MAX_LINKS));
    assert_eq!(world.finished, []);
}
