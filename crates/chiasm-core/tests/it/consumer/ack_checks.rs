//! What an ack must say before anything is allocated for it.

use chiasm_core::consumer::{FailureClass, FailureReason, Wanted};
use chiasm_core::dtype::Dtype;
use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_core::wire::{AckExtension, AckStatus, XferAck};
use rstest::rstest;

use super::{World, ack_for, at, nack, near, wanted};

type Spoil = fn(&mut AckExtension<'static>);

/// What an ack does wrong, and what is said about it.
const WRONG: &[(&str, Spoil)] = &[
    ("no plane", |ack| ack.plane = None),
    ("nixl, which was not offered", |ack| ack.plane = Some(Plane::Nixl)),
    ("without a token", |ack| ack.token = None),
    ("no shape", |ack| ack.shape = None),
    ("shape [3, 16] granted, [2, 16] announced", |ack| ack.shape = Some((3, 16))),
    ("shape [2, 8] granted", |ack| ack.shape = Some((2, 8))),
    ("shape [16, 2] granted", |ack| ack.shape = Some((16, 2))),
    ("no dtype", |ack| ack.dtype = None),
    ("dtype int32 granted, float32 expected", |ack| ack.dtype = Some(Dtype::Int32)),
    ("length in bytes is not said", |ack| ack.bytes = None),
    ("in bytes is 127, [2, 16] of float32 has 128", |ack| ack.bytes = Some(127)),
    ("in bytes is 129", |ack| ack.bytes = Some(129)),
    ("in bytes is 18446744073709551615", |ack| ack.bytes = Some(u64::MAX)),
    ("block size is not said, 64 here", |ack| ack.block_size_bytes = None),
    ("block size is 128, 64 here", |ack| ack.block_size_bytes = Some(128)),
    ("0 blocks granted, 2 announced", |ack| ack.extents.clear()),
    ("1 blocks granted", |ack| ack.extents = vec![Extent::new(0, 1).unwrap()]),
    ("3 blocks granted", |ack| ack.extents = vec![Extent::new(0, 3).unwrap()]),
    ("274877906880 blocks granted", |ack| {
        ack.extents = vec![Extent::new(0, u32::MAX).unwrap(); 64];
    }),
    ("no lease", |ack| ack.lease_ms = None),
    ("fingerprint", |ack| ack.fingerprint = Some("theirs")),
];

/// Hazards B1 (another number of blocks than announced), B2 (no blocks, or too many), and
/// every other field.
#[test]
fn hazard_b1_b2_an_ack_that_does_not_fit_fails_its_transfer_alone() {
    for (said, spoil) in WRONG {
        let mut world = World::connected(16);
        let wanted = Wanted { dtype: Some(Dtype::Float32), ..wanted("h", 2) };
        world.start(at(0), &wanted);
        let sent = world.last_sent();
        let mut ack = ack_for(&sent, 2);
        let mut extension = ack.chiasm.take().map(owned).unwrap();
        spoil(&mut extension);
        ack.chiasm = Some(extension);
        world.receive(at(1), &near(), &ack.encode());
        let failure = world.failure();
        assert!(failure.reason.to_string().contains(said), "{said}: {}", failure.reason);
        assert_eq!(failure.class, FailureClass::Terminal);
        assert_eq!((world.reads.len(), world.cache.usage().free), (0, 16));
        assert_eq!(world.closed, [], "the link serves the others");
        world.at_rest();
    }
}

/// The same without what a test's ack borrows.
fn owned(extension: AckExtension<'_>) -> AckExtension<'static> {
    AckExtension { fingerprint: None, reason: None, region: None, ..extension }
}

/// The announced number of blocks must be what the announced form needs, whatever is granted.
#[test]
fn more_blocks_than_the_bytes_fill_are_refused() {
    let mut world = World::connected(16);
    let lying = Wanted { rows: 2, ..wanted("h", 3) };
    world.start(at(0), &lying);
    let sent = world.last_sent();
    let mut ack = ack_for(&sent, 3);
    let extension = ack.chiasm.as_mut().unwrap();
    (extension.shape, extension.bytes) = (Some((2, 16)), Some(128));
    world.receive(at(1), &near(), &ack.encode());
    assert!(world.failure().reason.to_string().contains("do not fill"));
}

#[test]
fn the_announced_dtype_is_taken_from_the_ack_where_it_is_not_known() {
    let mut world = World::connected(16);
    let id = world.reading(at(0), &wanted("h", 2));
    world.ended(at(1), id, super::landed(2, Some(super::DIGEST)));
    let entry = world.take_finished().unwrap().outcome.unwrap().entry;
    assert_eq!(world.cache.entry(entry).unwrap().meta().dtype, Some(Dtype::Float32));
}

#[rstest]
#[case(AckStatus::Missing, FailureClass::Terminal, "nack_missing")]
#[case(AckStatus::Incompat, FailureClass::Terminal, "nack_incompat")]
#[case(AckStatus::Version, FailureClass::Terminal, "nack_version")]
#[case(AckStatus::Internal, FailureClass::Terminal, "nack_internal")]
#[case(AckStatus::NotReady, FailureClass::Retryable, "not_ready")]
fn a_nack_ends_the_transfer_in_its_class(
    #[case] status: AckStatus,
    #[case] class: FailureClass,
    #[case] word: &str,
) {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    world.nack(at(1), &sent, status);
    let failure = world.failure();
    assert_eq!((failure.class, failure.reason.word()), (class, word));
    assert_eq!(world.consumer.counters().failed[word], if word == "nack_missing" { 2 } else { 1 });
    assert_eq!(world.reads, []);
    world.at_rest();
}

#[test]
fn a_nack_needs_no_session_and_no_extension() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    world.receive(at(1), &near(), &XferAck::bare("h", AckStatus::Missing).encode());
    assert_eq!(world.failure().reason, FailureReason::NackMissing);
}

#[test]
fn a_peers_word_cannot_write_log_lines() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    let hostile = "x\n2026 ERROR all is lost\u{202e}";
    let ack = nack(&sent, AckStatus::Internal, hostile).encode();
    world.receive(at(1), &near(), &ack);
    let said = world.failure().reason.to_string();
    assert!(said.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{said:?}");
}

#[test]
fn no_plane_in_common_is_told_as_such() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    let ack = nack(&sent, AckStatus::Internal, "no_plane").encode();
    world.receive(at(1), &near(), &ack);
    let FailureReason::NoPlane(why) = world.failure().reason else { panic!("another reason") };
    let told = "the producer serves none of those offered, which are shm, tcp (shm reaches only ";
    assert!(why.starts_with(told), "{why}");
    // And so is an OK ack of an upstream producer, which can be read over nixl only.
    world.start(at(2), &wanted("h", 2));
    let sent = world.last_sent();
    let ack = XferAck { chiasm: None, ..ack_for(&sent, 2) };
    world.receive(at(3), &near(), &ack.encode());
    let FailureReason::NoPlane(why) = world.failure().reason else { panic!("another reason") };
    assert!(why.ends_with("nixl only, and was offered shm, tcp"), "{why}");
}

/// Hazard C13: dropped, it would run into the time-out.
#[test]
fn hazard_c13_an_unknown_status_fails_its_transfer_at_once() {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    // {"mm_hash": "h", "status": 6}
    world.receive(at(1), &near(), b"\x82\xa7mm_hash\xa1h\xa6status\x06");
    let failure = world.failure();
    assert_eq!(failure.reason, FailureReason::UnknownStatus(6));
    assert_eq!((failure.class, world.closed.len()), (FailureClass::Terminal, 0));
    // For a hash that nobody asked for it is nobody's.
    world.receive(at(1), &near(), b"\x82\xa7mm_hash\xa1x\xa6status\x06");
    world.at_rest();
}

/// A newer node may name planes and types that this one does not know. Only that transfer is
/// lost for it.
#[rstest]
#[case("plane", "warp")]
#[case("dtype", "float4")]
fn a_word_of_a_newer_revision_fails_its_transfer_alone(#[case] key: &str, #[case] word: &str) {
    let mut world = World::connected(16);
    world.start(at(0), &wanted("h", 2));
    let healthy = world.start(at(0), &wanted("healthy", 2));
    let (sent, other) = (world.sent[0].clone(), world.sent[1].clone());
    let bytes = ack_for(&sent, 2).encode();
    let known = if key == "plane" { "\u{a3}tcp" } else { "\u{a7}float32" };
    // fixstr headers are single bytes, not UTF-8.
    let known: Vec<u8> = known.chars().map(|char| char as u8).collect();
    let place = bytes.windows(known.len()).position(|window| window == known).unwrap();
    let mut newer = bytes[..place].to_vec();
    newer.push(0xa0 | u8::try_from(word.len()).unwrap());
    newer.extend(word.as_bytes());
    newer.extend(&bytes[place + known.len()..]);
    world.receive(at(1), &near(), &newer);
    let failure = world.failure();
    assert!(failure.reason.to_string().contains(key), "{}", failure.reason);
    assert_eq!(world.closed, []);
    world.ack(at(1), &other, 2);
    assert_eq!(world.reads[0].transfer, healthy);
}
