//! Which request an ack answers.

use chiasm_core::consumer::{FailureReason, TransferId};
use chiasm_core::wire::{AckStatus, XferAck};

use super::{SECOND, World, ack_for, at, far, landed, near, wanted};

#[test]
fn a_request_says_who_asks_and_for_what() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    assert_eq!((sent.hash.as_str(), sent.session.as_str()), ("h", "00000000000000aa.1"));
    assert_ne!(sent.attempt, 0);
    assert_eq!(world.sent.len(), 1);
}

#[test]
fn an_ok_ack_starts_the_read_of_exactly_what_was_agreed() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 3));
    let read = world.reads.pop().unwrap();
    let staged: Vec<_> = read.local.iter().map(|extent| extent.count()).collect();
    assert_eq!((read.transfer, read.source, staged), (id, near(), vec![3]));
    assert_eq!(
        (read.bytes, read.digest, read.token.map(|token| token.0)),
        (192, true, Some([1; 16]))
    );
    assert!(!world.holds("h"), "nothing finds it before its bytes have landed (S3)");
}

/// Only the answers to a request that waits count; the attempt tells them apart.
#[test]
fn hazard_a5_a_late_ack_of_a_given_up_attempt_never_satisfies_a_newer_one() {
    let mut world = World::connected(16);
    let first = world.start(at(0), &wanted("h", 2));
    let old = world.last_sent();
    world.cancel(first);
    let second = world.start(at(29 * SECOND), &wanted("h", 2));
    let new = world.last_sent();
    assert_ne!((first, old.attempt), (second, new.attempt));
    world.ack(at(29 * SECOND), &old, 2);
    assert_eq!(world.reads, []);
    world.ack(at(29 * SECOND), &new, 2);
    assert_eq!(world.reads[0].transfer, second);
}

/// The same from a peer that sends no attempt: the older request takes its answer away.
#[test]
fn hazard_a5_without_attempts_the_oldest_request_of_the_hash_is_answered() {
    for said in [None, Some(0)] {
        let mut world = World::connected(16);
        let first = world.start(at(0), &wanted("h", 2));
        world.start(at(1), &wanted("other", 2));
        world.cancel(first);
        let second = world.start(at(2), &wanted("h", 2));
        let sent = world.last_sent();
        let mut ack = XferAck::bare("h", AckStatus::NotReady);
        let mut with_zero = ack_for(&sent, 2);
        with_zero.status = AckStatus::NotReady;
        if said.is_some() {
            with_zero.chiasm.as_mut().unwrap().attempt = 0;
            ack = with_zero;
        }
        let bytes = ack.encode();
        world.receive(at(3), &near(), &bytes);
        assert_eq!(world.take_finished(), None, "it answers the one that was given up");
        world.receive(at(4), &near(), &bytes);
        assert_eq!(world.take_finished().unwrap().transfer, second);
        world.receive(at(5), &near(), &bytes);
        assert_eq!(world.take_finished(), None);
    }
}

#[test]
fn a_duplicate_ack_answers_nothing() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    let before = world.consumer.counters().stray_acks;
    world.ack(at(1), &sent, 2);
    world.nack(at(1), &sent, AckStatus::Missing);
    assert_eq!((world.reads.len(), world.take_finished()), (1, None));
    assert_eq!(world.consumer.counters().stray_acks, before + 2);
    world.ended(at(2), id, landed(2, Some(super::DIGEST)));
    world.ack(at(3), &sent, 2);
    assert!(world.take_finished().unwrap().outcome.is_ok());
    world.at_rest();
}

#[test]
fn an_ack_with_another_hash_attempt_or_connection_answers_nothing() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    let mut other = sent.clone();
    other.attempt += 1;
    world.ack(at(1), &other, 2);
    other.attempt = sent.attempt;
    other.hash = "other".into();
    world.ack(at(1), &other, 2);
    let ack = ack_for(&sent, 2).encode();
    world.receive(at(1), &far(), &ack);
    assert_eq!((world.reads.len(), world.take_finished()), (0, None));
    world.ack(at(1), &sent, 2);
    assert_eq!(world.reads.len(), 1);
}

#[test]
fn an_ack_for_a_foreign_session_fails_the_request_that_it_claims_to_answer() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let mut foreign = world.last_sent();
    foreign.session = "somebody.1".into();
    world.ack(at(1), &foreign, 2);
    assert!(matches!(world.failure().reason, FailureReason::AckMismatch(_)));
    world.at_rest();
}

#[test]
fn each_connection_has_a_session_of_its_own_and_old_answers_are_void_after_a_reconnect() {
    let mut world = World::connected(16);
    let first = world.start(at(0), &wanted("h", 2));
    let old = world.last_sent();
    world.down(&near(), &FailureReason::Lost("reset".into()));
    assert_eq!(world.take_finished().unwrap().transfer, first);
    let second = world.start(at(1), &wanted("h", 2));
    world.up(at(2), &near());
    let new = world.last_sent();
    assert_eq!(
        (old.session.as_str(), new.session.as_str()),
        ("00000000000000aa.1", "00000000000000aa.2")
    );
    world.ack(at(3), &old, 2);
    assert_eq!(world.reads, []);
    world.ack(at(3), &new, 2);
    assert_eq!(world.reads[0].transfer, second);
}

#[test]
fn one_attempt_serves_the_same_form_and_another_form_is_another_attempt() {
    let mut world = World::connected(16);
    let id = world.start(at(0), &wanted("h", 2));
    assert_eq!(world.start(at(1), &wanted("h", 2)), id);
    assert_eq!(world.sent.len(), 1);
    let other = world.start(at(1), &wanted("h", 3));
    assert_ne!(other, id);
    assert_eq!(world.sent.len(), 2);
    let (right, wrong) = (world.sent[0].clone(), world.sent[1].clone());
    world.ack(at(2), &wrong, 2);
    assert_eq!(world.take_finished().unwrap().transfer, other, "the wrong form fails alone (S6)");
    world.ack(at(2), &right, 2);
    assert_eq!(world.reads[0].transfer, id);
}

#[test]
fn transfers_are_never_numbered_twice() {
    let mut world = World::connected(16);
    let mut ids: Vec<TransferId> = Vec::new();
    for _ in 0..5 {
        let id = world.start(at(0), &wanted("h", 2));
        assert!(!ids.contains(&id));
        ids.push(id);
        world.cancel(id);
    }
    world.at_rest();
}
