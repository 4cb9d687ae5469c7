//! Peers that are none: whatever they send, the node serves everybody else.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use chiasm_core::endpoint::ListenAddress;
use chiasm_node::Node;

use crate::fixtures::{
    config_for_test, consumer_for_test, fetch, producer_for_test, save_for_test,
};

fn address_of(node: &Node) -> SocketAddr {
    let endpoint = node.endpoint().unwrap();
    SocketAddr::new(endpoint.host().address().unwrap(), endpoint.port())
}

fn assert_serves(producer: &Node) {
    save_for_test(producer, "image", 16, 128);
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    fetch(&consumer, "image", producer.announce("image").unwrap()).unwrap();
}

/// Reads until the node closes; gives what it had to say.
fn rest_of(mut stream: &TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is a close too: the node had not read everything that was sent.
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn a_peer_that_speaks_another_protocol_is_closed_alone() {
    let producer = producer_for_test();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        &[0; 64],
        &[0xC7; 64],
        &[0xFF; 64],
        b"\xC7hiasm\x01\x00\x02 not a READ frame....",
    ] {
        let mut stream = TcpStream::connect(address_of(&producer)).unwrap();
        stream.write_all(bytes).unwrap();
        rest_of(&stream);
    }
    assert_serves(&producer);
}

#[test]
fn a_token_that_opens_nothing_is_refused_and_the_stream_goes_on() {
    let producer = producer_for_test();
    let mut stream = TcpStream::connect(address_of(&producer)).unwrap();
    stream.write_all(b"\xC7hiasm\x01\x00").unwrap();
    for id in 1..=3_u8 {
        let mut read = vec![1, 0, 0, 0, id];
        read.extend([id; 16]);
        stream.write_all(&read).unwrap();
        let mut answer = [0; 13];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [0x82, 0, 0, 0, id, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    assert_eq!(producer.producer_counters().bad_tokens, 3);
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.limits.max_connections = 20;
    let producer = Node::start(&config).unwrap();
    let connect = |_| TcpStream::connect(address_of(&producer)).unwrap();
    let silent: Vec<TcpStream> = (0..50).map(connect).collect();
    // The oldest that has said nothing makes room.
    assert_serves(&producer);
    drop(silent);
}

#[test]
fn one_address_cannot_have_all_connections() {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.limits.max_connections_per_address = 5;
    let producer = Node::start(&config).unwrap();
    let stream = |id: u8| {
        let mut stream = TcpStream::connect(address_of(&producer)).unwrap();
        let frame = [b"\xC7hiasm\x01\x00\x01\0\0\0".as_slice(), &[id; 17]].concat();
        stream.write_all(&frame).unwrap();
        // The answer shows that it has become a stream, which nothing pushes out.
        let mut answer = [0; 13];
        stream.read_exact(&mut answer).map(|()| stream)
    };
    let kept: Vec<TcpStream> = (0..5).map(|id| stream(id).unwrap()).collect();
    assert!(stream(5).is_err(), "a sixth one has a place");
    drop(kept);
    assert_serves(&producer);
}

#[test]
fn of_one_address_the_oldest_that_says_nothing_makes_room() {
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config.limits.max_connections_per_address = 5;
    let producer = Node::start(&config).unwrap();
    let silent: Vec<TcpStream> =
        (0..5).map(|_| TcpStream::connect(address_of(&producer)).unwrap()).collect();
    assert_serves(&producer);
    assert!(rest_of(&silent[0]).is_empty(), "the oldest is closed");
}

#[test]
fn the_port_in_use_is_named_and_nothing_is_left() {
    let first = producer_for_test();
    let endpoint = first.endpoint().unwrap();
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse(&endpoint.to_string()).unwrap());
    let error = Node::start(&config).unwrap_err().to_string();
    assert!(error.contains(&endpoint.to_string()), "{error}");
    assert!(error.contains("port 0"), "{error}");
}
