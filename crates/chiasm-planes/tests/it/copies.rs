//! The copies of the shm plane: slices, turns, ends.

use std::path::Path;
use std::sync::Arc;

use chiasm_core::consumer::{FailureReason, ReadEnd, TransferId};
use chiasm_core::extent::Extent;
use chiasm_planes::shm::{Copier, CopyJob, SLICE_BYTES};
use chiasm_region::{PeerRegion, Region, RegionOptions, digest_of};

const BLOCK: u64 = 4096;
const EPOCH: u64 = 3;

fn region(dir: &Path, name: &str, blocks: u32) -> Region {
    let dir = dir.to_owned();
    let options = RegionOptions { dir, epoch: EPOCH, ..RegionOptions::new(name, blocks, BLOCK) };
    Region::create(&options).unwrap()
}

fn extents(first: u32, count: u32) -> Vec<Extent> {
    Extent::new(first, count).into_iter().collect()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at * 7 + at / 4096 + seed) % 251).unwrap()).collect()
}

fn job(transfer: u64, peer: &Arc<PeerRegion>, first: u32, count: u32, bytes: u64) -> CopyJob {
    CopyJob {
        transfer: TransferId(transfer),
        peer: Arc::clone(peer),
        remote: extents(first, count),
        local: extents(first, count),
        bytes,
        digest: true,
    }
}

struct World {
    _dir: tempfile::TempDir,
    theirs: Region,
    own: Region,
    peer: Arc<PeerRegion>,
}

fn world(blocks: u32) -> World {
    let dir = tempfile::tempdir().unwrap();
    let theirs = region(dir.path(), "chiasm-theirs", blocks);
    let own = region(dir.path(), "chiasm-own", blocks);
    let peer = PeerRegion::attach(dir.path(), "chiasm-theirs", EPOCH, BLOCK).unwrap();
    World { _dir: dir, theirs, own, peer: Arc::new(peer) }
}

#[test]
fn a_small_read_does_not_wait_for_a_large_one() {
    let world = world(2000);
    let large = pattern(1900 * 4096, 1);
    let small = pattern(3 * 4096 - 5, 2);
    world.theirs.copy_in(&extents(0, 1900), 0, &large).unwrap();
    world.theirs.copy_in(&extents(1950, 3), 0, &small).unwrap();
    let mut copier = Copier::new();
    copier.start(job(1, &world.peer, 0, 1900, large.len() as u64)).unwrap();
    copier.start(job(2, &world.peer, 1950, 3, small.len() as u64)).unwrap();
    copier.progress(&world.own);
    let landed = |bytes: &[u8]| ReadEnd::Landed {
        bytes: bytes.len() as u64,
        digest: Some(digest_of(bytes)),
    };
    assert_eq!(copier.take_ended(), [(TransferId(2), landed(&small))]);
    let mut slices = 1;
    while !copier.is_idle() {
        copier.progress(&world.own);
        slices += 1;
    }
    assert_eq!(copier.take_ended(), [(TransferId(1), landed(&large))]);
    assert_eq!(slices, (large.len() + small.len()).div_ceil(SLICE_BYTES), "full slices");
    let mut seen = vec![0; large.len()];
    world.own.copy_out(&extents(0, 1900), 0, &mut seen).unwrap();
    assert!(seen == large);
}

#[test]
fn nothing_is_written_after_an_abort() {
    let world = world(1000);
    world.theirs.copy_in(&extents(0, 1000), 0, &vec![9; 1000 * 4096]).unwrap();
    let mut copier = Copier::new();
    copier.start(job(1, &world.peer, 0, 1000, 1000 * BLOCK)).unwrap();
    copier.progress(&world.own);
    world.own.copy_in(&extents(0, 1000), 0, &vec![0; 1000 * 4096]).unwrap();
    copier.abort(TransferId(1));
    copier.abort(TransferId(1));
    let aborted = ReadEnd::Failed(FailureReason::Plane("aborted".into()));
    assert_eq!(copier.take_ended(), [(TransferId(1), aborted)]);
    copier.progress(&world.own);
    assert!(copier.is_idle());
    let mut seen = vec![1; 1000 * 4096];
    world.own.copy_out(&extents(0, 1000), 0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
}

#[test]
fn extents_outside_the_producers_region_start_nothing() {
    let world = world(10);
    let mut copier = Copier::new();
    for (first, count, bytes) in [(5, 6, 1), (10, 1, 0), (0, 2, 2 * BLOCK + 1)] {
        assert!(copier.start(job(1, &world.peer, first, count, bytes)).is_err());
    }
    assert!(copier.is_idle());
    assert_eq!(copier.take_ended(), []);
}

#[test]
fn an_entry_of_no_bytes_lands() {
    let world = world(10);
    let mut copier = Copier::new();
    copier
        .start(CopyJob { remote: vec![], local: vec![], ..job(1, &world.peer, 0, 1, 0) })
        .unwrap();
    copier.progress(&world.own);
    let end = ReadEnd::Landed { bytes: 0, digest: Some(digest_of(&[])) };
    assert_eq!(copier.take_ended(), [(TransferId(1), end)]);
}

/// Digests use the memory of earlier ones, and nothing but the memory.
#[test]
fn one_entry_after_the_other_has_its_own_digest() {
    let world = world(100);
    let mut copier = Copier::new();
    for round in 0..40 {
        let bytes = pattern(50 * 4096, round);
        world.theirs.copy_in(&extents(0, 50), 0, &bytes).unwrap();
        copier.start(job(1, &world.peer, 0, 50, bytes.len() as u64)).unwrap();
        if round % 7 == 3 {
            copier.abort(TransferId(1));
            copier.take_ended();
            continue;
        }
        while !copier.is_idle() {
            copier.progress(&world.own);
        }
        let digest = Some(digest_of(&bytes));
        let end = ReadEnd::Landed { bytes: bytes.len() as u64, digest };
        assert_eq!(copier.take_ended(), [(TransferId(1), end)]);
    }
}
