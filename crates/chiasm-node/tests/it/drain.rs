//! The orderly end of a producer: new requests are refused, what is granted is read to its end.

use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::endpoint::ListenAddress;
use chiasm_node::{Fault, Node};

use crate::fixtures::{
    config_for_test, consumer_for_test, decide, fetch, item_for_test, producer_for_test,
    save_for_test, wait_until,
};

const LONG: Duration = Duration::from_secs(20);

/// A producer that sends 1 KiB every fifth of a second.
fn slow_producer() -> Node {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.fault = Some(Fault::SlowBytes);
    Node::start(&config).unwrap()
}

#[test]
fn a_producer_at_rest_is_drained_at_once_and_refuses_what_comes() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    save_for_test(&producer, "image", 16, 128);
    let left = producer.drain(Duration::ZERO, || panic!("there is nothing to wait for"));
    assert_eq!(left, 0);
    let offer = producer.announce("image").unwrap();
    assert_eq!(fetch(&consumer, "image", offer), Err("nack_internal"));
}

#[test]
fn a_read_under_way_is_finished_while_others_are_refused() {
    let producer = slow_producer();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    let bytes = save_for_test(&producer, "first", 4, 512);
    save_for_test(&producer, "second", 2, 512);
    let offer = producer.announce("first").unwrap();
    consumer.track("first", vec![item_for_test("first", offer)]).unwrap();
    assert_eq!(consumer.ensure("first", 1, 0), Some(Decision::Wait));
    wait_until(&producer, "a grant", || producer.live_grants() == 1);

    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        let draining = threads.spawn(|| producer.drain(LONG, || begun.send(()).is_ok()));
        begins.recv_timeout(LONG).expect("there is something to wait for");
        let offer = producer.announce("second").unwrap();
        assert_eq!(fetch(&consumer, "second", offer), Err("nack_internal"));
        assert_eq!(draining.join().unwrap(), 0);
    });
    drop(producer);
    assert_eq!(decide(&consumer, "first", 1), Decision::Ready);
    let mut landed = vec![0; bytes.len()];
    consumer.load("first").unwrap().read(0, &mut landed).unwrap();
    assert!(landed == bytes, "bytes differ");
}

#[test]
fn the_wait_ends_when_its_time_is_over_or_nobody_wants_it_any_more() {
    let producer = slow_producer();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    save_for_test(&producer, "image", 64, 1024);
    let offer = producer.announce("image").unwrap();
    consumer.track("image", vec![item_for_test("image", offer)]).unwrap();
    assert_eq!(consumer.ensure("image", 1, 0), Some(Decision::Wait));
    wait_until(&producer, "a grant", || producer.live_grants() == 1);

    assert_eq!(producer.drain(LONG, || false), 1);
    assert_eq!(producer.drain(Duration::from_millis(50), || true), 1);
}
