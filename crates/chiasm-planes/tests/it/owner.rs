//! A region is read for the producer that it belongs to, and for nobody else.

use chiasm_core::consumer::RemoteRegion;
use chiasm_core::endpoint::Endpoint;
use chiasm_planes::shm::{Neighbours, NotHere};
use chiasm_region::{Region, RegionOptions};

const BLOCK: u64 = 4096;

fn region_for_test(dir: &std::path::Path, epoch: u64) -> Region {
    let mut options = RegionOptions::new("chiasm-owner", 4, BLOCK);
    dir.clone_into(&mut options.dir);
    options.epoch = epoch;
    Region::create(&options).unwrap()
}

fn named(region: &Region) -> RemoteRegion {
    let name = region.path().file_name().unwrap().to_str().unwrap().to_owned();
    RemoteRegion { name, epoch: region.epoch(), extents: Vec::new() }
}

#[test]
fn another_producers_region_is_not_read_as_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let owner: Endpoint = "127.0.0.1:5601".parse().unwrap();
    let other: Endpoint = "127.0.0.1:5602".parse().unwrap();
    let region = region_for_test(dir.path(), 7);
    region.note_serving(owner.mark());
    let mut neighbours = Neighbours::new(dir.path(), BLOCK);

    let refused = neighbours.region(&other, &named(&region));
    let Err(NotHere::New(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("serves elsewhere"), "{why}");
    assert_eq!(neighbours.mapped(), 0);
    assert!(neighbours.region(&owner, &named(&region)).is_ok());
}

#[test]
fn a_region_whose_node_serves_nowhere_is_read_by_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path(), 7);
    let mut neighbours = Neighbours::new(dir.path(), BLOCK);
    let endpoint: Endpoint = "127.0.0.1:5601".parse().unwrap();
    assert!(neighbours.region(&endpoint, &named(&region)).is_err());
}
