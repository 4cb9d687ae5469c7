//! Which check answers first, and what each answer leaves behind.

use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::RefusalReason;
use chiasm_core::wire::{AckStatus, ReqExtension, XferReq};
use rstest::rstest;

use super::{ALICE, BOB, World, at, planes, request};

/// What a request does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Version,
    Compat,
    EmptySession,
    Fingerprint,
    SessionInUse,
    Missing,
    NoPlane,
}

const IN_ORDER: [Wrong; 7] = [
    Wrong::Version,
    Wrong::Compat,
    Wrong::EmptySession,
    Wrong::Fingerprint,
    Wrong::SessionInUse,
    Wrong::Missing,
    Wrong::NoPlane,
];

impl Wrong {
    fn spoil(self, request: &mut XferReq<'static>) {
        let chiasm = request.chiasm.as_mut().unwrap();
        match self {
            Self::Version => request.connector_version = 3,
            Self::Compat => request.compatibility_hash = "other",
            Self::EmptySession => request.session_id = "",
            Self::Fingerprint => chiasm.fingerprint = Some("theirs"),
            // An empty session is in nobody's use.
            Self::SessionInUse if request.session_id.is_empty() => {}
            Self::SessionInUse => request.session_id = "bobs",
            Self::Missing => request.mm_hash = "nowhere",
            Self::NoPlane => chiasm.planes = planes([Plane::Nixl]),
        }
    }

    fn reason(self) -> RefusalReason {
        match self {
            Self::Version => RefusalReason::Version,
            Self::Compat => RefusalReason::CompatHash,
            Self::EmptySession => RefusalReason::SessionId,
            Self::Fingerprint => RefusalReason::Fingerprint,
            Self::SessionInUse => RefusalReason::SessionInUse,
            Self::Missing => RefusalReason::Missing,
            Self::NoPlane => RefusalReason::NoPlane,
        }
    }
}

/// All 128 combinations of what can be wrong.
#[test]
fn the_first_check_in_upstreams_order_answers() {
    for set in 0..1_u32 << IN_ORDER.len() {
        let wrong: Vec<Wrong> =
            (0..).zip(IN_ORDER).filter(|(bit, _)| set & (1 << bit) != 0).map(|(_, w)| w).collect();
        let mut world = World::new(16);
        world.saved("h", 2);
        world.ask(at(0), BOB, "bobs", "nowhere");
        let mut request = request("s", "h");
        for wrong in &wrong {
            wrong.spoil(&mut request);
        }
        let reply = world.send(at(1), ALICE, &request);
        let expected = wrong.first().map(|wrong| wrong.reason());
        assert_eq!(
            reply.status,
            expected.map_or(AckStatus::Ok, RefusalReason::status),
            "{wrong:?}"
        );
        assert_eq!(reply.reason.as_deref(), expected.map(RefusalReason::word), "{wrong:?}");
        let held = if wrong.is_empty() { (1, 2) } else { (0, 0) };
        assert_eq!(world.held(), held, "{wrong:?}");
    }
}

#[test]
fn an_entry_that_is_not_ready_is_told_from_one_that_is_missing() {
    let mut world = World::new(16);
    let key = world.saving("h", 2);
    assert_eq!(world.ask(at(0), ALICE, "s", "h").status, AckStatus::NotReady);
    world.cache.mark_ready(key, None).unwrap();
    assert_eq!(world.ask(at(0), ALICE, "s", "h").status, AckStatus::Ok);
    assert_eq!(world.pins(key), 1);
}

#[test]
fn an_evicted_entry_is_missing() {
    let mut world = World::new(16);
    let key = world.saved("h", 2);
    world.cache.evict(key).unwrap();
    assert_eq!(world.ask(at(0), ALICE, "s", "h").status, AckStatus::Missing);
}

#[test]
fn a_fingerprint_counts_only_where_both_sides_have_one() {
    let mut world = World::new(16);
    world.saved("h", 2);
    for (theirs, status) in [
        (None, AckStatus::Ok),
        (Some("ours"), AckStatus::Ok),
        (Some("ours "), AckStatus::Incompat),
        (Some(""), AckStatus::Incompat),
    ] {
        let mut request = request("s", "h");
        request.chiasm.as_mut().unwrap().fingerprint = theirs;
        assert_eq!(world.send(at(0), ALICE, &request).status, status, "{theirs:?}");
    }
}

#[rstest]
#[case([Plane::Tcp, Plane::Shm], Some(true))]
#[case([Plane::Shm, Plane::Tcp], Some(false))]
#[case([Plane::Nixl, Plane::Tcp], Some(true))]
fn the_consumers_order_of_planes_decides(#[case] offered: [Plane; 2], #[case] token: Option<bool>) {
    let mut world = World::new(16);
    world.saved("h", 2);
    let mut request = request("s", "h");
    request.chiasm.as_mut().unwrap().planes = planes(offered);
    let reply = world.send(at(0), ALICE, &request);
    assert_eq!(Some(reply.token.is_some()), token, "only tcp needs a token");
}

#[test]
fn a_nack_carries_hash_and_status_alone_unless_the_peer_is_chiasm() {
    let mut world = World::new(16);
    let mut request = request("s", "nowhere");
    let chiasm = world.send(at(0), ALICE, &request);
    assert_eq!(chiasm.reason.as_deref(), Some("missing"));
    assert_eq!(chiasm.session, "");
    request.chiasm = None;
    let upstream = world.send(at(0), ALICE, &request);
    // {"type": "ack", "mm_hash": "nowhere", "status": 1}
    assert_eq!(upstream.bytes, b"\x83\xa4type\xa3ack\xa7mm_hash\xa7nowhere\xa6status\x01");
}

#[test]
fn an_upstream_peer_offers_no_plane_that_is_served_here() {
    let mut world = World::new(16);
    world.saved("h", 2);
    let mut request = request("s", "h");
    request.chiasm = None;
    assert_eq!(world.send(at(0), ALICE, &request).status, AckStatus::Internal);
    request.chiasm = Some(ReqExtension { planes: PlaneList::EMPTY, ..ReqExtension::default() });
    assert_eq!(world.send(at(0), ALICE, &request).reason.as_deref(), Some("no_plane"));
}

#[test]
fn what_cannot_be_decoded_gets_no_answer_and_leaves_nothing() {
    let mut world = World::new(16);
    world.saved("h", 2);
    let good = request("s", "h").encode();
    for bad in [&[][..], b"\xc1", b"\x80", &good[..good.len() - 1], &[&good[..], b"\0"].concat()] {
        let answer = world.producer.handle_request(at(0), ALICE, bad, &mut world.cache);
        assert_eq!(answer, None, "{bad:02x?}");
    }
    assert_eq!(world.producer.counters().malformed, 5);
    assert_eq!(world.ask(at(0), BOB, "s", "h").status, AckStatus::Ok, "s was not taken by Alice");
}

#[test]
fn each_answer_is_counted_once_by_its_status() {
    let mut world = World::new(16);
    world.saved("h", 2);
    world.ask(at(0), ALICE, "s", "h");
    world.ask(at(0), ALICE, "s", "nowhere");
    world.ask(at(0), ALICE, "", "h");
    world.ask(at(0), ALICE, "", "h");
    let counters = world.producer.counters();
    assert_eq!((counters.granted, counters.nacks), (1, [0, 1, 0, 0, 2, 0]));
}
