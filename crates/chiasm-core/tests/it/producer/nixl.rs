//! The nixl plane at a producer: what upstream consumers are sent, and what their completions end.

use std::sync::Arc;
use std::time::Duration;

use chiasm_core::plane::Plane;
use chiasm_core::producer::{NixlAgent, PeerId, Producer, ProducerConfig, ProducerLimits};
use chiasm_core::wire::{
    AckLimits, AckStatus, Progression, ReqExtension, XferAck, XferReq, decode_progression,
};
use rstest::rstest;

use super::{ALICE, ATTEMPT, BLOCK_BYTES, BOB, COMPAT, LEASE, LEASE_NANOS, World, at, planes};

const BLOCKS: u32 = 16;

fn region(base: u64) -> Progression {
    Progression::new(base, BLOCK_BYTES, BLOCK_BYTES, BLOCKS, 0).expect("a small region")
}

fn agent(life: u64) -> NixlAgent {
    let metadata: Arc<[u8]> = format!("agent {life}").into_bytes().into();
    NixlAgent { life, metadata, region: region(0x7000_0000_0000 + (life << 20)) }
}

/// What an OK ack says over nixl.
#[derive(Debug, PartialEq)]
struct Told {
    status: AckStatus,
    session: String,
    blocks: Vec<u64>,
    metadata: String,
    region: Option<Progression>,
    extension: bool,
    agent: u64,
}

impl World {
    /// With nixl among its planes, and an agent if `life` is not 0.
    fn with_nixl(life: u64) -> Self {
        Self::with_lease(life, LEASE)
    }

    fn with_lease(life: u64, lease: Duration) -> Self {
        let mut world = Self::new(BLOCKS);
        let config = ProducerConfig {
            compat_hash: COMPAT.into(),
            fingerprint: None,
            epoch: 5,
            block_size_bytes: BLOCK_BYTES,
            lease,
            upstream_lease: LEASE,
            planes: planes([Plane::Nixl, Plane::Tcp]),
            shm: None,
            limits: ProducerLimits::for_region(BLOCKS),
        };
        world.producer = Producer::new(config, [3; 32]);
        if life != 0 {
            world.producer.agent_up(agent(life));
        }
        world
    }

    fn told(&mut self, now: u64, peer: PeerId, request: &XferReq<'_>) -> Told {
        let answer =
            self.producer.handle_request(at(now), peer, &request.encode(), &mut self.cache);
        self.check();
        let answer = answer.expect("an answer");
        let length = answer.bytes();
        let bytes = answer.into_bytes();
        assert_eq!(bytes.len(), length, "as long as was said");
        let ack = XferAck::decode(&bytes, &AckLimits::default()).expect("our own ack decodes");
        let list = ack.mem_descriptor;
        Told {
            status: ack.status,
            session: ack.session_id.to_owned(),
            blocks: ack.src_block_indices.clone(),
            metadata: String::from_utf8(ack.agent_metadata.to_vec()).unwrap(),
            region: (!list.is_empty()).then(|| decode_progression(list, BLOCKS).unwrap()),
            extension: ack.chiasm.is_some(),
            agent: ack.chiasm.map_or(0, |extension| extension.agent),
        }
    }

    fn upstream(&mut self, now: u64, peer: PeerId, session: &str, hash: &str) -> Told {
        let request = XferReq {
            mm_hash: hash,
            compatibility_hash: COMPAT,
            session_id: session,
            connector_version: 2,
            chiasm: None,
        };
        self.told(now, peer, &request)
    }

    fn chiasm(&mut self, peer: PeerId, session: &str, hash: &str, known: u64) -> Told {
        let planes = planes([Plane::Nixl]);
        let extension =
            ReqExtension { planes, attempt: ATTEMPT, agent: known, ..ReqExtension::default() };
        let request = XferReq {
            mm_hash: hash,
            compatibility_hash: COMPAT,
            session_id: session,
            connector_version: 2,
            chiasm: Some(extension),
        };
        self.told(0, peer, &request)
    }

    fn completed(&mut self, life: u64, text: &str) {
        self.producer.completed(life, text.as_bytes(), &mut self.cache);
        self.check();
    }
}

#[test]
fn an_upstream_consumer_gets_upstreams_form_and_nothing_of_ours() {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    let told = world.upstream(0, ALICE, "s", "h");
    let blocks: Vec<u64> = world
        .cache
        .entry(key)
        .unwrap()
        .extents()
        .iter()
        .flat_map(|extent| extent.first()..extent.end())
        .map(u64::from)
        .collect();
    let expected = Told {
        status: AckStatus::Ok,
        session: "s".into(),
        blocks,
        metadata: "agent 1".into(),
        region: Some(agent(1).region),
        extension: false,
        agent: 0,
    };
    assert_eq!(told, expected);
    assert_eq!((world.held(), world.producer.nixl_grants()), ((1, 3), 1));
    world.completed(1, "s:h");
    assert_eq!(world.producer.counters().done, 1);
    assert_eq!(world.producer.nixl_grants(), 0);
    world.at_rest();
}

/// Upstream's form says no lease: who reads it takes 30 s for granted, whatever was granted (S2).
#[test]
fn a_chiasm_consumer_is_told_its_lease_also_where_it_renews_an_upstream_grant() {
    let mut world = World::with_lease(1, LEASE / 2);
    let key = world.saved("h", 3);
    assert!(!world.upstream(0, ALICE, "s", "h").extension);
    let told = world.chiasm(ALICE, "s", "h", 1);
    assert_eq!((told.status, told.extension, told.agent), (AckStatus::Ok, true, 1));
    assert_eq!((world.held(), world.pins(key)), ((1, 3), 1), "it is one grant");
    assert!(!world.upstream(0, ALICE, "s", "h").extension);
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.at_rest();
}

/// Only a completed read shows that the consumer has the list. Sent once, it may have been late, or
/// the consumer may have failed to take it, and then every later read of the session would fail.
#[test]
fn the_list_is_sent_until_a_read_of_the_session_has_completed() {
    let mut world = World::with_nixl(1);
    for hash in ["a", "b", "c"] {
        world.saved(hash, 1);
    }
    assert!(world.upstream(0, ALICE, "s", "a").region.is_some());
    assert!(world.upstream(0, ALICE, "s", "b").region.is_some(), "the first may be lost");
    assert!(world.upstream(0, ALICE, "s", "a").region.is_some());
    world.completed(1, "s:b");
    let after = world.upstream(0, ALICE, "s", "c");
    assert_eq!((after.region, after.metadata.as_str()), (None, "agent 1"));
    assert!(world.upstream(0, BOB, "t", "c").region.is_some(), "another session");
    assert_eq!(world.producer.counters().full_lists, 4);
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert!(world.upstream(0, PeerId(9), "s", "c").region.is_some(), "forgotten means full");
}

/// A new metadata with an empty list would end upstream's engine.
#[test]
fn a_new_life_of_the_agent_starts_again_with_the_list() {
    let mut world = World::with_nixl(1);
    world.saved("a", 1);
    world.saved("b", 1);
    world.upstream(0, ALICE, "s", "a");
    world.completed(1, "s:a");
    assert!(world.upstream(0, ALICE, "s", "a").region.is_none());
    world.producer.agent_down();
    let down = world.upstream(0, ALICE, "s", "b");
    assert_eq!(down.status, AckStatus::NotReady, "upstream asks again");
    world.producer.agent_up(agent(2));
    let told = world.upstream(0, ALICE, "s", "b");
    assert_eq!((told.region, told.metadata.as_str()), (Some(agent(2).region), "agent 2"));
    // A completion of the life before shows nothing of this one, and neither does one of a grant that
    // was made in it.
    world.completed(1, "s:a");
    assert!(world.upstream(0, ALICE, "s", "b").region.is_some());
    world.completed(2, "s:b");
    assert!(world.upstream(0, ALICE, "s", "a").region.is_none());
}

/// Hazard B7: two grants, one text.
#[test]
fn hazard_b7_a_completion_that_could_mean_two_grants_ends_neither() {
    let mut world = World::with_nixl(1);
    let (one, other) = (world.saved("x:h1", 1), world.saved("h1", 1));
    world.upstream(0, ALICE, "s", "x:h1");
    world.completed(1, "s:x:h1");
    assert_eq!(world.pins(one), 0, "with one grant it is clear, whatever is in the names");
    world.upstream(0, ALICE, "s", "x:h1");
    world.upstream(0, BOB, "s:x", "h1");
    world.completed(1, "s:x:h1");
    assert_eq!((world.pins(one), world.pins(other)), (1, 1));
    assert_eq!(world.producer.counters().ambiguous_completions, 1);
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.at_rest();
}

/// S8. The completion of the first read comes while the second reads already.
#[test]
fn a_completion_ends_one_answer_and_the_other_one_keeps_its_promise() {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.upstream(5, ALICE, "s", "h");
    assert_eq!(world.pins(key), 1, "one pin, however often it is asked for");
    world.completed(1, "s:h");
    assert_eq!(world.pins(key), 1, "somebody may read under the second answer");
    world.completed(1, "s:h");
    world.at_rest();
    world.completed(1, "s:h");
    assert_eq!(world.producer.counters().stray_completions, 1);
}

/// S2. It is not told how long it has, and takes 30 s for granted.
#[test]
fn an_upstream_consumer_gets_upstreams_lease_however_short_ours_is() {
    let mut world = World::with_lease(1, Duration::from_secs(25));
    world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.chiasm(BOB, "t", "h", 0);
    let expire = |world: &mut World, nanos| {
        world.producer.handle_timeout(at(nanos), &mut world.cache);
        world.held().0
    };
    assert_eq!(expire(&mut world, 25_000_000_000), 2);
    assert_eq!(expire(&mut world, 25_000_000_001), 1, "a Chiasm consumer was told");
    assert_eq!(expire(&mut world, LEASE_NANOS), 1);
    assert_eq!(expire(&mut world, LEASE_NANOS + 1), 0);
    let mut longer = World::with_lease(1, Duration::from_secs(45));
    longer.saved("h", 3);
    longer.upstream(0, ALICE, "s", "h");
    assert_eq!(expire(&mut longer, 45_000_000_000), 1);
    assert_eq!(expire(&mut longer, 45_000_000_001), 0);
}

/// S8. A read that took longer than the lease ends while the next one is under way.
#[test]
fn the_completion_of_an_expired_grant_does_not_end_the_next_one() {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.at_rest();
    world.upstream(LEASE_NANOS + 2, ALICE, "s", "h");
    world.completed(1, "s:h");
    assert_eq!(world.pins(key), 1, "that was the first read");
    world.completed(1, "s:h");
    world.at_rest();
}

#[rstest]
#[case::it_has_come_before(|world: &mut World| { world.completed(1, "s:h"); (1, LEASE_NANOS + 2) })]
#[case::its_agent_has_died(|world: &mut World| { world.producer.agent_up(agent(2)); (2, LEASE_NANOS + 2) })]
#[case::nobody_reads_for_so_long(|_: &mut World| (1, 110_000_000_000))]
fn a_completion_that_can_only_be_the_new_grants_ends_it(
    #[case] meanwhile: fn(&mut World) -> (u64, u64),
) {
    let mut world = World::with_nixl(1);
    world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    let (life, again) = meanwhile(&mut world);
    world.upstream(again, ALICE, "s", "h");
    world.completed(life, "s:h");
    world.at_rest();
}

/// Hazard B7, one after the other: the first grant's reader is late.
#[test]
fn hazard_b7_the_completion_of_an_expired_grant_does_not_end_another_sessions() {
    let mut world = World::with_nixl(1);
    world.saved("x:h1", 1);
    let other = world.saved("h1", 1);
    world.upstream(0, ALICE, "s", "x:h1");
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    world.upstream(LEASE_NANOS + 2, BOB, "s:x", "h1");
    world.completed(1, "s:x:h1");
    assert_eq!(world.pins(other), 1);
}

#[test]
fn what_was_answered_through_a_dead_agent_is_void() {
    let mut world = World::with_nixl(1);
    world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.producer.agent_down();
    assert_eq!(world.held(), (1, 3), "its lease goes on");
    world.producer.agent_up(agent(2));
    world.upstream(1, ALICE, "s", "h");
    world.completed(2, "s:h");
    world.at_rest();
}

/// Hazard D7, and the reason for the list: a completion that came through another life than the grant's
/// would make the next ack one of new metadata without a list, which ends upstream's engine; or it
/// would end what is read through the life that answered (S8).
#[rstest]
#[case::of_a_grant_from_before(false)]
#[case::of_a_grant_that_was_renewed(true)]
fn a_completion_counts_only_through_the_life_that_the_grant_was_made_through(
    #[case] renewed: bool,
) {
    let mut world = World::with_nixl(1);
    let key = world.saved("a", 1);
    world.saved("b", 1);
    world.upstream(0, ALICE, "s", "a");
    world.producer.agent_down();
    world.producer.agent_up(agent(2));
    if renewed {
        world.upstream(0, ALICE, "s", "a");
    }
    let (own, other) = if renewed { (2, 1) } else { (1, 2) };
    world.completed(other, "s:a");
    assert_eq!((world.pins(key), world.producer.counters().stray_completions), (1, 1));
    assert!(world.upstream(0, ALICE, "s", "b").region.is_some(), "nothing shows that it is known");
    world.completed(own, "s:a");
    assert_eq!(world.pins(key), 0);
}

#[test]
fn an_upstream_grant_outlives_its_connection_and_ends_with_its_lease() {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.upstream(7, ALICE, "s", "h");
    world.producer.peer_gone(ALICE, &mut world.cache);
    world.producer.handle_timeout(at(LEASE_NANOS + 7), &mut world.cache);
    assert_eq!(world.pins(key), 1, "renewed by the second request");
    world.producer.handle_timeout(at(LEASE_NANOS + 8), &mut world.cache);
    world.at_rest();
}

/// An upstream consumer's session comes back on another connection, with its grants. A copy of its
/// request that asks for more than it did gives nobody a way to end them.
#[test]
fn hazard_d7_an_upstream_grant_is_not_given_back_by_a_done() {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!(world.chiasm(BOB, "s", "h", 0).status, AckStatus::Ok);
    let done = chiasm_core::wire::XferDone { mm_hash: "h", session_id: "s", attempt: ATTEMPT };
    world.producer.handle_request(at(1), BOB, &done.encode(), &mut world.cache);
    assert_eq!(world.pins(key), 1);
    world.producer.peer_gone(BOB, &mut world.cache);
    assert_eq!(world.upstream(2, PeerId(3), "s", "h").status, AckStatus::Ok);
    world.producer.handle_timeout(at(LEASE_NANOS + 3), &mut world.cache);
    world.at_rest();
}

#[rstest]
#[case::none(b"".as_slice())]
#[case::another("s:other".as_bytes())]
#[case::session("t:h".as_bytes())]
#[case::no_text(b"s:\xff")]
#[case::prefix("s:".as_bytes())]
#[case::longer("s:h ".as_bytes())]
fn a_completion_of_anything_else_ends_nothing(#[case] text: &[u8]) {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    world.upstream(0, ALICE, "s", "h");
    world.producer.completed(1, text, &mut world.cache);
    assert_eq!(world.pins(key), 1);
    assert_eq!(world.producer.counters().stray_completions, 1);
}

#[test]
fn a_chiasm_peer_is_told_of_the_agent_once_and_says_itself_when_it_is_done() {
    let mut world = World::with_nixl(1);
    let key = world.saved("h", 3);
    let told = world.chiasm(ALICE, "s", "h", 0);
    assert_eq!((told.metadata.as_str(), told.agent, told.region), ("agent 1", 1, None));
    assert!(told.blocks.is_empty());
    let told = world.chiasm(ALICE, "s", "h", 1);
    assert_eq!((told.metadata.as_str(), told.agent), ("", 1));
    let told = world.chiasm(ALICE, "s", "h", 99);
    assert_eq!(told.metadata, "agent 1", "it knows another life's");
    world.completed(1, "s:h");
    assert_eq!(world.pins(key), 1, "hazard D7: no text of a third agent's ends it");
    let done = chiasm_core::wire::XferDone { mm_hash: "h", session_id: "s", attempt: ATTEMPT };
    world.producer.handle_request(at(1), ALICE, &done.encode(), &mut world.cache);
    world.at_rest();
}

#[test]
fn without_nixl_an_upstream_consumer_is_refused_for_good() {
    let mut world = World::new(BLOCKS);
    world.saved("h", 3);
    assert_eq!(world.upstream(0, ALICE, "s", "h").status, AckStatus::Internal);
    let mut world = World::with_nixl(0);
    world.saved("h", 3);
    assert_eq!(world.upstream(0, ALICE, "s", "h").status, AckStatus::NotReady);
    assert_eq!(world.chiasm(ALICE, "t", "h", 0).status, AckStatus::NotReady);
    let planes = planes([Plane::Nixl, Plane::Tcp]);
    let mut request = super::request("t", "h");
    request.chiasm = Some(ReqExtension { planes, attempt: 1, ..ReqExtension::default() });
    assert_eq!(world.told(0, ALICE, &request).status, AckStatus::Ok, "then over tcp");
    assert_eq!(world.producer.nixl_grants(), 0);
}

/// Hazard D1, at its size: 56 bytes bring about 14 MB, of which nothing is made before it is written.
#[test]
fn the_ack_of_a_region_of_a_million_blocks_is_made_while_it_is_written() {
    let mut world = World::with_nixl(0);
    world.saved("h", 1);
    let region = Progression::new(0x7f00_0000_0000, 64, 64, 1_000_000, 0).unwrap();
    world.producer.agent_up(NixlAgent { region, ..agent(1) });
    let request = XferReq {
        mm_hash: "h",
        compatibility_hash: COMPAT,
        session_id: "s",
        connector_version: 2,
        chiasm: None,
    };
    let bytes = request.encode();
    let answer = world.producer.handle_request(at(0), ALICE, &bytes, &mut world.cache).unwrap();
    assert!(answer.bytes() > 11_000_000 && answer.has_rows());
    let (head, rows) = answer.into_parts();
    assert!(head.len() < 200, "{} bytes made", head.len());
    let (_, length) = rows.unwrap();
    assert_eq!(length, region.encode().len() as u64);
}

/// The upstream consumer still counts on its 30 s, whoever asks under its session meanwhile and for however
/// short a time.
#[test]
fn a_renewal_ends_no_lease_earlier() {
    let mut world = World::with_lease(1, LEASE / 2);
    let key = world.saved("h", 2);
    assert_eq!(world.upstream(0, ALICE, "s", "h").status, AckStatus::Ok);
    world.producer.peer_gone(ALICE, &mut world.cache);
    assert_eq!(world.chiasm(BOB, "s", "h", 0).status, AckStatus::Ok);
    world.producer.handle_timeout(at(LEASE_NANOS), &mut world.cache);
    assert_eq!(world.pins(key), 1);
    world.producer.handle_timeout(at(LEASE_NANOS + 1), &mut world.cache);
    assert_eq!(world.pins(key), 0);
}
