//! Processes in other PID namespaces: two containers that share `/dev/shm`. These tests need root, to
//! make namespaces: CI runs as root.

use std::time::{Duration, Instant};

use chiasm_region::{Completions, Region, RegionError, WorkerLife, reclaim_stale};

use crate::child::Child;
use crate::support::{NAME, extent, options_for_test, pattern, rank, region_for_test};

#[test]
fn a_live_region_of_another_pid_namespace_is_not_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run_in_pid_namespace("hold", dir.path());
    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    let error = Region::create(&options_for_test(dir.path())).unwrap_err();
    assert!(matches!(error, RegionError::Live { .. }), "{error}");
    let region = Region::attach(&dir.path().join(NAME)).unwrap();
    assert_eq!(region.creator().1, 1, "the first process of its namespace, and alive");
    region.copy_in(&[extent(0, 10)], 0, &pattern(10_000)).unwrap();
    assert!(child.finish().success());
}

#[test]
fn a_live_region_of_ours_is_not_reclaimed_from_another_pid_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let child = Child::run_in_pid_namespace("reclaim", dir.path());
    assert_eq!(child.said, "0");
    assert!(region.path().exists());
    assert!(child.finish().success());
}

#[test]
fn a_worker_of_another_pid_namespace_is_alive_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let mut region = Region::create_or_attach(&options_for_test(dir.path())).unwrap();
    region.claim_node().unwrap();
    let child = Child::run_in_pid_namespace("work", dir.path());
    assert_eq!(child.said, "1", "its own process id, which is somebody else's here");
    let mut completions = Completions::new();
    assert_eq!(completions.worker(&region, rank(3)), WorkerLife::Alive(1));
    assert_eq!(completions.take(&region).len(), 1);
    assert!(child.finish().success());
    // What was waited for is its namespace's parent, which may be a moment ahead of the kernel.
    let patience = Instant::now() + Duration::from_secs(20);
    while completions.worker(&region, rank(3)) != WorkerLife::Absent {
        assert!(Instant::now() < patience, "its lock is not given back");
        std::thread::yield_now();
    }
}
