//! The operator's list while the node runs.

use chiasm_core::allowlist::Allowlist;

use crate::fixtures::{
    allow, consumer_for_test, decide, fetch, item_for_test, producer_for_test, save_for_test,
};

#[test]
fn a_producer_that_is_taken_off_the_list_is_refused_and_left() {
    let producer = producer_for_test();
    let endpoint = producer.endpoint().unwrap().clone();
    let consumer = consumer_for_test(&[&endpoint]);
    save_for_test(&producer, "first", 16, 128);
    save_for_test(&producer, "second", 16, 128);
    fetch(&consumer, "first", producer.announce("first").unwrap()).unwrap();

    consumer.set_allowlist(Allowlist::default());
    let refused = fetch(&consumer, "second", producer.announce("second").unwrap());
    assert_eq!(refused, Err("not_allowed"));

    consumer.set_allowlist(allow(&[&endpoint]));
    fetch(&consumer, "second", producer.announce("second").unwrap()).unwrap();
}

#[test]
fn what_waits_for_a_producer_fails_when_that_is_taken_off_the_list() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let producer = producer_for_test();
    save_for_test(&producer, "image", 16, 128);
    let mut offer = producer.announce("image").unwrap();
    let port = silent.local_addr().unwrap().port();
    offer.source = offer.source.with_port(port.try_into().unwrap());
    let consumer = consumer_for_test(&[&offer.source]);

    consumer.track("request", vec![item_for_test("image", offer)]).unwrap();
    assert_eq!(consumer.ensure("request", 1, 0), Some(chiasm_core::admission::Decision::Wait));
    // The connection is made; nothing is said on it.
    drop(silent.accept().unwrap());
    consumer.set_allowlist(Allowlist::default());

    let decision = decide(&consumer, "request", 1);
    assert_eq!(decision, chiasm_core::admission::Decision::Unavailable);
    assert_eq!(consumer.take_unavailable_requests().len(), 1);
    assert!(consumer.take_unavailable_requests().is_empty());
}
