//! An entry goes from one node to another.

use chiasm_core::endpoint::ListenAddress;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use rstest::rstest;

use crate::fixtures::{
    allow, config_for_test, consumer_for_test, fetch, producer_for_test, save_for_test, wait_until,
};

#[rstest]
fn entries_arrive_with_identical_bytes(
    #[values(Plane::Shm, Plane::Tcp)] plane: Plane,
    #[values(true, false)] verify: bool,
) {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.verify = verify;
    let producer = Node::start(&config).unwrap();
    let mut config = config_for_test();
    config.allowed = allow(&[producer.endpoint().unwrap()]);
    config.planes = PlaneList::from_iter([plane]);
    let consumer = Node::start(&config).unwrap();
    for (name, rows, width) in [("small", 16, 128), ("odd", 7, 13), ("large", 1000, 7168)] {
        let bytes = save_for_test(&producer, name, rows, width);
        let landed = fetch(&consumer, name, producer.announce(name).unwrap());
        assert!(landed == Ok(bytes), "{name}: bytes differ");
    }
    wait_until(&producer, "each grant has ended", || producer.live_grants() == 0);
    let counters = producer.producer_counters();
    let ended = if plane == Plane::Shm { (0, 3) } else { (3, 0) };
    assert_eq!((counters.completed, counters.done), ended);
    assert_eq!((counters.expired, counters.lost, counters.stray_dones), (0, 0, 0));
    assert_eq!(consumer.consumer_counters().bytes.keys().collect::<Vec<_>>(), [&plane]);
    assert_eq!(consumer.contacted(), [producer.endpoint().unwrap().clone()]);
}

#[test]
fn an_entry_that_the_producer_does_not_have_is_unavailable() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    save_for_test(&producer, "there", 16, 128);
    let offer = producer.announce("there").unwrap();
    assert_eq!(fetch(&consumer, "gone", offer), Err("nack_missing"));
    assert_eq!(consumer.usage().free, crate::fixtures::BLOCKS);
}

#[test]
fn a_producer_that_is_not_allowed_is_never_contacted() {
    let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    foreign.set_nonblocking(true).unwrap();
    let port = foreign.local_addr().unwrap().port();
    let producer = producer_for_test();
    save_for_test(&producer, "image", 16, 128);
    let mut offer = producer.announce("image").unwrap();
    offer.source = offer.source.with_port(port.try_into().unwrap());
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);

    assert_eq!(fetch(&consumer, "image", offer), Err("not_allowed"));

    let accepted = foreign.accept().map_err(|error| error.kind());
    assert_eq!(accepted.unwrap_err(), std::io::ErrorKind::WouldBlock);
    assert!(consumer.contacted().is_empty());
}
