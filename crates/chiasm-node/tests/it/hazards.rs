//! What breaks other connectors, between real nodes: one test per hazard that takes sockets, mappings
//! or threads to show. `docs/hazards.md` lists all of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::endpoint::{Endpoint, ListenAddress};
use chiasm_core::plane::Plane;
use chiasm_node::{Fault, Node};

use crate::fixtures::{
    BLOCKS, allow, config_for_test, consumer_for_test, decide, fetch, item_for_local_test,
    producer_for_test, save_for_test, wait_until,
};
use crate::shm::{Gate, begin, fetch_tracked, mappings, planes_used};

const LONG: Duration = Duration::from_secs(20);

fn producer_at(listen: &str) -> Node {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse(listen).unwrap());
    Node::start(&config).unwrap()
}

/// Blocks that lie outside the producer's region. Upstream's data plane raises out of `schedule()`.
#[test]
fn hazard_b4_blocks_outside_the_region_start_no_read_and_end_no_node() {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.fault = Some(Fault::WildExtents);
    let producer = Node::start(&config).unwrap();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    let bytes = save_for_test(&producer, "image", 16, 128);
    // Nothing is read there; the bytes come the other way.
    assert!(fetch(&consumer, "image", producer.announce("image").unwrap()) == Ok(bytes));
    assert_eq!(planes_used(&consumer), [Plane::Tcp]);
    assert_eq!(consumer.usage().quarantined, 0);
    // And another producer is read as ever.
    let honest = producer_for_test();
    consumer.set_allowlist(allow(&[honest.endpoint().unwrap()]));
    let bytes = save_for_test(&honest, "other", 16, 128);
    assert!(fetch(&consumer, "other", honest.announce("other").unwrap()) == Ok(bytes));
}

/// A name and an address of one producer are two producers to a consumer, and the end of one is nothing
/// to the other.
#[test]
fn hazard_b5_two_spellings_of_one_producer() {
    let producer = producer_for_test();
    let address = producer.endpoint().unwrap().clone();
    let name = Endpoint::parse(&format!("localhost:{}", address.port())).unwrap();
    let consumer = consumer_for_test(&[&address, &name]);
    for (hash, source) in [("one", &address), ("two", &name), ("three", &address)] {
        let bytes = save_for_test(&producer, hash, 16, 128);
        let mut offer = producer.announce(hash).unwrap();
        offer.source = source.clone();
        assert!(fetch(&consumer, hash, offer) == Ok(bytes), "{hash}");
    }
    let mut contacted = consumer.contacted();
    contacted.sort_by_key(ToString::to_string);
    assert_eq!(contacted, [address.clone(), name.clone()]);
    // One of them ends.
    consumer.set_allowlist(allow(&[&address]));
    for (hash, source, allowed) in [("four", &address, true), ("five", &name, false)] {
        let bytes = save_for_test(&producer, hash, 16, 128);
        let mut offer = producer.announce(hash).unwrap();
        offer.source = source.clone();
        let expected = if allowed { Ok(bytes) } else { Err("not_allowed") };
        assert!(fetch(&consumer, hash, offer) == expected, "{hash}");
    }
}

/// The region of a producer's new life cannot be mapped. Nobody takes the old mapping for it.
#[test]
fn hazard_b6_a_new_life_that_cannot_be_mapped_is_not_taken_for_the_old_one() {
    let first = producer_for_test();
    let endpoint = first.endpoint().unwrap().to_string();
    let consumer = consumer_for_test(&[first.endpoint().unwrap()]);
    let old = save_for_test(&first, "image", 16, 128);
    assert!(fetch(&consumer, "image", first.announce("image").unwrap()) == Ok(old.clone()));
    assert_eq!(planes_used(&consumer), [Plane::Shm]);
    assert!(consumer.evict("image"));
    drop(first);
    for (rows, mappable) in [(17, false), (18, true)] {
        let next = producer_at(&endpoint);
        if !mappable {
            fs::set_permissions(next.region_path(), Permissions::from_mode(0o644)).unwrap();
        }
        for (hash, rows) in [("image", rows), ("other", rows + 10)] {
            let bytes = save_for_test(&next, hash, rows, 128);
            assert!(bytes != old);
            assert!(fetch(&consumer, hash, next.announce(hash).unwrap()) == Ok(bytes), "{hash}");
            assert!(consumer.evict(hash));
        }
        assert!(planes_used(&consumer).contains(&Plane::Tcp), "after the first of them");
        assert_eq!(mappings(next.region_path()), usize::from(mappable));
    }
}

/// Ranks of one engine, all of one configuration, and a consumer of the same one.
#[test]
fn hazard_c15_producers_and_a_consumer_of_one_configuration() {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    let ranks: Vec<Node> = (0..3).map(|_| Node::start(&config).unwrap()).collect();
    let endpoints: Vec<&Endpoint> = ranks.iter().map(|rank| rank.endpoint().unwrap()).collect();
    config.allowed = allow(&endpoints);
    let consumer = Node::start(&config).unwrap();
    for round in 0..3 {
        for (number, rank) in ranks.iter().enumerate() {
            let hash = format!("{round} of {number}");
            let bytes = save_for_test(rank, &hash, 16, 128 + u32::try_from(number).unwrap());
            assert!(fetch(&consumer, &hash, rank.announce(&hash).unwrap()) == Ok(bytes), "{hash}");
        }
    }
    for rank in &ranks {
        wait_until(rank, "every grant has ended", || rank.live_grants() == 0);
        let counters = rank.producer_counters();
        assert_eq!((counters.granted, counters.expired, counters.stray_dones), (3, 0, 0));
    }
}

/// Upstream's scheduler copies the bytes itself. Here the node's thread stands in the middle of a read,
/// and every call of the engine is answered.
#[test]
fn hazard_d8_the_engine_is_answered_while_a_read_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let producer = producer_for_test();
    let gate = Gate::new(dir.path());
    let mut config = config_for_test();
    config.allowed = allow(&[producer.endpoint().unwrap()]);
    config.hold_read = Some(gate.path().to_owned());
    let consumer = Node::start(&config).unwrap();
    let bytes = save_for_test(&producer, "image", 16, 1024);
    save_for_test(&consumer, "local", 16, 128);
    gate.shut();
    begin(&consumer, "image", "image", producer.announce("image").unwrap());
    let stopped = gate.meet();

    let (done, answered) = mpsc::channel();
    let answered = thread::scope(|threads| {
        let engine = threads.spawn(|| {
            assert_eq!(consumer.ensure("image", 1, 0), Some(Decision::Wait));
            consumer.track("local", vec![item_for_local_test("local")]).unwrap();
            assert_eq!(consumer.ensure("local", 1, 0), Some(Decision::Ready));
            consumer.load("local").unwrap().read(0, &mut [0; 64]).unwrap();
            consumer.finish("local");
            save_for_test(&consumer, "new", 16, 128);
            assert!(consumer.evict("new"));
            assert_eq!(consumer.report("image", |item| item.verdict).len(), 1);
            assert!(consumer.take_unavailable_requests().is_empty());
            done.send(()).unwrap();
        });
        let answered = answered.recv_timeout(LONG);
        drop(stopped);
        engine.join().unwrap();
        answered
    });
    answered.expect("no call waits for the read");
    assert!(fetch_tracked(&consumer, "image") == bytes);
}

/// What is kept for a producer goes with it, however many come and go under one name.
#[test]
fn hazard_d9_nothing_is_kept_of_producers_that_have_gone() {
    let first = producer_for_test();
    let endpoint = first.endpoint().unwrap().clone();
    let consumer = consumer_for_test(&[&endpoint]);
    let mut producer = Some(first);
    for life in 0..5 {
        let node = producer.take().unwrap_or_else(|| producer_at(&endpoint.to_string()));
        let bytes = save_for_test(&node, "image", 16 + life, 128);
        assert!(fetch(&consumer, "image", node.announce("image").unwrap()) == Ok(bytes));
        let region = node.region_path().to_owned();
        assert_eq!(mappings(&region), 1);
        drop(node);
        wait_until(&consumer, "the region is unmapped", || mappings(&region) == 0);
        decide_gone(&consumer);
    }
    assert_eq!(consumer.usage().free, BLOCKS);
}

/// Forgets what was read, so that the next life is asked again.
fn decide_gone(consumer: &Node) {
    consumer.track("again", vec![item_for_local_test("image")]).unwrap();
    assert_eq!(decide(consumer, "again", 1), Decision::Ready);
    consumer.finish("again");
    assert!(consumer.evict("image"));
}
