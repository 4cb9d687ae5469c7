//! Which producers' regions are mapped, and for how long.

use std::path::Path;
use std::sync::Arc;

use chiasm_core::consumer::RemoteRegion;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::extent::Extent;
use chiasm_planes::shm::{MAX_MAPPED, Neighbours, NotHere};
use chiasm_region::{Region, RegionOptions};

const BLOCK: u64 = 4096;
const EPOCH: u64 = 3;

/// The region of a node that serves at this endpoint.
fn region(dir: &Path, name: &str, serves: &Endpoint) -> Region {
    let dir = dir.to_owned();
    let options = RegionOptions { dir, epoch: EPOCH, ..RegionOptions::new(name, 10, BLOCK) };
    let region = Region::create(&options).unwrap();
    region.note_serving(serves.mark());
    region
}

fn endpoint(index: usize) -> Endpoint {
    Endpoint::parse(&format!("10.0.0.1:{}", 5000 + index)).unwrap()
}

fn remote(name: &str, epoch: u64) -> RemoteRegion {
    RemoteRegion { name: name.into(), epoch, extents: Extent::new(0, 1).into_iter().collect() }
}

#[test]
fn a_region_is_mapped_once_and_anew_for_another_life() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = region(dir.path(), "chiasm-theirs", &endpoint(0));
    let mut neighbours = Neighbours::new(dir.path(), BLOCK);
    let first = neighbours.region(&endpoint(0), &remote("chiasm-theirs", EPOCH)).unwrap();
    let again = neighbours.region(&endpoint(0), &remote("chiasm-theirs", EPOCH)).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    let other = neighbours.region(&endpoint(0), &remote("chiasm-theirs", EPOCH + 1));
    assert!(matches!(other, Err(NotHere::New(_))));
    assert_eq!(neighbours.mapped(), 0, "that of the old life is left");
    let known = neighbours.region(&endpoint(0), &remote("chiasm-theirs", EPOCH + 1));
    assert_eq!(known.unwrap_err(), NotHere::Known);
    assert!(neighbours.region(&endpoint(0), &remote("chiasm-theirs", EPOCH)).is_ok());
    drop(theirs);
    let gone = neighbours.region(&endpoint(1), &remote("chiasm-theirs", EPOCH));
    assert!(matches!(gone, Err(NotHere::New(_))));
}

#[test]
fn as_many_are_kept_mapped_as_may_be_and_idle_ones_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let regions: Vec<Region> = (0..MAX_MAPPED + 2)
        .map(|index| region(dir.path(), &format!("chiasm-{index}"), &endpoint(index)))
        .collect();
    let mut neighbours = Neighbours::new(dir.path(), BLOCK);
    let mut attach = |index: usize| {
        neighbours.region(&endpoint(index), &remote(&format!("chiasm-{index}"), EPOCH)).unwrap()
    };
    let oldest = attach(0);
    let second = Arc::downgrade(&attach(1));
    for index in 2..MAX_MAPPED {
        attach(index);
    }
    assert!(second.upgrade().is_some());
    attach(MAX_MAPPED);
    assert!(second.upgrade().is_none(), "the oldest that nobody reads from");
    assert!(Arc::ptr_eq(&oldest, &attach(0)));
    assert_eq!(neighbours.mapped(), MAX_MAPPED);
    // All of them in use: the table stays bounded, the mapping lives as long as its read.
    let held: Vec<_> = (0..MAX_MAPPED + 2)
        .filter(|index| *index != 1)
        .map(|index| {
            neighbours.region(&endpoint(index), &remote(&format!("chiasm-{index}"), EPOCH)).unwrap()
        })
        .collect();
    assert_eq!((neighbours.mapped(), held.len()), (MAX_MAPPED, MAX_MAPPED + 1));
    while neighbours.populate() {}
    drop(regions);
}
