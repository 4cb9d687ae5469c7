//! The processes of one instance, in any order, and the file that they share (S9).

use std::fs;
use std::sync::Barrier;

use chiasm_region::{Region, RegionError, RegionOptions, reclaim_stale};

use crate::child::Child;
use crate::support::{NAME, extent, no_spawns, options_for_test, pattern, traces};

fn join(options: &RegionOptions) -> Region {
    Region::create_or_attach(options).unwrap()
}

fn names(dir: &std::path::Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn the_first_makes_it_the_others_attach_and_the_last_removes_it() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let dir = tempfile::tempdir().unwrap();
        let options = RegionOptions { epoch: 0, ..options_for_test(dir.path()) };
        let _alone = no_spawns();
        let before = traces(dir.path());
        let mut regions: Vec<_> = (0..3).map(|_| Some(join(&options))).collect();
        let epoch = |region: &Option<Region>| region.as_ref().unwrap().epoch();
        let drawn = epoch(&regions[0]);
        assert_ne!(drawn, 0, "a random one is drawn");
        assert!(regions.iter().all(|region| epoch(region) == drawn));

        regions[0].as_ref().unwrap().copy_in(&[extent(0, 1)], 0, b"shared").unwrap();
        let mut seen = [0; 6];
        regions[2].as_ref().unwrap().copy_out(&[extent(0, 1)], 0, &mut seen).unwrap();
        assert_eq!(seen, *b"shared");

        for (left, index) in order.into_iter().enumerate() {
            assert_eq!(names(dir.path()), 1, "{left} have left");
            drop(regions[index].take());
        }
        assert_eq!(traces(dir.path()), before);
    }
}

#[test]
fn of_many_that_come_at_once_all_share_one_region_and_leave_nothing() {
    const COMERS: usize = 6;
    let dir = tempfile::tempdir().unwrap();
    let options = RegionOptions { epoch: 0, ..options_for_test(dir.path()) };
    for _ in 0..30 {
        let _alone = no_spawns();
        let (start, there) = (Barrier::new(COMERS), Barrier::new(COMERS));
        let epochs: Vec<u64> = std::thread::scope(|scope| {
            let comer = || {
                start.wait();
                let region = join(&options);
                there.wait();
                // All let go at once, too.
                region.epoch()
            };
            let comers: Vec<_> = (0..COMERS).map(|_| scope.spawn(comer)).collect();
            comers.into_iter().map(|comer| comer.join().unwrap()).collect()
        });
        assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
        assert_eq!(names(dir.path()), 0);
    }
}

#[test]
fn a_region_of_another_shape_is_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = options_for_test(dir.path());
    let region = join(&options);
    for other in [
        RegionOptions { blocks: 11, ..options.clone() },
        RegionOptions { block_size_bytes: 999, ..options.clone() },
    ] {
        let error = Region::create_or_attach(&other).unwrap_err();
        assert!(matches!(error, RegionError::OtherShape { found: (10, 1000), .. }), "{error}");
        for part in [NAME, "10 blocks of 1000 bytes", "same ec_cpu_bytes"] {
            assert!(error.to_string().contains(part), "{part} in {error}");
        }
    }
    assert!(region.path().exists());
    join(&options).copy_in(&[extent(0, 10)], 0, &pattern(10_000)).unwrap();
}

#[test]
fn what_a_killed_process_left_is_made_anew_and_not_joined() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("join", dir.path());
    let joined = join(&options_for_test(dir.path()));
    joined.copy_in(&[extent(0, 1)], 0, b"old").unwrap();
    drop(joined);
    assert!(dir.path().join(NAME).exists(), "the child has it");
    child.kill();

    let region = join(&options_for_test(dir.path()));
    let mut seen = [9; 3];
    region.copy_out(&[extent(0, 1)], 0, &mut seen).unwrap();
    assert_eq!(seen, [0; 3]);
}

#[test]
fn a_region_has_one_node_in_its_life() {
    let dir = tempfile::tempdir().unwrap();
    let options = options_for_test(dir.path());
    let (mut worker, mut node) = (join(&options), join(&options));
    node.claim_node().unwrap();
    assert!(matches!(worker.claim_node(), Err(RegionError::Live { .. })));
    drop(node);
    assert_eq!(names(dir.path()), 0, "its node removes it for all");
    assert!(matches!(worker.claim_node(), Err(RegionError::Live { .. })), "nor a second");
    // Whoever comes now begins another.
    join(&options).claim_node().unwrap();
    // The old one's last process does not take the new one's name along.
    let mut next = join(&options);
    next.claim_node().unwrap();
    drop(worker);
    assert_eq!(names(dir.path()), 1);
}

#[test]
fn after_a_killed_node_its_workers_keep_the_region_and_no_other_node_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("node", dir.path());
    let worker = join(&options_for_test(dir.path()));
    child.kill();

    let mut late = join(&options_for_test(dir.path()));
    let error = late.claim_node().unwrap_err();
    assert!(matches!(error, RegionError::Live { .. }), "{error}");
    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    let _alone = no_spawns();
    drop((worker, late));
    assert_eq!(names(dir.path()), 0);
}

#[test]
fn a_region_that_was_attached_to_be_read_cannot_be_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let region = join(&options_for_test(dir.path()));
    let mut reader = Region::attach_read_only(region.path()).unwrap();
    assert!(matches!(reader.claim_node(), Err(RegionError::Io { .. })));
}
