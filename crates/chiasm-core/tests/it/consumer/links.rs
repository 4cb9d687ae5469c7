//! Connections come and go.

use chiasm_core::consumer::{FailureClass, FailureReason, Wanted};

use super::{DIGEST, World, at, far, landed, near, wanted};

fn lost() -> FailureReason {
    FailureReason::Lost("reset".into())
}

#[test]
fn a_link_is_opened_once_for_all_who_wait() {
    let mut world = World::new(16);
    let first = world.start(at(0), &wanted("a", 1));
    let second = world.start(at(0), &wanted("b", 1));
    assert_eq!(world.opened, [near()]);
    world.down(&near(), &FailureReason::Refused);
    let failed: Vec<_> = world.finished.drain(..).collect();
    let ids: Vec<_> = failed.iter().map(|finished| finished.transfer).collect();
    assert_eq!(ids, [first, second]);
    for finished in failed {
        let failure = finished.outcome.unwrap_err();
        assert_eq!(failure.reason, FailureReason::Refused);
        assert_eq!(failure.class, FailureClass::Retryable);
    }
    world.at_rest();
    world.start(at(1), &wanted("a", 1));
    assert_eq!(world.opened, [near(), near()], "the next one opens it again");
}

#[test]
fn what_waited_is_asked_in_order_when_the_link_stands() {
    let mut world = World::new(16);
    for hash in ["c", "a", "b"] {
        world.start(at(0), &wanted(hash, 1));
    }
    assert_eq!(world.sent, []);
    world.up(at(1), &near());
    let asked: Vec<_> = world.sent.iter().map(|sent| sent.hash.as_str()).collect();
    assert_eq!(asked, ["c", "a", "b"]);
}

#[test]
fn the_loss_of_a_link_fails_what_waits_for_an_ack_and_nothing_else() {
    let mut world = World::connected(16);
    let reading = world.reading(at(0), &wanted("reading", 1));
    let settling = world.reading(at(0), &wanted("settling", 1));
    world.cancel(settling);
    let asking = world.start(at(0), &wanted("asking", 1));
    world.start(at(0), &Wanted { source: far(), ..wanted("elsewhere", 1) });
    world.down(&near(), &lost());
    assert_eq!(world.take_finished().unwrap().transfer, asking);
    world.ended(at(1), settling, landed(1, Some(DIGEST)));
    world.ended(at(1), reading, landed(1, Some(DIGEST)));
    assert!(world.take_finished().unwrap().outcome.is_ok(), "a read has its own way (S8)");
    assert_eq!(world.consumer.live_transfers(), 1);
    world.down(&far(), &lost());
    world.take_finished().unwrap();
    world.at_rest();
}

#[test]
fn news_of_links_that_nobody_asked_for_are_ignored() {
    let mut world = World::new(16);
    world.up(at(0), &near());
    world.down(&near(), &lost());
    world.receive(at(0), &near(), b"garbage");
    assert_eq!((world.opened.len(), world.closed.len(), world.sent.len()), (0, 0, 0));
    world.at_rest();
}

/// The owner reports a connection twice: the second is a new one as far as anybody knows.
#[test]
fn a_link_that_comes_up_again_asks_again_under_a_new_session() {
    let mut world = World::connected(16);
    let given_up = world.start(at(0), &wanted("given up", 1));
    world.cancel(given_up);
    let id = world.start(at(0), &wanted("h", 1));
    let old = world.last_sent();
    world.up(at(1), &near());
    assert_eq!(world.sent.len(), 3, "only what is still wanted");
    let new = world.last_sent();
    assert_eq!(new.hash, "h");
    assert_ne!((&new.session, new.attempt), (&old.session, old.attempt));
    world.ack(at(2), &new, 1);
    assert_eq!(world.reads[0].transfer, id);
}

#[test]
fn garbage_closes_the_link_once_and_nothing_more_is_taken_from_it() {
    for garbage in [&b"\xc1"[..], b"", b"\x80", b"HTTP/1.1 400 Bad Request"] {
        let mut world = World::connected(16);
        let id = world.start(at(0), &wanted("h", 1));
        let sent = world.last_sent();
        world.receive(at(1), &near(), garbage);
        world.receive(at(1), &near(), garbage);
        assert_eq!(world.closed.len(), 1);
        assert!(matches!(&world.closed[0], (from, FailureReason::Garbage(_)) if *from == near()));
        world.ack(at(1), &sent, 1);
        assert_eq!(world.reads, [], "what follows garbage is not to be trusted");
        let late = world.start(at(1), &wanted("late", 1));
        assert_eq!((world.sent.len(), world.opened.len()), (1, 1), "no use in asking it");
        let reason = world.closed[0].1.clone();
        world.down(&near(), &reason);
        let failed: Vec<_> = world.finished.drain(..).map(|finished| finished.transfer).collect();
        assert_eq!(failed, [id, late]);
        world.at_rest();
    }
}
