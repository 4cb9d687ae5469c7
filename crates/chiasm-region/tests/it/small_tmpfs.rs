//! E6: a file system that is too small is an error at the start, never a SIGBUS later.

use std::path::{Path, PathBuf};
use std::process::Command;

use chiasm_region::{Region, RegionError, RegionOptions};

use crate::support::{extent, no_spawns, options_for_test, pattern, spawn, traces};

/// A `tmpfs` of its own. Without the right to mount one, these tests fail: CI runs as root.
pub(crate) struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    pub(crate) fn mount(mount_options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", mount_options, "tmpfs"]).arg(dir.path());
        let mounted = spawn(&mut mount).wait().unwrap();
        assert!(mounted.success(), "mounting a tmpfs needs root");
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = spawn(Command::new("umount").arg("-l").arg(self.path())).wait().unwrap();
        assert!(unmounted.success());
    }
}

fn free_bytes(dir: &Path) -> u64 {
    let stat = rustix::fs::statvfs(dir).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// A region whose whole file has `file_bytes` bytes.
fn options_of_size(dir: &Path, file_bytes: u64) -> RegionOptions {
    let blocks = u32::try_from((file_bytes - 64 * 1024) / 4096).unwrap();
    RegionOptions { blocks, block_size_bytes: 4096, ..options_for_test(dir) }
}

#[test]
fn too_small_says_by_how_much_and_what_to_set() {
    let tmpfs = Tmpfs::mount("size=1m");
    let (before, free_before) = (traces(tmpfs.path()), free_bytes(tmpfs.path()));
    let error = Region::create(&options_of_size(tmpfs.path(), 2 << 20)).unwrap_err();

    let message = error.to_string();
    let RegionError::NoSpace { dir, needed_bytes, free_bytes: free } = error else {
        panic!("{error}")
    };
    assert_eq!(dir, PathBuf::from(tmpfs.path()));
    assert_eq!((needed_bytes, free), (2 << 20, free_before));
    for part in [tmpfs.path().to_str().unwrap(), "2097152", "--shm-size", "ec_cpu_bytes"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    assert_eq!(traces(tmpfs.path()), before);
    assert_eq!(free_bytes(tmpfs.path()), free_before);
}

#[test]
fn what_just_fits_can_be_used_to_the_last_byte() {
    let tmpfs = Tmpfs::mount("size=1m");
    let free = free_bytes(tmpfs.path());
    let one_more = options_of_size(tmpfs.path(), free + 4096);
    assert!(matches!(Region::create(&one_more), Err(RegionError::NoSpace { .. })));

    let options = options_of_size(tmpfs.path(), free);
    let alone = no_spawns();
    let region = Region::create(&options).unwrap();
    assert_eq!(free_bytes(tmpfs.path()), 0);
    let bytes = pattern(options.blocks as usize * 4096);
    region.copy_in(&[extent(0, options.blocks)], 0, &bytes).unwrap();
    let mut seen = vec![0; bytes.len()];
    region.copy_out(&[extent(0, options.blocks)], 0, &mut seen).unwrap();
    assert!(seen == bytes);
    drop(region);
    assert_eq!(free_bytes(tmpfs.path()), free);
    drop(alone);
}

#[test]
fn a_dead_regions_memory_is_there_for_the_next() {
    let tmpfs = Tmpfs::mount("size=128k");
    crate::child::Child::run("hold", tmpfs.path()).kill();
    assert!(free_bytes(tmpfs.path()) < 80_000, "the dead one fills it");
    drop(Region::create(&options_for_test(tmpfs.path())).unwrap());
}

#[test]
fn a_file_system_without_a_limit_of_its_own_is_not_full() {
    let tmpfs = Tmpfs::mount("size=0");
    assert_eq!(free_bytes(tmpfs.path()), 0, "it says that it has nothing");
    drop(Region::create(&options_for_test(tmpfs.path())).unwrap());
}
