//! The nixl plane at a consumer: acks of upstream producers, and agents of Chiasm producers.

use chiasm_core::consumer::{
    FailureClass, FailureReason, ReadEnd, ReceivedAck, RemoteAgent, Wanted,
};
use chiasm_core::dtype::Dtype;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::wire::{AckLimits, AckStatus, DescriptorRow, Progression, XferAck, encode_rows};
use rstest::rstest;

use super::{SECOND, Sent, World, ack_for, at, endpoint, landed, near, wanted};

const BASE: u64 = 0x7f12_0000_0000;

/// One byte more than metadata may have.
static MUCH: [u8; (64 << 10) + 1] = [7; (64 << 10) + 1];

type Change = fn(&mut XferAck<'_>);

fn over_nixl(blocks: u32) -> World {
    let planes: PlaneList = [Plane::Nixl, Plane::Tcp].into_iter().collect();
    let mut world = World::with_planes(blocks, planes);
    world.start(at(0), &wanted("probe", 1));
    world.up(at(0), &near());
    let sent = world.last_sent();
    world.receive(at(0), &near(), &XferAck::bare(&sent.hash, AckStatus::Missing).encode());
    assert_eq!(world.failure().reason, FailureReason::NackMissing);
    world.sent.clear();
    world
}

fn typed(hash: &str, blocks: u32) -> Wanted {
    Wanted { dtype: Some(Dtype::Float32), ..wanted(hash, blocks) }
}

fn region() -> Vec<u8> {
    Progression::new(BASE, 64, 64, 100, 0).unwrap().encode()
}

/// An upstream producer's OK ack; what a test changes in it is its point.
fn upstream<'a>(sent: &'a Sent, blocks: &[u64], region: &'a [u8]) -> XferAck<'a> {
    XferAck {
        session_id: &sent.session,
        src_block_indices: blocks.to_vec(),
        agent_metadata: b"metadata",
        mem_descriptor: region,
        ..XferAck::bare(&sent.hash, AckStatus::Ok)
    }
}

impl World {
    fn granted(&mut self, now: u64, sent: &Sent, blocks: &[u64]) {
        let region = region();
        let bytes = upstream(sent, blocks, &region).encode();
        self.receive(at(now), &near(), &bytes);
    }

    fn remote(&self) -> RemoteAgent {
        self.reads.last().and_then(|read| read.nixl.clone()).expect("a read over nixl")
    }
}

#[test]
fn an_upstream_ack_becomes_one_run_for_each_run_of_blocks() {
    let mut world = over_nixl(16);
    let id = world.start(at(0), &typed("h", 5));
    let sent = world.last_sent();
    world.granted(1, &sent, &[7, 8, 9, 3, 99]);
    let read = world.reads.last().unwrap();
    assert_eq!((read.plane, read.bytes, read.digest), (Plane::Nixl, 320, false));
    let remote = world.remote();
    assert_eq!(&*remote.metadata, b"metadata");
    assert_eq!(remote.region, (BASE, 6400));
    assert_eq!(remote.runs, [(BASE + 7 * 64, 192), (BASE + 3 * 64, 64), (BASE + 99 * 64, 64)]);
    assert_eq!(remote.completion, format!("{}:h", sent.session));
    world.ended(at(2), id, landed(5, None));
    assert!(world.take_finished().unwrap().outcome.is_ok());
    assert!(world.holds("h"));
    assert_eq!(world.done, [], "upstream would not understand it");
    world.at_rest();
}

/// 2 of 4 bytes a number: the last block is half empty, and what is in the other half stays there.
#[test]
fn what_the_last_block_has_beyond_the_entry_is_not_read() {
    let mut world = over_nixl(16);
    let half = Wanted { rows: 3, blocks: 2, dtype: Some(Dtype::Float16), ..wanted("h", 3) };
    world.start(at(0), &half);
    let sent = world.last_sent();
    world.granted(1, &sent, &[5, 6]);
    assert_eq!(world.remote().runs, [(BASE + 5 * 64, 96)]);
    assert_eq!(world.reads[0].bytes, 96);
}

fn changed(change: impl FnOnce(&mut XferAck<'_>)) -> FailureReason {
    let mut world = over_nixl(16);
    world.start(at(0), &typed("h", 2));
    let sent = world.last_sent();
    let region = region();
    let mut ack = upstream(&sent, &[3, 4], &region);
    change(&mut ack);
    let bytes = ack.encode();
    world.receive(at(1), &near(), &bytes);
    assert_eq!(world.reads, []);
    assert_eq!(world.cache.usage().free, 16, "nothing is allocated for it");
    let failure = world.failure();
    world.at_rest();
    failure.reason
}

/// Hazards B1, B2, B4: each of these ends upstream's engine, or is only found by NIXL.
#[rstest]
#[case::no_blocks(|ack: &mut XferAck<'_>| ack.src_block_indices.clear(), "0 blocks granted")]
#[case::too_few(|ack: &mut XferAck<'_>| ack.src_block_indices.truncate(1), "1 blocks granted")]
#[case::too_many(|ack: &mut XferAck<'_>| ack.src_block_indices.push(5), "3 blocks granted")]
#[case::outside(|ack: &mut XferAck<'_>| ack.src_block_indices[1] = 100, "block 100 is outside")]
#[case::huge(|ack: &mut XferAck<'_>| ack.src_block_indices[0] = u64::MAX, "is outside")]
#[case::no_metadata(|ack: &mut XferAck<'_>| ack.agent_metadata = b"", "no agent metadata")]
#[case::much_metadata(
    |ack: &mut XferAck<'_>| ack.agent_metadata = &MUCH, "65537 bytes of agent")]
#[case::no_region(|ack: &mut XferAck<'_>| ack.mem_descriptor = b"", "it describes no region")]
#[case::no_list(|ack: &mut XferAck<'_>| ack.mem_descriptor = b"\xc0", "its region cannot be")]
#[case::empty_list(|ack: &mut XferAck<'_>| ack.mem_descriptor = b"\x90", "its region cannot be")]
#[case::foreign_session(|ack: &mut XferAck<'_>| ack.session_id = "x.1", "names another session")]
#[case::no_session(|ack: &mut XferAck<'_>| ack.session_id = "", "names another session")]
fn hazard_b2_an_upstream_ack_that_does_not_fit_fails_its_transfer_alone(
    #[case] change: Change,
    #[case] expected: &str,
) {
    let reason = changed(change);
    assert!(
        matches!(&reason, FailureReason::AckMismatch(why) if why.contains(expected)),
        "{reason}"
    );
    assert_eq!(reason.class(), FailureClass::Terminal);
}

#[rstest]
#[case::other_size(&[[BASE, 32, 0], [BASE + 32, 32, 0]], "32 bytes long and 32 apart")]
#[case::gaps(&[[BASE, 64, 0], [BASE + 128, 64, 0]], "64 bytes long and 128 apart")]
#[case::a_gpu(&[[BASE, 64, 1], [BASE + 64, 64, 1]], "on device 1")]
#[case::wraps(&[[u64::MAX - 127, 64, 0], [u64::MAX - 62, 64, 0]], "its region cannot be")]
#[case::two_lengths(&[[BASE, 64, 0], [BASE + 64, 65, 0]], "its region cannot be")]
fn hazard_b4_a_region_of_another_make_is_refused(
    #[case] rows: &[[u64; 3]],
    #[case] expected: &str,
) {
    let row = |[addr, len, device_id]: &[u64; 3]| DescriptorRow {
        addr: *addr,
        len: *len,
        device_id: *device_id,
    };
    let list = encode_rows(&rows.iter().map(row).collect::<Vec<_>>());
    let mut world = over_nixl(16);
    world.start(at(0), &typed("h", 1));
    let sent = world.last_sent();
    let bytes = upstream(&sent, &[1], &list).encode();
    world.receive(at(1), &near(), &bytes);
    let reason = world.failure().reason;
    assert!(
        matches!(&reason, FailureReason::AckMismatch(why) if why.contains(expected)),
        "{reason}"
    );
    world.at_rest();
}

#[test]
fn without_a_dtype_nobody_knows_how_much_to_read() {
    let mut world = over_nixl(16);
    world.start(at(0), &wanted("h", 2));
    let sent = world.last_sent();
    world.granted(1, &sent, &[3, 4]);
    let reason = world.failure().reason;
    assert!(reason.to_string().contains("dtype"), "{reason}");
}

/// S2 with upstream's constant: 30 s from the request, less the margin.
#[rstest]
#[case::in_time(SECOND, 28 * SECOND, true)]
#[case::at_the_end(SECOND, 29 * SECOND, false)]
#[case::after_an_ack_just_in_time(24 * SECOND - 1, 29 * SECOND - 1, true)]
fn hazard_a1_an_upstream_lease_counts_from_the_request(
    #[case] acked: u64,
    #[case] landed_at: u64,
    #[case] published: bool,
) {
    let mut world = over_nixl(16);
    let id = world.start(at(0), &typed("h", 2));
    let sent = world.last_sent();
    world.granted(acked, &sent, &[3, 4]);
    world.ended(at(landed_at), id, landed(2, None));
    assert_eq!(world.take_finished().unwrap().outcome.is_ok(), published);
    assert_eq!(world.holds("h"), published);
}

#[test]
fn too_little_of_an_upstream_lease_and_the_producer_is_asked_again() {
    let mut world = over_nixl(16);
    world.start(at(0), &typed("h", 2));
    let first = world.last_sent();
    world.granted(24 * SECOND, &first, &[3, 4]);
    let failure = world.failure();
    assert_eq!(failure.reason, FailureReason::LeaseRanOut);
    assert_eq!(failure.class, FailureClass::Retryable);
    assert_eq!(world.reads, []);
    world.start(at(25 * SECOND), &typed("h", 2));
    let second = world.last_sent();
    world.granted(26 * SECOND, &second, &[3, 4]);
    assert_eq!(world.reads.len(), 1);
}

/// Hazard A5 for a peer that numbers nothing: what is repeated or late answers no later request.
#[test]
fn hazard_a5_an_ok_ack_of_an_earlier_request_never_answers_a_later_one_of_the_hash() {
    let mut world = over_nixl(16);
    let id = world.start(at(0), &typed("h", 2));
    let first = world.last_sent();
    world.granted(1, &first, &[3, 4]);
    world.ended(at(2), id, ReadEnd::Failed(FailureReason::Plane("reset".into())));
    world.failure();
    world.start(at(40 * SECOND), &typed("h", 2));
    let second = world.last_sent();
    assert_ne!(first.session, second.session);
    world.granted(40 * SECOND, &first, &[3, 4]);
    assert_eq!((world.reads.len(), world.take_finished()), (1, None), "a duplicate");
    world.granted(40 * SECOND, &second, &[3, 4]);
    assert_eq!(world.reads.len(), 2);
    assert_eq!(world.remote().completion, format!("{}:h", second.session));
}

/// The ack of the first request is lost: the second one's is the second one's.
#[test]
fn a_lost_ack_costs_one_attempt() {
    let mut world = over_nixl(16);
    let first = world.start(at(0), &typed("h", 2));
    world.cancel(first);
    let second = world.start(at(SECOND), &typed("h", 2));
    let sent = world.last_sent();
    world.granted(2 * SECOND, &sent, &[3, 4]);
    assert_eq!(world.reads.last().map(|read| read.transfer), Some(second));
}

#[test]
fn a_peer_that_numbers_attempts_has_one_session_for_a_connection() {
    let mut world = World::connected(16);
    for _ in 0..3 {
        world.start(at(0), &wanted("h", 2));
        let sent = world.last_sent();
        assert_eq!(sent.session, "00000000000000aa.1");
        world.nack(at(1), &sent, AckStatus::NotReady);
        world.failure();
    }
}

/// What is kept of hashes that were asked for is bounded.
#[test]
fn sessions_of_a_connection_that_asks_for_many_hashes_begin_anew() {
    let mut world = over_nixl(16);
    for number in 0..1100 {
        let hash = format!("h{number}");
        world.start(at(0), &typed(&hash, 1));
        let sent = world.last_sent();
        // The probe was the first.
        let expected = if number < 1023 { "00000000000000aa.1" } else { "00000000000000aa.1.1" };
        assert_eq!(sent.session, expected);
        world.receive(at(0), &near(), &XferAck::bare(&hash, AckStatus::Missing).encode());
        world.failure();
    }
}

fn chiasm_ack<'a>(sent: &'a Sent, blocks: u32, metadata: &'a [u8]) -> XferAck<'a> {
    let mut ack = ack_for(sent, blocks);
    ack.agent_metadata = metadata;
    let extension = ack.chiasm.as_mut().unwrap();
    (extension.plane, extension.token) = (Some(Plane::Nixl), None);
    (extension.agent, extension.base, extension.region_blocks) = (77, BASE, 100);
    ack
}

#[test]
fn a_chiasm_producer_describes_its_agent_once() {
    let mut world = over_nixl(16);
    let id = world.start(at(0), &typed("h", 2));
    let sent = world.last_sent();
    let bytes = chiasm_ack(&sent, 2, b"metadata").encode();
    world.receive(at(1), &near(), &bytes);
    let remote = world.remote();
    assert_eq!((&*remote.metadata, remote.region), (b"metadata".as_slice(), (BASE, 6400)));
    assert_eq!((remote.runs, remote.completion.as_str()), (vec![(BASE + 40 * 64, 128)], ""));
    world.ended(at(2), id, landed(2, Some(super::DIGEST)));
    assert!(world.take_finished().unwrap().outcome.is_ok());
    assert_eq!(world.done.len(), 1, "its end is said");
    world.start(at(3), &typed("i", 2));
    let sent = world.last_sent();
    assert_eq!(world.known_agent, 77);
    let bytes = chiasm_ack(&sent, 2, b"").encode();
    world.receive(at(4), &near(), &bytes);
    assert_eq!(&*world.remote().metadata, b"metadata");
}

/// What came to harm on its way here would be believed for the whole life of the producer's agent.
#[rstest]
#[case::bad(FailureReason::BadAgent("it has ended its helper".into()), FailureClass::ReadWrong)]
#[case::suspect(FailureReason::SuspectAgent("for 9 s".into()), FailureClass::Retryable)]
fn an_agent_that_is_blamed_is_described_again(
    #[case] reason: FailureReason,
    #[case] class: FailureClass,
) {
    let mut world = over_nixl(16);
    let id = world.start(at(0), &typed("h", 2));
    let sent = world.last_sent();
    let bytes = chiasm_ack(&sent, 2, b"metadara").encode();
    world.receive(at(1), &near(), &bytes);
    world.start(at(1), &typed("i", 2));
    assert_eq!(world.known_agent, 77);
    world.ended(at(2), id, ReadEnd::Failed(reason));
    assert_eq!(world.failure().class, class);
    world.start(at(3), &typed("j", 2));
    assert_eq!(world.known_agent, 0);
    let sent = world.last_sent();
    let bytes = chiasm_ack(&sent, 2, b"metadata").encode();
    world.receive(at(4), &near(), &bytes);
    assert_eq!(&*world.remote().metadata, b"metadata");
}

#[test]
fn an_agent_that_was_never_described_or_lies_about_its_region_is_not_read() {
    let cases: [(&str, Change); 4] = [
        ("described", |ack| ack.agent_metadata = b""),
        ("without an agent", |ack| ack.chiasm.as_mut().unwrap().agent = 0),
        ("outside its region", |ack| ack.chiasm.as_mut().unwrap().region_blocks = 41),
        ("cannot be", |ack| ack.chiasm.as_mut().unwrap().base = u64::MAX - 100),
    ];
    for (expected, change) in cases {
        let mut world = over_nixl(16);
        world.start(at(0), &typed("h", 2));
        let sent = world.last_sent();
        let mut ack = chiasm_ack(&sent, 2, b"metadata");
        change(&mut ack);
        let bytes = ack.encode();
        world.receive(at(1), &near(), &bytes);
        let reason = world.failure().reason.to_string();
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(world.reads, []);
        world.at_rest();
    }
}

/// The next plane, if there is one.
#[test]
fn after_a_failed_read_over_nixl_the_other_planes_come_first() {
    let mut world = over_nixl(16);
    let id = world.start(at(0), &typed("h", 2));
    assert_eq!(world.offered, [Plane::Nixl, Plane::Tcp]);
    let sent = world.last_sent();
    let bytes = chiasm_ack(&sent, 2, b"metadata").encode();
    world.receive(at(1), &near(), &bytes);
    world.ended(at(2), id, ReadEnd::Failed(FailureReason::Plane("the helper died".into())));
    assert_eq!(world.failure().class, FailureClass::Retryable);
    world.start(at(3), &typed("h", 2));
    assert_eq!(world.offered, [Plane::Tcp, Plane::Nixl]);
}

#[test]
fn a_large_list_may_be_scanned_before() {
    let mut world = over_nixl(16);
    world.start(at(0), &typed("h", 1));
    let sent = world.last_sent();
    let list = region();
    let bytes = upstream(&sent, &[3], &list).encode();
    let found = Progression::new(BASE, 64, 64, 4, 0);
    let limits = AckLimits { max_blocks: 16 };
    let received = ReceivedAck::scanned(&bytes, &limits, found);
    world.consumer.receive_ack(at(1), &near(), &received, &mut world.cache);
    world.drain();
    assert_eq!(world.remote().region, (BASE, 256), "what was found is taken");
    let far = endpoint("10.0.0.9:1");
    world.consumer.receive_ack(at(1), &far, &received, &mut world.cache);
    world.drain();
}

/// Before the producer has shown what it is: two requests under one session id, so that its ack could
/// be the first one's, whose lease may be over.
#[test]
fn hazard_a5_an_ack_that_may_answer_either_of_two_requests_is_not_read_under() {
    let planes: PlaneList = [Plane::Nixl].into_iter().collect();
    let mut world = World::with_planes(16, planes);
    let first = world.start(at(0), &typed("h", 2));
    world.up(at(0), &near());
    let sent = world.last_sent();
    world.cancel(first);
    world.start(at(40 * SECOND), &typed("h", 2));
    assert_eq!(world.last_sent().session, sent.session, "a Chiasm producer renews its grant");
    world.granted(40 * SECOND, &sent, &[3, 4]);
    world.granted(40 * SECOND, &sent, &[3, 4]);
    assert_eq!(world.reads, []);
    assert_eq!(world.failure().class, FailureClass::Retryable);
    world.start(at(41 * SECOND), &typed("h", 2));
    let again = world.last_sent();
    assert_ne!(again.session, sent.session);
    world.granted(41 * SECOND, &again, &[3, 4]);
    assert_eq!(world.reads.len(), 1);
}
