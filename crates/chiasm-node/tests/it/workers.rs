//! A node and its workers: orders, reports, and the death of either at each stage.

use std::fs;
use std::path::Path;
use std::time::Duration;

use chiasm_core::dispatch::{DispatchError, Order, Outcome, Rank, RankSet};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_node::{Node, StartError};
use chiasm_region::{RegionError, Worker, digest_of};
use rustix::process::Signal;

use crate::fixtures::{
    BLOCKS, allow, consumer_for_test, decide, fetch, item_for_test, producer_for_test, wait_until,
};
use crate::puppet::{Puppet, bytes_of, config, options, order};

const NAME: &str = "chiasm-workers";

/// 16 blocks.
pub(crate) fn meta() -> EntryMeta {
    EntryMeta::new(16, 1024, Dtype::Float32).unwrap()
}

fn rank(number: u16) -> Rank {
    Rank::new(number).unwrap()
}

fn node_for_test(dir: &Path) -> Node {
    Node::start(&config(dir, NAME)).unwrap()
}

fn worker_for_test(node: &Node, number: u16) -> Worker {
    let path = node.region_path();
    let name = path.file_name().unwrap().to_str().unwrap();
    Worker::attach(&options(path.parent().unwrap(), name), rank(number)).unwrap()
}

fn dispatch(node: &Node, hash: &str, by: u16) -> Order {
    node.dispatch_save(&MmHash::new(hash).unwrap(), meta(), rank(by)).unwrap()
}

fn saves(worker: &mut Worker, order: &Order) {
    let digest = worker.copy_in(order, &bytes_of(order)).unwrap();
    worker.complete(order.receipt(), Outcome::Done(Some(digest))).unwrap();
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_a_worker_saves_is_served_and_what_was_read_is_loaded_by_every_rank() {
    let producer = producer_for_test();
    let mut saver = worker_for_test(&producer, 0);
    let save = dispatch(&producer, "image", 0);
    saves(&mut saver, &save);
    wait_until(&producer, "saved", || producer.outstanding().is_empty());
    let offer = producer.announce("image").unwrap();

    let consumer = consumer_for_test(&[producer.endpoint().unwrap()]);
    let mut loaders: Vec<_> = (0..3).map(|rank| worker_for_test(&consumer, rank)).collect();
    consumer.track("request", vec![item_for_test("image", offer)]).unwrap();
    decide(&consumer, "request", 1);
    let load = consumer.dispatch_load("image", RankSet::first(3).unwrap()).unwrap();
    consumer.finish("request");
    assert!(!consumer.evict("image"), "the load keeps it");
    for loader in &mut loaders {
        let mut bytes = vec![0; usize::try_from(load.meta.bytes).unwrap()];
        loader.copy_out(&load, &mut bytes).unwrap();
        assert!(bytes == bytes_of(&save));
        loader.complete(load.receipt(), Outcome::Done(None)).unwrap();
    }
    wait_until(&consumer, "loaded", || consumer.outstanding().is_empty());
    assert!(consumer.evict("image"));
    assert_eq!(consumer.usage().free, BLOCKS);
}

#[test]
fn a_sleeping_node_hears_of_every_report() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), NAME);
    config.save_timeout = Duration::from_secs(40);
    let node = Node::start(&config).unwrap();
    let mut worker = worker_for_test(&node, 0);
    assert_eq!(names(dir.path()), [NAME, "chiasm-workers.wake"]);
    // While another order is out, a dispatch wakes nobody: only the report does. At the tick alone all
    // of them would take 250 s, and this order would be lost meanwhile.
    let _idle = worker_for_test(&node, 1);
    dispatch(&node, "out", 1);
    for round in 0..1000 {
        let order = dispatch(&node, &round.to_string(), 0);
        let outcome = Outcome::Failed;
        worker.complete(order.receipt(), outcome).unwrap();
        wait_until(&node, "reported", || node.outstanding().saves == 1);
    }
    assert_eq!(node.dispatch_counters().failed_saves, 1000);
    assert_eq!(node.dispatch_counters().lost_saves, 0);
    assert_eq!(node.usage().free, BLOCKS - 16);
}

#[test]
fn a_node_that_cannot_be_woken_hears_of_reports_at_its_tick() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("chiasm-{}", "n".repeat(150));
    let node = Node::start(&config(dir.path(), &name)).unwrap();
    let mut worker = worker_for_test(&node, 0);
    assert_eq!(names(dir.path()), [name.as_str()], "longer than a socket's address can be");
    let order = dispatch(&node, "image", 0);
    saves(&mut worker, &order);
    wait_until(&node, "saved", || node.dispatch_counters().saved == 1);
}

#[test]
fn nothing_is_dispatched_to_a_rank_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_for_test(dir.path());
    let hash = MmHash::new("image").unwrap();
    let refused = |by| node.dispatch_save(&hash, meta(), rank(by)).unwrap_err();
    assert_eq!(refused(0), DispatchError::NoWorker(rank(0)));
    let _worker = worker_for_test(&node, 1);
    assert_eq!(refused(0), DispatchError::NoWorker(rank(0)));
    node.dispatch_save(&hash, meta(), rank(1)).unwrap();
    let refused = node.dispatch_load("image", rank(1).into()).unwrap_err();
    assert_eq!(refused, DispatchError::NotPromised, "no request was told that it may load it");
}

#[test]
fn a_worker_that_is_killed_at_any_stage_leaves_the_books_right() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), NAME);
    config.quarantine = Duration::from_secs(5);
    let node = Node::start(&config).unwrap();
    let stages = [Some("take"), Some("half"), Some("copy"), Some("save"), None];
    let mut orders = Vec::new();
    for (number, stage) in (0..).zip(stages) {
        let mut worker = Puppet::worker(dir.path(), NAME, number);
        let order = dispatch(&node, &format!("image {number}"), number);
        if let Some(stage) = stage {
            worker.does(stage, &order);
        }
        worker.kill();
        orders.push(order);
    }
    // What was reported before the death counts; of the rest no byte is ever seen.
    wait_until(&node, "all are over or lost", || node.outstanding().saves == 0);
    let counters = node.dispatch_counters();
    assert_eq!((counters.saved, counters.lost_saves), (1, 4));
    let usage = node.usage();
    assert_eq!((usage.quarantined, usage.live), (4 * 16, 16));
    // A hash that was lost can be saved anew, by the next process of that rank.
    let mut next = Puppet::worker(dir.path(), NAME, 0);
    let again = dispatch(&node, "image 0", 0);
    assert!(again.extents.iter().all(|new| {
        orders[0].extents.iter().all(|old| new.end() <= old.first() || old.end() <= new.first())
    }));
    next.does("save", &again);
    wait_until(&node, "the lost blocks are free", || node.usage().quarantined == 0);
    wait_until(&node, "saved anew", || node.dispatch_counters().saved == 2);
    assert_eq!(node.usage().free, BLOCKS - 2 * 16);
    next.end();
}

#[test]
fn a_successor_is_not_taken_for_the_dead_worker_that_has_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_for_test(dir.path());
    let worker = Puppet::worker(dir.path(), NAME, 3);
    dispatch(&node, "lost", 3);
    worker.kill();
    // The rank is alive again before the node has looked.
    let mut next = Puppet::worker(dir.path(), NAME, 3);
    let order = dispatch(&node, "image", 3);
    assert_eq!(node.dispatch_counters().lost_saves, 1);
    next.does("save", &order);
    wait_until(&node, "saved", || node.dispatch_counters().saved == 1);
    next.end();
}

#[test]
fn a_rank_that_dies_while_it_loads_no_longer_keeps_the_entry() {
    let dir = tempfile::tempdir().unwrap();
    let node = node_for_test(dir.path());
    let mut workers: Vec<_> =
        (0..2).map(|number| Puppet::worker(dir.path(), NAME, number)).collect();
    let save = dispatch(&node, "image", 0);
    workers[0].does("save", &save);
    wait_until(&node, "saved", || node.outstanding().is_empty());
    let offer = crate::fixtures::item_for_local_test("image");
    node.track("request", vec![offer]).unwrap();
    decide(&node, "request", 1);
    let load = node.dispatch_load("image", RankSet::first(2).unwrap()).unwrap();
    node.finish("request");
    assert_eq!(workers[0].does("load", &load), digest_of(&bytes_of(&save)).to_string());
    assert!(!node.evict("image"));
    workers.pop().unwrap().kill();
    wait_until(&node, "over", || node.outstanding().is_empty());
    assert!(node.evict("image"));
    assert_eq!(node.usage().free, BLOCKS);
}

#[test]
fn a_worker_that_is_stopped_past_its_time_gets_its_blocks_back_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path(), NAME);
    config.save_timeout = Duration::from_millis(300);
    let node = Node::start(&config).unwrap();
    let mut stuck = Puppet::worker(dir.path(), NAME, 0);
    let mut other = Puppet::worker(dir.path(), NAME, 1);
    let lost = dispatch(&node, "image", 0);
    stuck.does("half", &lost);
    stuck.signal(Signal::STOP);
    wait_until(&node, "lost", || node.outstanding().lost_saves == 1);
    assert_eq!(node.usage().quarantined, 16);

    // The hash and everything else goes on without it.
    let again = dispatch(&node, "image", 1);
    other.does("save", &again);
    wait_until(&node, "saved by another", || node.dispatch_counters().saved == 1);
    assert_eq!(node.usage().quarantined, 16, "a late copy may still land");

    stuck.signal(Signal::CONT);
    stuck.does("save", &lost);
    wait_until(&node, "the late report", || node.usage().quarantined == 0);
    assert_eq!(node.dispatch_counters().late_reports, 1);
    // The late bytes went nowhere near the entry that has the name.
    node.track("request", vec![crate::fixtures::item_for_local_test("image")]).unwrap();
    decide(&node, "request", 1);
    let mut bytes = vec![0; 16 * 4096];
    node.load("image").unwrap().read(0, &mut bytes).unwrap();
    assert!(bytes == bytes_of(&again));
    stuck.end();
    other.end();
}

#[test]
fn reports_wait_for_a_node_that_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Puppet::node(dir.path(), NAME);
    let mut worker = Worker::attach(&options(dir.path(), NAME), rank(0)).unwrap();
    let mut orders = Vec::new();
    for number in 0..20 {
        node.told(&format!("order image{number} 0"));
        orders.push(order(&node.hear()));
    }
    node.signal(Signal::STOP);
    for order in &orders {
        saves(&mut worker, order);
    }
    node.signal(Signal::CONT);
    node.told("saved 20");
    assert_eq!(node.hear(), "saved");
    node.end();
    drop(worker);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_killed_node_leaves_a_region_that_the_next_start_removes_once_its_workers_are_gone() {
    for with_orders in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut node = Puppet::node(dir.path(), NAME);
        let mut worker = Puppet::worker(dir.path(), NAME, 0);
        let order = with_orders.then(|| {
            node.told("order image 0");
            order(&node.hear())
        });
        node.kill();
        // Its worker is alone and harms nobody.
        if let Some(order) = &order {
            worker.does("save", order);
        }
        let refused = Node::start(&config(dir.path(), NAME));
        assert!(matches!(refused, Err(StartError::Region(RegionError::Live { .. }))));
        // Both are killed now, the worker with its name still in the directory.
        worker.kill();
        assert!(names(dir.path()).contains(&NAME.to_owned()));

        let node = node_for_test(dir.path());
        assert_eq!(node.usage().free, BLOCKS);
        let mut next = worker_for_test(&node, 0);
        let order = dispatch(&node, "image", 0);
        saves(&mut next, &order);
        wait_until(&node, "saved", || node.dispatch_counters().saved == 1);
        assert_eq!(node.dispatch_counters().ignored_reports, 0, "nothing of the old life");
        drop((next, node));
        assert!(names(dir.path()).is_empty());
    }
}

#[test]
fn a_node_joins_the_region_that_its_worker_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let mut worker = Puppet::worker(dir.path(), NAME, 0);
    let mut served = config(dir.path(), NAME);
    served.listen = Some(chiasm_core::endpoint::ListenAddress::parse("127.0.0.1:0").unwrap());
    let node = Node::start(&served).unwrap();
    let order = dispatch(&node, "image", 0);
    worker.does("save", &order);
    wait_until(&node, "saved", || node.outstanding().is_empty());
    // Its peers know this life by the epoch that the worker has drawn.
    let mut reads = config(dir.path(), "chiasm-reader");
    reads.allowed = allow(&[node.endpoint().unwrap()]);
    let consumer = Node::start(&reads).unwrap();
    let landed = fetch(&consumer, "image", node.announce("image").unwrap());
    assert!(landed == Ok(bytes_of(&order)));
    let planes: Vec<Plane> = consumer.consumer_counters().bytes.keys().copied().collect();
    assert_eq!(planes, [Plane::Shm], "a peer maps the region of one life only");
    drop((node, consumer));
    assert!(names(dir.path()).is_empty(), "the node removes it for all");
    worker.end();
    assert!(names(dir.path()).is_empty());

    let _worker = Puppet::worker(dir.path(), NAME, 0);
    let mut other = config(dir.path(), NAME);
    other.region_bytes += 4096;
    let refused = Node::start(&other).unwrap_err();
    assert!(refused.to_string().contains("same ec_cpu_bytes"), "{refused}");
}
