//! Grants are given back when nobody reads under them any more, and no sooner; planes that do not
//! reach a producer are not offered to it again.

use chiasm_core::consumer::{FailureClass, FailureReason, ReadEnd, TransferId, Wanted};
use chiasm_core::dtype::Dtype;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::wire::{AckStatus, XferAck};

use super::{SECOND, Sent, World, ack_for, at, landed, nack, near, wanted};

/// The OK ack of a producer on this host.
fn shm_ack(sent: &Sent, blocks: u32) -> XferAck<'_> {
    let mut ack = ack_for(sent, blocks);
    let extension = ack.chiasm.as_mut().unwrap();
    (extension.plane, extension.token) = (Some(Plane::Shm), None);
    extension.region = Some("chiasm-theirs");
    ack
}

impl World {
    /// A request that has gone out on a link that stands.
    fn asked(&mut self, wanted: &Wanted) -> (TransferId, Sent) {
        let id = self.start(at(0), wanted);
        if self.consumer.live_transfers() == 1 && self.sent.is_empty() {
            self.up(at(0), &near());
        }
        (id, self.last_sent())
    }

    fn take(&mut self, ack: &XferAck<'_>) {
        self.receive(at(0), &near(), &ack.encode());
    }

    fn read_ended(&mut self, id: TransferId, end: ReadEnd) {
        self.ended(at(0), id, end);
    }
}

fn away() -> ReadEnd {
    ReadEnd::Failed(FailureReason::PlaneAway { plane: Plane::Shm, why: "for a test".into() })
}

#[test]
fn a_read_over_shm_ends_its_grant_when_it_ends_however() {
    for end in [landed(3, Some(super::DIGEST)), landed(3, None), away()] {
        let mut world = World::connected(16);
        let (id, sent) = world.asked(&wanted("h", 3));
        world.take(&shm_ack(&sent, 3));
        let order = world.reads[0].clone();
        let shm = order.shm.expect("a region");
        assert_eq!(
            (order.plane, order.token, shm.name.as_str()),
            (Plane::Shm, None, "chiasm-theirs")
        );
        assert_eq!((shm.epoch, shm.extents[0].first()), (9, 40));
        assert_eq!(world.done, []);
        world.read_ended(id, end);
        assert_eq!(world.done, [sent]);
    }
}

#[test]
fn an_aborted_read_ends_its_grant_when_the_plane_has_let_go() {
    let mut world = World::connected(16);
    let (id, sent) = world.asked(&wanted("h", 3));
    world.take(&shm_ack(&sent, 3));
    world.cancel(id);
    assert_eq!(world.done, []);
    world.read_ended(id, ReadEnd::Failed(FailureReason::Plane("aborted".into())));
    assert_eq!(world.done, [sent]);
}

#[test]
fn tcp_shows_by_itself_that_it_has_landed() {
    let mut world = World::connected(16);
    let (id, sent) = world.asked(&wanted("h", 3));
    world.take(&ack_for(&sent, 3));
    world.read_ended(id, landed(3, Some(super::DIGEST)));
    assert_eq!(world.done, []);
    let (id, sent) = world.asked(&wanted("other", 3));
    world.take(&ack_for(&sent, 3));
    world.read_ended(id, ReadEnd::Failed(FailureReason::Plane("no stream".into())));
    assert_eq!(world.done, [sent]);
}

#[test]
fn a_grant_that_is_of_no_use_is_given_back_at_once_and_a_nack_is_none() {
    let mut world = World::connected(4);
    let (_, sent) = world.asked(&wanted("h", 8));
    world.take(&shm_ack(&sent, 8));
    assert_eq!(world.done.last(), Some(&sent), "larger than the region");
    let (_, sent) = world.asked(&wanted("i", 3));
    world.take(&shm_ack(&sent, 2));
    assert_eq!(world.done.last(), Some(&sent), "not what was announced");
    let (id, sent) = world.asked(&wanted("j", 3));
    world.cancel(id);
    world.take(&shm_ack(&sent, 3));
    assert_eq!(world.done.last(), Some(&sent), "nobody wants it any more");
    let (_, sent) = world.asked(&wanted("k", 3));
    world.take(&nack(&sent, AckStatus::Missing, "missing"));
    assert_eq!(world.done.len(), 3);
}

#[test]
fn the_grant_of_a_lost_connection_is_nobodys_to_end() {
    let mut world = World::connected(16);
    let (id, sent) = world.asked(&wanted("h", 3));
    world.take(&shm_ack(&sent, 3));
    world.down(&near(), &FailureReason::Refused);
    world.read_ended(id, landed(3, Some(super::DIGEST)));
    assert_eq!(world.done, []);
    // Nor on the connection that came after it.
    world.start(at(0), &wanted("i", 3));
    world.up(at(0), &near());
    let again = world.last_sent();
    assert_ne!(again.session, sent.session);
    let id = world.reading(at(0), &wanted("j", 3));
    world.down(&near(), &FailureReason::Refused);
    world.start(at(0), &wanted("k", 3));
    world.up(at(0), &near());
    world.read_ended(id, ReadEnd::Failed(FailureReason::Plane("lost".into())));
    assert_eq!(world.done, []);
}

/// Two forms of one entry share the grant, which the later request has renewed: the first to end must
/// not end it under the other, who has perhaps no digest to show what that does to its bytes.
#[test]
fn a_grant_under_which_another_form_is_read_goes_on() {
    let mut world = World::connected(16);
    let mut typed = wanted("h", 3);
    typed.dtype = Some(Dtype::Float32);
    let (first, one) = world.asked(&wanted("h", 3));
    world.take(&shm_ack(&one, 3));
    let (second, two) = world.asked(&typed);
    world.take(&shm_ack(&two, 3));
    world.read_ended(second, landed(3, Some(super::DIGEST)));
    assert_eq!(world.done, [], "the first still reads");
    world.read_ended(first, landed(3, Some(super::DIGEST)));
    assert_eq!(world.done, [two], "by the number that the producer has seen last");
}

/// A producer that names no plane that can be has renewed the grant all the same.
#[test]
fn an_ack_of_no_plane_that_was_offered_ends_no_grant_under_which_another_form_is_read() {
    for plane in [None, Some(Plane::Nixl)] {
        let mut world = World::connected(16);
        let mut typed = wanted("h", 3);
        typed.dtype = Some(Dtype::Float32);
        let (first, one) = world.asked(&wanted("h", 3));
        world.take(&shm_ack(&one, 3));
        let (_, two) = world.asked(&typed);
        let mut ack = shm_ack(&two, 3);
        ack.chiasm.as_mut().unwrap().plane = plane;
        world.take(&ack);
        assert_eq!(world.failure().reason.word(), "ack_mismatch");
        assert_eq!(world.done, [], "the first still reads");
        world.read_ended(first, landed(3, Some(super::DIGEST)));
        assert_eq!(world.done, [two], "by the number that the producer has seen last");
    }
}

#[test]
fn a_plane_that_does_not_reach_is_left_out_for_that_life_of_the_producer() {
    let mut world = World::connected(16);
    let (id, sent) = world.asked(&wanted("h", 3));
    assert_eq!(world.offered, [Plane::Shm, Plane::Tcp]);
    world.take(&shm_ack(&sent, 3));
    world.read_ended(id, away());
    let failed = world.failure();
    assert_eq!(failed.class, FailureClass::Retryable);
    let (_, sent) = world.asked(&wanted("h", 3));
    assert_eq!(world.offered, [Plane::Tcp]);
    // What was not offered is not taken.
    world.take(&shm_ack(&sent, 3));
    let failed = world.failure();
    assert_eq!(failed.reason.word(), "ack_mismatch");
    let (_, sent) = world.asked(&wanted("i", 3));
    assert_eq!(world.offered, [Plane::Tcp]);
    let mut ack = ack_for(&sent, 3);
    ack.chiasm.as_mut().unwrap().epoch = 10;
    world.take(&ack);
    world.asked(&wanted("j", 3));
    assert_eq!(world.offered, [Plane::Shm, Plane::Tcp], "another life of it");
}

#[test]
fn wrong_bytes_make_the_next_attempt_go_another_way_once() {
    let mut world = World::connected(16);
    let (id, sent) = world.asked(&wanted("h", 3));
    world.take(&shm_ack(&sent, 3));
    world.read_ended(id, landed(3, None));
    let failed = world.failure();
    assert_eq!(failed.class, FailureClass::ReadWrong);
    world.asked(&wanted("i", 3));
    assert_eq!(world.offered, [Plane::Shm, Plane::Tcp]);
    world.asked(&wanted("h", 3));
    assert_eq!(world.offered, [Plane::Tcp, Plane::Shm], "last, not never");
    world.start(at(0), &wanted("k", 3));
    assert_eq!(world.offered, [Plane::Shm, Plane::Tcp]);
}

#[test]
fn with_no_plane_left_nothing_is_asked() {
    let only: PlaneList = [Plane::Shm].into_iter().collect();
    let mut world = World::with_planes(16, only);
    world.start(at(0), &wanted("probe", 1));
    world.up(at(0), &near());
    let probe = world.last_sent();
    world.nack(at(0), &probe, AckStatus::Missing);
    world.failure();
    let (id, sent) = world.asked(&wanted("h", 3));
    world.take(&shm_ack(&sent, 3));
    world.read_ended(id, away());
    world.failure();
    let before = world.sent.len();
    world.start(at(SECOND), &wanted("h", 3));
    assert_eq!(world.sent.len(), before);
    let failed = world.failure();
    assert_eq!((failed.class, failed.reason.word()), (FailureClass::Terminal, "no_plane"));
    let told = failed.reason.to_string();
    assert!(told.contains("shm does not reach it: "), "{told}");
}
