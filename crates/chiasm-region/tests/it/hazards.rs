//! E: what goes wrong with a region's file, one test per hazard, named after it. The parts of each are
//! in `lifetime`, `failures`, `hostile` and `small_tmpfs`.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use chiasm_region::{Region, RegionError, RegionOptions, reclaim_stale};

use crate::child::Child;
use crate::small_tmpfs::Tmpfs;
use crate::support::{NAME, extent, no_spawns, options_for_test, pattern, traces};

/// The region works to its last byte, holds nothing of anybody before it, and goes with its owner.
fn assert_new(options: &RegionOptions) {
    let _alone = no_spawns();
    let region = Region::create(options).expect("a region can be made");
    let file = fs::metadata(region.path()).unwrap();
    assert!(file.blocks() * 512 >= file.len(), "every byte is reserved");
    let all = [extent(0, options.blocks)];
    let bytes = usize::try_from(u64::from(options.blocks) * options.block_size_bytes).unwrap();
    let mut seen = vec![1; bytes];
    region.copy_out(&all, 0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0), "old bytes");
    region.copy_in(&all, 0, &pattern(bytes)).unwrap();
    region.copy_out(&all, 0, &mut seen).unwrap();
    assert!(seen == pattern(bytes));
    let path = region.path().to_owned();
    drop(region);
    assert!(!path.exists(), "its creator removes it");
}

/// Upstream's second life attaches to the file of the one that was killed, whatever its size, sees its
/// bytes and never removes it.
#[test]
fn hazard_e1_a_killed_lifes_file_is_never_used_again() {
    for blocks in [10, 3, 30] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let child = Child::run("hold", dir.path());
        let alone = no_spawns();
        let whole = [extent(0, 10)];
        Region::attach(&path).unwrap().copy_in(&whole, 0, &[0xAA; 10_000]).unwrap();
        drop(alone);
        child.kill();
        assert!(path.exists(), "SIGKILL leaves it");
        assert_new(&RegionOptions { blocks, ..options_for_test(dir.path()) });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// No file, no descriptor, no mapping, and the next start works.
#[test]
fn hazard_e2_a_start_that_fails_leaves_nothing() {
    let tmpfs = Tmpfs::mount("size=1m");
    let good = options_for_test(tmpfs.path());
    let before = traces(tmpfs.path());
    for (blocks, block_size_bytes) in
        [(0, 1000), (10, 0), (u32::MAX, u64::MAX), (1, u64::MAX), (1024, 4096)]
    {
        let options = RegionOptions { blocks, block_size_bytes, ..good.clone() };
        Region::create(&options).expect_err("these make no region");
        assert_eq!(traces(tmpfs.path()), before, "{blocks} blocks of {block_size_bytes}");
    }
    assert_new(&good);
}

/// Whatever somebody has put there under the name stays as it is, and nothing behind it is touched.
#[test]
fn hazard_e3_a_file_that_somebody_made_before_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let target = elsewhere.path().join("target");
    fs::write(&target, pattern(100_000)).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    let options = options_for_test(dir.path());
    let refused = || {
        let created = Region::create(&options).unwrap_err();
        assert!(matches!(created, RegionError::Foreign { .. }), "{created}");
        Region::attach(&path).unwrap_err();
        assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    };
    for place in [target.as_path(), Path::new("/nowhere/at/all")] {
        symlink(place, &path).unwrap();
        refused();
        assert_eq!(fs::read_link(&path).unwrap(), place);
        fs::remove_file(&path).unwrap();
    }
    fs::copy(&target, &path).unwrap();
    refused();
    assert!(fs::read(&path).unwrap() == pattern(100_000));
    fs::remove_file(&path).unwrap();
    assert!(fs::read(target).unwrap() == pattern(100_000));
    assert_new(&options);
}

/// Upstream waits 30 s for a file that is too small to grow, and then gives up.
#[test]
fn hazard_e4_a_smaller_file_is_neither_waited_for_nor_in_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    for bytes in [64 * 1024, 64 * 1024 + 4096] {
        Child::run("hold", dir.path()).kill();
        File::options().write(true).open(&path).unwrap().set_len(bytes).unwrap();
        // Of the dead one only that it is dead is of interest.
        let error = Region::attach(&path).unwrap_err();
        assert!(matches!(error, RegionError::Stale { .. }), "{error}");
        assert_new(&options_for_test(dir.path()));
    }
}

/// Also where the directory that the name would leave through exists.
#[test]
fn hazard_e5_a_name_does_not_leave_its_directory() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("shm");
    fs::create_dir_all(dir.join("chiasm-t")).unwrap();
    let before = traces(root.path());
    for name in
        ["chiasm-t/../../escaped", "chiasm-t/escaped", "../chiasm-escaped", "/chiasm-escaped"]
    {
        let options = RegionOptions { name: name.to_owned(), ..options_for_test(&dir) };
        let error = Region::create(&options).unwrap_err();
        assert!(matches!(error, RegionError::InvalidName { .. }), "{error}");
    }
    assert_eq!(traces(root.path()), before);
    assert_eq!(fs::read_dir(dir.join("chiasm-t")).unwrap().count(), 0);
    assert_new(&options_for_test(&dir));
}

/// A file system that is too small is told at the start, and not by a SIGBUS in the middle of a save.
#[test]
fn hazard_e6_memory_that_is_not_there_is_told_at_the_start() {
    let tmpfs = Tmpfs::mount("size=1m");
    let fits =
        RegionOptions { blocks: 200, block_size_bytes: 4096, ..options_for_test(tmpfs.path()) };
    let more = RegionOptions { blocks: 1024, ..fits.clone() };
    let error = Region::create(&more).unwrap_err();
    assert!(matches!(error, RegionError::NoSpace { .. }), "{error}");
    assert_new(&fits);
    // Somebody else has taken the rest meanwhile.
    fs::write(tmpfs.path().join("other"), vec![1; 400_000]).unwrap();
    let error = Region::create(&fits).unwrap_err();
    assert!(matches!(error, RegionError::NoSpace { .. }), "{error}");
    fs::remove_file(tmpfs.path().join("other")).unwrap();
    assert_new(&fits);
}
