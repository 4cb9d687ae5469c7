//! C: leaks and requests that are stuck.

use chiasm_core::admission::Decision;
use chiasm_core::cache::EntryState;
use chiasm_core::config::{Config, Facts};
use chiasm_core::dispatch::{Outcome, QUARANTINE, Rank, RankSet, Report, SAVE_TIMEOUT};
use chiasm_core::limits::UPSTREAM_LEASE;
use rstest::rstest;
use serde_json::{Value, json};

use super::{assert_served, landed, with_field};
use crate::conformance_pair::{Network, PEER, Pair, TICK, hash, meta, source};

fn rank(number: u16) -> Rank {
    Rank::new(number).expect("a rank")
}

/// Addresses that upstream reads only after it has taken blocks, which it then never gives back.
#[rstest]
#[case("peer_port", Value::Null)]
#[case("peer_port", json!("abc"))]
#[case("peer_port", json!("0x15e1"))]
#[case("peer_port", json!(-1))]
#[case("peer_port", json!(0))]
#[case("peer_port", json!(70_000))]
#[case("peer_host", json!(["10.0.0.1"]))]
#[case("peer_host", json!({"host": "10.0.0.1"}))]
#[case("peer_host", json!("bad host!"))]
#[case("peer_host", json!(""))]
#[case("peer_host", json!("*"))]
fn hazard_c1_an_address_that_is_none_takes_no_block_and_poisons_no_hash(
    #[case] field: &str,
    #[case] value: Value,
) {
    let mut pair = Pair::new(8);
    pair.encoded("h", 8);
    let params = with_field(pair.announce("h"), "h", field, value);
    for id in ["a", "b", "c"] {
        pair.request_with(id, "h", 8, false, &params);
        assert_eq!(pair.step(id), Decision::Unavailable);
        assert_eq!((pair.consumer.usage().free, landed(&pair, "h")), (8, None));
        pair.finish(id);
    }
    assert!(pair.asked.is_empty());
    // The whole region is there, and so is the hash.
    assert_served(&mut pair, "valid", "h", 8);
}

/// The peer is gone in the middle of a read, and so is whoever would have settled its blocks.
#[test]
fn hazard_c2_the_loss_of_a_peer_in_a_read_leaks_no_block_and_poisons_no_hash() {
    let mut pair = Pair::new(8);
    pair.encoded("h", 8);
    for round in 0..3 {
        let id = round.to_string();
        pair.network = Network::SlowBytes;
        pair.request(&id, "h", 8, false);
        assert_eq!(pair.step(&id), Decision::Wait);
        let (order, stream) = pair.reading.pop_front().expect("a read under way");
        pair.lose_link();
        pair.producer.stream_ended(pair.now, stream.expect("it has begun"), false);
        let lost = chiasm_core::consumer::FailureReason::Plane("reset".into());
        let end = chiasm_core::consumer::ReadEnd::Failed(lost);
        pair.consumer.read_ended(pair.now, order.transfer, end);
        pair.settle();
        assert_eq!((pair.consumer.usage().free, landed(&pair, "h")), (8, None));
        pair.network = Network::Fast;
        pair.pass(QUARANTINE + TICK);
        assert_eq!(pair.step(&id), Decision::Ready, "it asks again, for blocks that are there");
        pair.finish(&id);
        assert!(pair.consumer.evict("h"));
    }
    pair.assert_at_rest();
}

/// The promised entry was evicted and taken anew as a save that no worker performs.
#[test]
fn hazard_c3_a_save_that_no_worker_performs_ends() {
    let mut pair = Pair::new(8);
    let order = pair.consumer.dispatch_save(pair.now, &hash("h"), meta(3), 3, rank(0));
    let order = order.expect("room");
    assert!(pair.consumer.cache().has_held_entries());
    pair.encoded("h", 3);
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait, "the save may still bring it");
    pair.pass(SAVE_TIMEOUT + TICK);
    assert_eq!(pair.consumer.dispatches().outstanding().saves, 0);
    assert_eq!(pair.step("a"), Decision::Ready, "read, when the save was given up");
    assert_eq!(
        (landed(&pair, "h"), pair.asked.as_slice()),
        (Some(EntryState::Ready), &["h".to_owned()][..])
    );
    pair.finish("a");
    // The save's blocks are its worker's until that is dead; all others are everybody's.
    assert_eq!(pair.consumer.usage().quarantined, 3);
    pair.consumer.worker_gone(pair.now, rank(0));
    pair.pass(QUARANTINE + TICK);
    assert!(pair.consumer.cache().entry(order.key).is_none());
    pair.assert_at_rest();
}

/// A grant that arrives when nobody wants it any more is given back at once, not after 30 s.
#[test]
fn hazard_c14_a_grant_that_nobody_uses_is_given_back() {
    let mut pair = Pair::new(8);
    let key = pair.encoded("h", 3);
    let pins = |pair: &Pair| pair.producer.cache().entry(key).expect("an entry").pins();
    pair.late = Some(Vec::new());
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Wait);
    assert_eq!((pins(&pair), pair.producer.producer().live_grants()), (1, 1));
    pair.finish("a");
    let ack = pair.late.take().expect("answers are held back").remove(0);
    pair.consumer.receive(pair.now, &source(), &ack);
    pair.settle();
    assert_eq!((pins(&pair), pair.producer.producer().live_grants()), (0, 0), "without a wait");
    assert_eq!(pair.producer.producer().counters().done, 1);
    assert_served(&mut pair, "b", "h", 3);
    // A request that the producer handles after the read is complete: its grant is given back too.
    pair.late = Some(Vec::new());
    let again = super::request_bytes("00000000000000aa", "h");
    pair.producer.handle_request(pair.now, PEER, &again);
    pair.pass(UPSTREAM_LEASE + TICK);
    assert_eq!(pins(&pair), 0, "and a grant of nobody's ends with its lease");
    pair.assert_at_rest();
}

/// Data-parallel ranks of one configuration on one host.
#[test]
fn hazard_c16_data_parallel_ranks_have_ports_of_their_own() {
    let config = json!({
        "ec_connector": "ChiasmConnector",
        "ec_role": "ec_producer",
        "ec_connector_extra_config": {"ec_cpu_bytes": "1GiB", "ec_enable_nixl": true},
    });
    let listen = |port: Option<&str>, data_parallel_index| {
        let environment = |name: &str| match name {
            "VLLM_EC_SIDE_CHANNEL_PORT" => port.map(ToOwned::to_owned),
            _ => None,
        };
        let facts = Facts { data_parallel_index, host_address: Some("10.0.0.5") };
        let config = Config::read(&config, &environment, &facts).expect("a valid configuration");
        config.side_channel.expect("a producer serves").listen().expect("a host").to_string()
    };
    let ports = [0, 1, 2, 3].map(|index| listen(Some("5601"), index));
    assert_eq!(ports, ["10.0.0.5:5601", "10.0.0.5:5602", "10.0.0.5:5603", "10.0.0.5:5604"]);
    // Without a port the system chooses one for each.
    assert_eq!([0, 1].map(|index| listen(None, index)), ["10.0.0.5:0", "10.0.0.5:0"]);
}

/// Upstream waits for both for ever.
#[test]
fn hazard_c18_what_is_never_reported_holds_nothing_for_ever() {
    let mut pair = Pair::new(8);
    let save = pair.consumer.dispatch_save(pair.now, &hash("h"), meta(3), 3, rank(0));
    let save = save.expect("room");
    let said = Report { rank: rank(0), receipt: save.receipt(), outcome: Outcome::Done(None) };
    pair.consumer.reported(pair.now, &said);
    pair.consumer.dispatch_save(pair.now, &hash("lost"), meta(2), 2, rank(1)).expect("room");
    pair.encoded("h", 3);
    pair.request("a", "h", 3, false);
    assert_eq!(pair.step("a"), Decision::Ready);
    let ranks = RankSet::first(2).expect("two ranks");
    pair.consumer.dispatch_load(pair.now, "h", ranks).expect("promised");
    pair.finish("a");

    pair.pass(SAVE_TIMEOUT + TICK);
    let counters = pair.consumer.dispatches().counters();
    assert_eq!((counters.lost_saves, counters.late_loads), (1, 1), "both are told");
    assert_eq!(landed(&pair, "lost"), None, "the hash can be saved anew");
    // What a live worker may still touch stays; with the worker it goes.
    assert_eq!((pair.consumer.usage().quarantined, pair.consumer.usage().pinned_entries), (2, 1));
    for number in [0, 1] {
        pair.consumer.worker_gone(pair.now, rank(number));
    }
    pair.pass(QUARANTINE + TICK);
    assert!(pair.consumer.evict("h"));
    assert_eq!(pair.consumer.usage().free, 8);
    assert!(pair.consumer.dispatches().outstanding().is_empty());
}
