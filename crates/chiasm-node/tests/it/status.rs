//! The status socket: what it says, who may ask, and that no client disturbs the node.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use chiasm_core::endpoint::ListenAddress;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::status::{AskError, ask, sockets};
use chiasm_node::{Node, NodeConfig};
use chiasm_region::status_socket;
use serde_json::Value;

use crate::fixtures::{
    allow, config_for_test, fetch, producer_for_test, save_for_test, wait_until,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn config_with_status() -> NodeConfig {
    let mut config = config_for_test();
    config.status = true;
    config
}

fn producer_with_status() -> Node {
    let mut config = config_with_status();
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    Node::start(&config).unwrap()
}

fn socket_of(node: &Node) -> PathBuf {
    status_socket(node.region_path())
}

fn status_of(node: &Node) -> Value {
    serde_json::from_str(&ask(&socket_of(node), PATIENCE).unwrap()).unwrap()
}

fn connect(node: &Node) -> UnixStream {
    let client = UnixStream::connect(socket_of(node)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// What the node says before it closes.
fn answer_to(node: &Node, request: &[u8]) -> String {
    let mut client = connect(node);
    client.write_all(request).unwrap();
    let mut answer = String::new();
    // A reset is a close too: the node had not read everything that was sent.
    let _ = client.read_to_string(&mut answer);
    answer
}

#[test]
fn a_node_shows_both_of_its_sides() {
    let producer = producer_with_status();
    let mut config = config_with_status();
    config.allowed = allow(&[producer.endpoint().unwrap()]);
    // For the streams' sake.
    config.planes = PlaneList::from_iter([Plane::Tcp]);
    let consumer = Node::start(&config).unwrap();
    save_for_test(&producer, "image", 16, 128);
    fetch(&consumer, "image", producer.announce("image").unwrap()).unwrap();
    let offer = producer.announce("image").unwrap();
    assert_eq!(fetch(&consumer, "gone", offer), Err("nack_missing"));

    let status = status_of(&producer);
    assert_eq!(status["format"], 1);
    assert_eq!(status["node"]["endpoint"], producer.endpoint().unwrap().to_string());
    assert_eq!(status["node"]["process"], std::process::id());
    assert_eq!(status["region"]["path"], producer.region_path().to_str().unwrap());
    assert_eq!(status["blocks"]["evictable"], 2);
    assert_eq!(status["serving"]["connections"], 1);
    assert_eq!(status["serving"]["streams"], 1);
    assert_eq!(status["serving"]["peers"][0]["address"], "127.0.0.1");
    assert_eq!(status["serving"]["peers"][0]["connections"], 2);
    assert_eq!(status["serving"]["counters"]["granted"], 1);
    assert_eq!(status["serving"]["counters"]["nacks"]["missing"], 1);

    let status = status_of(&consumer);
    assert_eq!(status["node"]["endpoint"], Value::Null);
    assert_eq!(status["reading"]["allowed_endpoints"], 1);
    let link = &status["reading"]["producers"][0];
    assert_eq!(link["endpoint"], producer.endpoint().unwrap().to_string());
    assert_eq!((&link["link"], &link["breaker"]), (&"up".into(), &"closed".into()));
    let counters = &status["reading"]["counters"];
    assert_eq!((&counters["asked"], &counters["arrived"]), (&2.into(), &1.into()));
    assert_eq!(counters["failed"]["nack_missing"], 1);
    assert_eq!(counters["failures"]["nack_missing"], 1);
    let bytes: u64 =
        counters["bytes"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert_eq!(bytes, 16 * 128 * 4);
    for status in [status_of(&producer), status_of(&consumer)] {
        let blocks = |name: &str| status["blocks"][name].as_u64().unwrap();
        assert_eq!(blocks("free") + blocks("live") + blocks("quarantined"), blocks("total"), "S4");
    }
}

#[test]
fn a_breaker_and_who_waits_can_be_seen() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let producer = producer_for_test();
    save_for_test(&producer, "image", 16, 128);
    let mut offer = producer.announce("image").unwrap();
    offer.source = offer.source.with_port(gone.local_addr().unwrap().port().try_into().unwrap());
    drop(gone);
    let mut config = config_with_status();
    config.allowed = allow(&[&offer.source]);
    let consumer = Node::start(&config).unwrap();
    let endpoint = offer.source.to_string();
    consumer.track("request", vec![crate::fixtures::item_for_test("image", offer)]).unwrap();
    let _ = consumer.ensure("request", 1, 0);

    wait_until(&consumer, "an open breaker", || {
        let producers = &status_of(&consumer)["reading"]["producers"];
        producers[0]["endpoint"] == *endpoint && producers[0]["breaker"] == "open"
    });
    let reading = &status_of(&consumer)["reading"];
    assert_eq!((&reading["requests"], &reading["waiting_items"]), (&1.into(), &1.into()));
    assert_eq!(reading["counters"]["breakers_opened"], 1);
    assert!(reading["counters"]["retries"].as_u64().unwrap() >= 2);
    consumer.finish("request");
    assert_eq!(status_of(&consumer)["reading"]["waiting_items"], 0);
}

#[test]
fn it_is_private_and_goes_with_its_node() {
    let node = Node::start(&config_with_status()).unwrap();
    let path = socket_of(&node);
    let there = std::fs::symlink_metadata(&path).unwrap();
    assert!(there.file_type().is_socket());
    assert_eq!(there.mode() & 0o7777, 0o600);
    assert!(sockets(path.parent().unwrap()).unwrap().contains(&path));
    drop(node);
    assert!(!path.exists());
    assert!(matches!(ask(&path, PATIENCE), Err(AskError::Absent { .. })));
}

#[test]
fn a_node_that_was_not_told_to_has_none() {
    let node = Node::start(&config_for_test()).unwrap();
    assert!(!socket_of(&node).exists());
}

#[test]
fn what_a_killed_node_left_under_the_name_is_replaced_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_with_status();
    config.region_dir = dir.path().to_owned();
    config.region_name = Some("chiasm-named".into());
    let path = status_socket(&dir.path().join("chiasm-named"));

    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(ask(&path, PATIENCE), Err(AskError::Dead { .. })));
    let node = Node::start(&config).unwrap();
    assert_eq!(status_of(&node)["region"]["path"], node.region_path().to_str().unwrap());
    drop(node);

    std::fs::write(&path, "notes").unwrap();
    let node = Node::start(&config).unwrap();
    assert!(matches!(ask(&path, PATIENCE), Err(AskError::Foreign { .. })));
    drop(node);
    assert_eq!(std::fs::read(&path).unwrap(), b"notes", "the node has started without");

    let other = Node::start(&config_with_status()).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(socket_of(&other), &path).unwrap();
    drop(Node::start(&config).unwrap());
    assert_eq!(std::fs::read_link(&path).unwrap(), socket_of(&other));
    assert_eq!(status_of(&other)["format"], 1);
}

#[test]
fn a_name_that_is_too_long_for_a_socket_costs_the_status_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_with_status();
    config.region_dir = dir.path().to_owned();
    config.region_name = Some(format!("chiasm-{}", "x".repeat(150)));
    let node = Node::start(&config).unwrap();
    assert!(!socket_of(&node).exists());
    save_for_test(&node, "image", 16, 128);
}

#[test]
fn a_link_is_never_followed() {
    let node = Node::start(&config_with_status()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("chiasm-link.status");
    std::os::unix::fs::symlink(socket_of(&node), &link).unwrap();
    assert!(matches!(ask(&link, PATIENCE), Err(AskError::Foreign { .. })));
    assert_eq!(sockets(dir.path()).unwrap(), [""; 0].map(PathBuf::from));
}

#[test]
fn requests_that_are_none_are_told_so_or_closed() {
    let node = Node::start(&config_with_status()).unwrap();
    for request in [&b"STATUS\n"[..], b"\n", b"status\nstatus\n", b"\xFF\xFE\n", b"status \n"] {
        assert!(answer_to(&node, request).contains("there is one request"), "{request:?}");
    }
    for length in [64, 65, 100_000] {
        let mut request = vec![b'x'; length];
        request.push(b'\n');
        assert_eq!(answer_to(&node, &request), "", "{length} is too long for a request");
    }
    assert!(answer_to(&node, b"status\n").starts_with("{\"format\":1,"));
}

/// More clients than the node takes in, who ask nothing or never take their answer.
#[test]
fn clients_that_do_nothing_hold_nobody_up() {
    let producer = producer_with_status();
    let mut config = config_with_status();
    config.allowed = allow(&[producer.endpoint().unwrap()]);
    let consumer = Node::start(&config).unwrap();
    save_for_test(&producer, "image", 16, 128);
    let idle: Vec<UnixStream> = (0..12).map(|_| connect(&producer)).collect();
    let mut deaf: Vec<UnixStream> = (0..12).map(|_| connect(&consumer)).collect();
    for client in &mut deaf {
        // One that was not taken in is closed by now, perhaps.
        let _ = client.write_all(b"status\n");
    }
    fetch(&consumer, "image", producer.announce("image").unwrap()).unwrap();
    // Both are asked again when they have let go of those, at the latest at their deadline.
    drop(deaf);
    assert_eq!(status_of(&consumer)["reading"]["counters"]["arrived"], 1);
    for mut client in &idle {
        let mut said = Vec::new();
        client.read_to_end(&mut said).expect("who asks nothing is closed at the deadline");
        assert_eq!(said, b"", "and told nothing");
    }
    assert_eq!(status_of(&producer)["serving"]["counters"]["granted"], 1);
}
