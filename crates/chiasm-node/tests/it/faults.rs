//! Producers that misbehave on command: what becomes of the request, and that nothing is kept by
//! either side once it is over (S4, S8).

use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::endpoint::ListenAddress;
use chiasm_node::{Fault, Node, NodeConfig};

use crate::fixtures::{
    BLOCKS, allow, config_for_test, decide, fetch, item_for_test, producer_for_test, save_for_test,
    wait_until,
};

/// Two seconds: the shortest that leaves something after the margin of one.
const LEASE: Duration = Duration::from_secs(2);

fn faulty(fault: Fault) -> Node {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.fault = Some(fault);
    config.lease = LEASE;
    Node::start(&config).unwrap()
}

/// How long a consumer waits.
#[derive(Clone, Copy)]
enum Patience {
    /// A minute, which is longer than a test waits for anything: what ends before is not the budget.
    Long,
    /// A second in all, for what ends no other way.
    Short,
}

impl Patience {
    fn config(self, producer: &Node) -> NodeConfig {
        let mut config = config_for_test();
        config.allowed = allow(&[producer.endpoint().unwrap()]);
        if let Self::Short = self {
            config.ack_timeout = Duration::from_millis(200);
            config.read_timeout = Duration::from_millis(400);
            config.wait_budget = Duration::from_secs(1);
        }
        config
    }
}

/// Every block is free or may go; nothing is pinned, quarantined or granted.
fn assert_rests(what: &str, node: &Node) {
    wait_until(node, &format!("{what}: at rest"), || {
        let usage = node.usage();
        usage.free + usage.evictable == usage.total
            && (usage.quarantined, usage.pinned_entries) == (0, 0)
            && node.live_grants() == 0
    });
}

/// Fetches one entry of 256 KiB through the fault; gives the word of its failure. Afterwards both
/// sides are as before.
fn fetch_through(fault: Fault, patience: Patience) -> Result<(), &'static str> {
    let producer = faulty(fault);
    let consumer = Node::start(&patience.config(&producer)).unwrap();
    let bytes = save_for_test(&producer, "image", 64, 1024);
    let fetched = fetch(&consumer, "image", producer.announce("image").unwrap());
    assert_rests("the consumer", &consumer);
    let usage = consumer.usage();
    assert_eq!(usage.total, BLOCKS);
    assert_eq!(usage.entries, usize::from(fetched.is_ok()), "only what was published stays");
    assert_rests("the producer", &producer);
    assert_eq!(producer.usage().evictable, 64, "the entry is there for others");
    fetched.map(|landed| assert!(landed == bytes, "bytes differ"))
}

#[test]
fn missing_is_final() {
    assert_eq!(fetch_through(Fault::Missing, Patience::Long), Err("nack_missing"));
}

#[test]
fn incompat_is_final() {
    assert_eq!(fetch_through(Fault::Incompat, Patience::Long), Err("nack_incompat"));
}

#[test]
fn not_ready_is_asked_again() {
    assert_eq!(fetch_through(Fault::NotReady(3), Patience::Long), Ok(()));
}

#[test]
fn not_ready_for_ever_costs_the_budget() {
    assert_eq!(fetch_through(Fault::NotReady(u32::MAX), Patience::Short), Err("budget"));
}

#[test]
fn silence_costs_the_budget() {
    assert_eq!(fetch_through(Fault::Silent, Patience::Short), Err("budget"));
}

#[test]
fn garbage_costs_the_budget() {
    assert_eq!(fetch_through(Fault::Garbage, Patience::Short), Err("budget"));
}

#[test]
fn bytes_that_come_too_slowly_cost_the_budget() {
    assert_eq!(fetch_through(Fault::SlowBytes, Patience::Short), Err("budget"));
}

#[test]
fn a_grant_of_something_else_is_final() {
    assert_eq!(fetch_through(Fault::WrongExtents, Patience::Long), Err("ack_mismatch"));
}

#[test]
fn wrong_bytes_are_read_once_more_and_never_published() {
    assert_eq!(fetch_through(Fault::WrongBytes, Patience::Long), Err("digest"));
}

#[test]
fn an_ack_that_comes_late_answers_nothing_newer() {
    assert_eq!(
        fetch_through(Fault::LateAck(Duration::from_millis(500)), Patience::Short),
        Err("budget")
    );
}

#[test]
fn an_ack_that_comes_just_in_time_counts() {
    assert_eq!(fetch_through(Fault::LateAck(Duration::from_millis(20)), Patience::Long), Ok(()));
}

/// A producer that accepts and never speaks, and one that is not there.
#[test]
fn a_healthy_source_is_not_held_up_by_a_dead_one_of_the_same_hash() {
    let healthy = producer_for_test();
    let bytes = save_for_test(&healthy, "image", 64, 1024);
    let offer = healthy.announce("image").unwrap();
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = |listener: &std::net::TcpListener| {
        let port = listener.local_addr().unwrap().port();
        let mut offer = offer.clone();
        offer.source = offer.source.with_port(port.try_into().unwrap());
        offer
    };
    let (silent, refused) = (at(&deaf), at(&gone));
    drop(gone);
    let mut config = config_for_test();
    config.allowed = allow(&[&offer.source, &silent.source, &refused.source]);
    let consumer = Node::start(&config).unwrap();
    for (id, offer) in [("silent", silent), ("refused", refused), ("healthy", offer)] {
        consumer.track(id, vec![item_for_test("image", offer)]).unwrap();
        let _ = consumer.ensure(id, 1, 0);
    }

    // The budget of the other two is a minute, more than this waits for anything.
    for id in ["healthy", "silent", "refused"] {
        assert_eq!(decide(&consumer, id, 1), Decision::Ready, "{id}");
    }
    let mut landed = vec![0; bytes.len()];
    consumer.load("image").unwrap().read(0, &mut landed).unwrap();
    assert!(landed == bytes, "bytes differ");
    for id in ["healthy", "silent", "refused"] {
        consumer.finish(id);
    }
    assert_rests("the consumer", &consumer);
    assert_eq!(consumer.consumer_counters().arrived, 1);
}

#[test]
fn a_request_of_the_dead_source_fails_alone() {
    let healthy = producer_for_test();
    save_for_test(&healthy, "one", 64, 1024);
    save_for_test(&healthy, "two", 64, 1024);
    let silent = faulty(Fault::Silent);
    let mut of_silent = healthy.announce("one").unwrap();
    of_silent.source = silent.endpoint().unwrap().clone();
    let mut config = Patience::Short.config(&healthy);
    config.allowed = allow(&[healthy.endpoint().unwrap(), silent.endpoint().unwrap()]);
    let consumer = Node::start(&config).unwrap();

    consumer.track("dead", vec![item_for_test("one", of_silent)]).unwrap();
    assert_eq!(consumer.ensure("dead", 1, 0), Some(Decision::Wait));
    fetch(&consumer, "two", healthy.announce("two").unwrap()).unwrap();
    assert_eq!(decide(&consumer, "dead", 1), Decision::Unavailable);
    let failed = consumer.take_unavailable_requests();
    assert_eq!(failed.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["dead"]);
    consumer.finish("dead");
    assert_rests("the consumer", &consumer);
}
