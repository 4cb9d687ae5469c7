//! Another node's life, as the lock on its region tells it.

use std::fs;
use std::path::Path;

use chiasm_region::{NodeLife, Region, RegionError};

use crate::support::{NAME, no_spawns, options_for_test};

const EPOCH: u64 = 7;

fn node(dir: &Path) -> Region {
    let mut region = Region::create_or_attach(&options_for_test(dir)).unwrap();
    region.claim_node().unwrap();
    region
}

#[test]
fn it_is_over_when_the_node_lets_go_and_not_when_its_name_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let _alone = no_spawns();
    let region = node(dir.path());
    let life = NodeLife::watch(dir.path(), NAME, region.epoch()).unwrap();
    let worker = Region::attach(region.path()).unwrap();
    assert!(!life.is_over().unwrap());
    fs::remove_file(region.path()).unwrap();
    assert!(!life.is_over().unwrap(), "it still copies");
    drop(region);
    assert!(life.is_over().unwrap(), "a worker that has the region copies nothing");
    drop(worker);
}

#[test]
fn watching_keeps_nobody_from_anything() {
    let dir = tempfile::tempdir().unwrap();
    let _alone = no_spawns();
    let region = node(dir.path());
    let life = NodeLife::watch(dir.path(), NAME, region.epoch()).unwrap();
    drop(region);
    let next = node(dir.path());
    assert!(life.is_over().unwrap(), "another file, another life");
    drop(next);
}

#[test]
fn what_proves_nothing_is_not_watched() {
    let dir = tempfile::tempdir().unwrap();
    let _alone = no_spawns();
    let watch = |name: &str, epoch| NodeLife::watch(dir.path(), name, epoch).unwrap_err();
    assert!(matches!(watch(NAME, EPOCH), RegionError::Io { .. }), "there is none");
    assert!(matches!(watch("../chiasm-x", EPOCH), RegionError::InvalidName { .. }));
    let unclaimed = Region::create(&options_for_test(dir.path())).unwrap();
    let epoch = unclaimed.epoch();
    assert!(matches!(watch(NAME, epoch), RegionError::Stale { .. }), "no node");
    assert!(matches!(watch(NAME, epoch + 1), RegionError::OtherLife { .. }));
}
