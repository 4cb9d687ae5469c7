//! Reads from a region on this host, and what becomes of them when something is not as it should be.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chiasm_core::admission::Decision;
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::RemoteAnnouncement;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::{Endpoint, ListenAddress};
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::{Fault, Node, NodeConfig, StartError};
use rstest::rstest;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::child::Child;
use crate::fixtures::{
    allow, bytes_for_test, config_for_test, consumer_for_test, decide, fetch, item_for_test,
    producer_for_test, save_for_test, wait_until,
};

fn listening(mut config: NodeConfig) -> NodeConfig {
    config.listen = Some(ListenAddress::parse("127.0.0.1:0").unwrap());
    config
}

pub(crate) fn planes_used(node: &Node) -> Vec<Plane> {
    node.consumer_counters().bytes.keys().copied().collect()
}

/// Requests that went out.
fn asked(node: &Node) -> u64 {
    node.consumer_counters().requests
}

/// How often this process has the file mapped as a reader: its maker mapped it before it had a name.
pub(crate) fn mappings(region: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(region.to_str().unwrap())).count()
}

/// Where a node's thread stops between an ack and its read.
pub(crate) struct Gate(PathBuf);

impl Gate {
    /// Nobody stops before [`Gate::shut`].
    pub(crate) fn new(dir: &Path) -> Self {
        Self(dir.join("gate"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn shut(&self) {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &self.0, FileType::Fifo, mode, 0).unwrap();
    }

    /// Waits until the thread stands there; it goes on when the value is dropped.
    pub(crate) fn meet(&self) -> File {
        let pipe = File::options().write(true).open(&self.0).unwrap();
        // The next one passes.
        fs::remove_file(&self.0).unwrap();
        pipe
    }
}

/// S2: whatever stops a reader past its lease, and whatever its blocks are used for meanwhile.
#[rstest]
fn a_reader_stopped_past_its_lease_does_not_take_recycled_bytes(
    #[values(Plane::Shm, Plane::Tcp)] plane: Plane,
    #[values(true, false)] verify: bool,
) {
    let dir = tempfile::tempdir().unwrap();
    // The entry fills the region: whatever is saved next is in its blocks.
    let mut config = listening(NodeConfig::new(16 * 4096));
    config.lease = Duration::from_secs(2);
    config.verify = verify;
    let producer = Node::start(&config).unwrap();
    let gate = Gate::new(dir.path());
    let mut config = config_for_test();
    config.allowed = allow(&[producer.endpoint().unwrap()]);
    config.planes = PlaneList::from_iter([plane]);
    config.hold_read = Some(gate.0.clone());
    let consumer = Node::start(&config).unwrap();
    save_for_test(&producer, "first", 16, 1024);
    let offer = producer.announce("first").unwrap();
    gate.shut();
    begin(&consumer, "r", "first", offer);

    let stopped = gate.meet();
    assert_eq!(producer.live_grants(), 1);
    assert!(!producer.evict("first"), "under its lease nothing moves");
    wait_until(&producer, "the end of the lease", || producer.live_grants() == 0);
    assert!(producer.evict("first"));
    save_for_test(&producer, "second", 8, 2048);
    drop(stopped);

    // Nothing was taken for it, and a new attempt learns that it is gone.
    decide(&consumer, "r", 1);
    let words = consumer.report("r", |item| item.reason.map(chiasm_core::admission::Reason::word));
    assert_eq!(words, [Some("nack_missing")]);
    assert!(planes_used(&consumer).is_empty());
    let failed = consumer.consumer_counters().failed;
    let expected = match (plane, verify) {
        (Plane::Shm, true) => "digest",
        (Plane::Shm, false) => "lease",
        _ => "plane",
    };
    assert_eq!(failed.get(expected), Some(&1), "{failed:?}");
}

/// Under a digest even old bytes are right: a read that ends after the lease counts if it is proven.
#[rstest]
fn a_reader_stopped_past_its_lease_takes_bytes_that_are_proven(
    #[values(true, false)] verify: bool,
) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = listening(config_for_test());
    config.lease = Duration::from_secs(2);
    config.verify = verify;
    let producer = Node::start(&config).unwrap();
    let gate = Gate::new(dir.path());
    let mut config = config_for_test();
    config.allowed = allow(&[producer.endpoint().unwrap()]);
    config.hold_read = Some(gate.0.clone());
    let consumer = Node::start(&config).unwrap();
    let bytes = save_for_test(&producer, "image", 16, 1024);
    let offer = producer.announce("image").unwrap();
    gate.shut();
    begin(&consumer, "image", "image", offer);
    let stopped = gate.meet();
    wait_until(&producer, "the end of the lease", || producer.live_grants() == 0);
    drop(stopped);
    assert!(fetch_tracked(&consumer, "image") == bytes);
    // Without a digest it took another attempt, under a lease of its own.
    assert_eq!(asked(&consumer), if verify { 1 } else { 2 });
    assert_eq!(consumer.consumer_counters().failed.get("lease"), (!verify).then_some(&1));
}

/// Asks for one item and does not wait for it.
pub(crate) fn begin(node: &Node, id: &str, hash: &str, offer: RemoteAnnouncement) {
    node.track(id, vec![item_for_test(hash, offer)]).unwrap();
    assert_eq!(node.ensure(id, 1, 0), Some(Decision::Wait));
}

/// The bytes of a request of one item that was tracked before.
pub(crate) fn fetch_tracked(node: &Node, hash: &str) -> Vec<u8> {
    decide(node, hash, 1);
    let loaded = node.load(hash).expect("it is ready");
    let mut bytes = vec![0; usize::try_from(loaded.meta().bytes).unwrap()];
    loaded.read(0, &mut bytes).unwrap();
    bytes
}

/// Each lie costs one attempt, at once and over tcp, and is remembered.
#[rstest]
#[case(Fault::WrongRegion)]
#[case(Fault::WrongLife)]
#[case(Fault::WildExtents)]
fn a_region_that_is_not_what_was_said_is_read_over_tcp(#[case] fault: Fault) {
    let mut config = listening(config_for_test());
    config.fault = Some(fault);
    let producer = Node::start(&config).unwrap();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    for (index, name) in (0..).zip(["one", "two", "three"]) {
        let bytes = save_for_test(&producer, name, 16, 128);
        assert!(fetch(&consumer, name, producer.announce(name).unwrap()) == Ok(bytes));
        // `wrong-life` says another life on shm than on tcp, so it looks like a new producer each time.
        let expected = if fault == Fault::WrongLife { 2 * (index + 1) } else { 2 + index };
        assert_eq!(asked(&consumer), expected);
        assert_eq!(consumer.usage().quarantined, 0);
    }
    assert_eq!(planes_used(&consumer), [Plane::Tcp]);
    wait_until(&producer, "nothing is pinned", || producer.live_grants() == 0);
    assert_eq!(producer.producer_counters().expired, 0);
    assert_eq!(mappings(producer.region_path()), 0);
}

#[test]
fn a_region_that_others_may_open_is_read_over_tcp_for_the_rest_of_that_life() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    fs::set_permissions(producer.region_path(), Permissions::from_mode(0o644)).unwrap();
    let bytes = save_for_test(&producer, "one", 16, 128);
    assert!(fetch(&consumer, "one", producer.announce("one").unwrap()) == Ok(bytes));
    fs::set_permissions(producer.region_path(), Permissions::from_mode(0o600)).unwrap();
    let bytes = save_for_test(&producer, "two", 16, 128);
    assert!(fetch(&consumer, "two", producer.announce("two").unwrap()) == Ok(bytes));
    assert_eq!((asked(&consumer), planes_used(&consumer)), (3, vec![Plane::Tcp]));
    // Another life of it starts anew.
    let endpoint = producer.endpoint().unwrap().to_string();
    drop(producer);
    let mut config = config_for_test();
    config.listen = Some(ListenAddress::parse(&endpoint).unwrap());
    let producer = Node::start(&config).unwrap();
    for (name, plane) in [("three", Plane::Tcp), ("four", Plane::Shm)] {
        let bytes = save_for_test(&producer, name, 16, 128);
        let before = consumer.consumer_counters().bytes.get(&plane).copied().unwrap_or(0);
        assert!(fetch(&consumer, name, producer.announce(name).unwrap()) == Ok(bytes), "{name}");
        assert!(consumer.consumer_counters().bytes.get(&plane) > Some(&before), "{name}");
    }
}

#[test]
fn regions_in_another_directory_are_not_even_tried() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = listening(config_for_test());
    config.region_dir = dir.path().to_owned();
    let producer = Node::start(&config).unwrap();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    let bytes = save_for_test(&producer, "image", 16, 128);
    assert!(fetch(&consumer, "image", producer.announce("image").unwrap()) == Ok(bytes));
    assert_eq!((asked(&consumer), planes_used(&consumer)), (1, vec![Plane::Tcp]));
}

#[test]
fn without_another_plane_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = listening(config_for_test());
    config.region_dir = dir.path().to_owned();
    let producer = Node::start(&config).unwrap();
    let elsewhere = producer_for_test();
    for (producer, hidden) in [(&producer, false), (&elsewhere, true)] {
        save_for_test(producer, "image", 16, 128);
        let mut config = config_for_test();
        config.allowed = allow(&[producer.endpoint().unwrap()]);
        config.planes = PlaneList::from_iter([Plane::Shm]);
        let consumer = Node::start(&config).unwrap();
        if hidden {
            fs::set_permissions(producer.region_path(), Permissions::from_mode(0o644)).unwrap();
        }
        let offer = producer.announce("image").unwrap();
        assert_eq!(fetch(&consumer, "image", offer), Err("no_plane"));
        assert_eq!(consumer.usage().free, crate::fixtures::BLOCKS);
    }
}

#[test]
fn a_producer_that_is_not_allowed_any_more_is_unmapped() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    save_for_test(&producer, "image", 16, 128);
    fetch(&consumer, "image", producer.announce("image").unwrap()).unwrap();
    assert_eq!(mappings(producer.region_path()), 1);
    consumer.set_allowlist(Allowlist::default());
    let region = producer.region_path();
    wait_until(&consumer, "the region is unmapped", || mappings(region) == 0);
}

#[test]
fn a_producer_that_has_ended_is_unmapped() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    save_for_test(&producer, "image", 16, 128);
    fetch(&consumer, "image", producer.announce("image").unwrap()).unwrap();
    let region = producer.region_path().to_owned();
    drop(producer);
    wait_until(&consumer, "the region is unmapped", || mappings(&region) == 0);
}

/// Large and small ones together, more than one turn each, into scattered blocks.
#[test]
fn many_reads_take_turns_and_all_arrive() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    for rows in (0..64).step_by(2) {
        save_for_test(&consumer, &format!("local{rows}"), 1, 1024);
        save_for_test(&consumer, &format!("hole{rows}"), 30, 1024);
    }
    for rows in (0..64).step_by(2) {
        assert!(consumer.evict(&format!("hole{rows}")));
    }
    let shapes = [(900, 1024), (1, 1), (250, 1024), (63, 999), (900, 1000), (7, 13)];
    let entries: Vec<_> = (0..)
        .zip(shapes)
        .map(|(index, (rows, width))| {
            let name = format!("image{index}");
            let bytes = save_for_test(&producer, &name, rows, width);
            (name, bytes)
        })
        .collect();
    for (name, _) in &entries {
        let offer = producer.announce(name).unwrap();
        begin(&consumer, name, name, offer);
    }
    for (name, bytes) in &entries {
        assert!(fetch_tracked(&consumer, name) == *bytes, "{name}");
    }
    assert_eq!(planes_used(&consumer), [Plane::Shm]);
}

#[test]
fn a_thousand_reads_leave_nothing_pinned() {
    let producer = producer_for_test();
    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    let bytes = save_for_test(&producer, "image", 2, 128);
    let offer = producer.announce("image").unwrap();
    for _ in 0..1000 {
        assert!(fetch(&consumer, "image", offer.clone()).as_ref() == Ok(&bytes));
        assert!(consumer.evict("image"));
    }
    wait_until(&producer, "every grant has ended", || producer.live_grants() == 0);
    let counters = producer.producer_counters();
    assert_eq!((counters.granted, counters.done), (1000, 1000));
    assert_eq!((counters.expired, counters.stray_dones, counters.malformed), (0, 0, 0));
    assert_eq!(producer.usage().pinned_entries, 0);
}

/// Its pages outlive it: what was granted is still there, and its digest says so.
#[test]
fn a_producer_killed_between_its_ack_and_the_copy_costs_no_wrong_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::serve(&["one", "two"]);
    let gate = Gate::new(dir.path());
    let mut config = config_for_test();
    config.allowed = allow(&[&child.endpoint]);
    config.hold_read = Some(gate.0.clone());
    config.planes = PlaneList::from_iter([Plane::Shm]);
    let consumer = Node::start(&config).unwrap();
    assert!(fetch(&consumer, "one", child.offer()) == Ok(Child::bytes("one")));
    gate.shut();
    begin(&consumer, "two", "two", child.offer());
    let stopped = gate.meet();
    child.kill();
    drop(stopped);
    assert!(fetch_tracked(&consumer, "two") == Child::bytes("two"));
    assert_eq!(asked(&consumer), 2);
}

/// S8: the lock of a dead reader's region is free, so its grant ends long before its lease.
#[test]
fn the_grant_of_a_killed_reader_ends_with_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Gate::new(dir.path());
    gate.shut();
    let producer = serve(&["one".to_owned()]);
    let mut reader = Child::read("one", producer.endpoint().unwrap(), &gate.0);
    let stopped = gate.meet();
    assert_eq!((producer.live_grants(), producer.usage().pinned_entries), (1, 1));
    reader.kill().unwrap();
    reader.wait().unwrap();
    drop(stopped);
    wait_until(&producer, "no grant is left", || producer.live_grants() == 0);
    let counters = producer.producer_counters();
    assert_eq!((counters.lost, counters.expired, counters.done), (1, 0, 0));
    assert_eq!(producer.usage().pinned_entries, 0);
}

/// What a child process serves under a hash: the shape is the same for all, the bytes are not.
pub(crate) fn shape_for_child() -> EntryMeta {
    EntryMeta::new(100, 1024, Dtype::Float32).unwrap()
}

pub(crate) fn serve(hashes: &[String]) -> Node {
    let node = Node::start(&listening(config_for_test())).unwrap();
    for hash in hashes {
        let mut saving = node.reserve(&MmHash::new(hash).unwrap(), shape_for_child()).unwrap();
        saving.write(&Child::bytes(hash)).unwrap();
        saving.finish().unwrap();
    }
    node
}

/// A node that has asked for this entry of another process and stops before it reads it.
pub(crate) fn read(hash: &str, from: Endpoint, gate: PathBuf) -> Node {
    let mut config = config_for_test();
    config.allowed = allow(&[&from]);
    config.planes = PlaneList::from_iter([Plane::Shm]);
    config.hold_read = Some(gate);
    let node = Node::start(&config).unwrap();
    begin(&node, hash, hash, offer(from));
    node
}

fn offer(source: Endpoint) -> RemoteAnnouncement {
    RemoteAnnouncement::of_entry(source, &shape_for_child(), 4096).unwrap()
}

impl Child {
    pub(crate) fn bytes(hash: &str) -> Vec<u8> {
        let seed = hash.bytes().map(u64::from).sum();
        bytes_for_test(shape_for_child().bytes, seed)
    }

    fn offer(&self) -> RemoteAnnouncement {
        offer(self.endpoint.clone())
    }
}

#[test]
fn a_node_does_not_start_without_a_plane_that_is_required() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config_for_test();
    config.region_dir = dir.path().to_owned();
    config.planes = PlaneList::from_iter([Plane::Shm, Plane::Tcp]);
    config.required_planes = PlaneList::from_iter([Plane::Shm]);
    drop(Node::start(&config).unwrap());
    // This fault takes shm away, as a machine without it would.
    config.fault = Some(Fault::SlowBytes);
    let error = Node::start(&config).unwrap_err();
    assert!(matches!(error, StartError::NoPlane { plane: Plane::Shm, .. }), "{error}");
    assert!(error.to_string().contains("ec_planes"), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
    config.required_planes = PlaneList::EMPTY;
    drop(Node::start(&config).unwrap());
}
