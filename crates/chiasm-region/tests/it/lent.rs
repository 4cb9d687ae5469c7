//! What a helper process is lent: the same memory, no lock, and no more rights than were meant.

use std::fs::{self, File};
use std::io::Write as _;

use chiasm_region::{Lending, LentRegion, Region, RegionError};
use rustix::fs::{FlockOperation, flock};

use crate::support::{extent, options_for_test, pattern, region_for_test};

#[test]
fn a_lent_region_is_the_same_memory() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    region.copy_in(&[extent(0, 10)], 0, &pattern(10_000)).unwrap();
    for lending in [Lending::ReadOnly, Lending::ReadWrite] {
        let lent = LentRegion::map(&region.lend(lending).unwrap(), lending).unwrap();
        assert_eq!(lent.blocks_bytes(), 10_000);
        assert_eq!(lent.blocks_address() % 4096, 0, "blocks start on a page");
        // Through the system, which is how others see it: no reference into it here.
        let mut found = vec![0; 10_000];
        let memory = File::open("/proc/self/mem").unwrap();
        let at = lent.blocks_address() as u64;
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut found, at).unwrap();
        assert_eq!(found, pattern(10_000));
    }
}

#[test]
fn what_is_lent_for_reading_cannot_be_mapped_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let lent = region.lend(Lending::ReadOnly).unwrap();
    assert!(LentRegion::map(&lent, Lending::ReadWrite).is_err());
    assert!(File::from(lent).write_all(b"x").is_err());
}

#[test]
fn what_is_lent_holds_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let options = options_for_test(dir.path());
    let region = Region::create(&options).unwrap();
    let lent = region.lend(Lending::ReadWrite).unwrap();
    let mapped = LentRegion::map(&lent, Lending::ReadWrite).unwrap();
    let found = File::open(region.path()).unwrap();
    assert!(flock(&found, FlockOperation::NonBlockingLockExclusive).is_err(), "its owner lives");
    drop(found);
    // As after SIGKILL: the name stays.
    let kept = dir.path().join("kept");
    fs::hard_link(region.path(), &kept).unwrap();
    drop(region);
    let found = File::open(&kept).unwrap();
    assert!(
        flock(&found, FlockOperation::NonBlockingLockExclusive).is_ok(),
        "a helper that is left does not make it look alive"
    );
    assert_eq!(mapped.blocks_bytes(), 10_000, "and keeps its memory");
}

#[test]
fn a_region_that_was_replaced_is_not_lent() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let other = tempfile::tempdir().unwrap();
    let impostor = region_for_test(other.path());
    fs::rename(impostor.path(), region.path()).unwrap();
    assert!(matches!(region.lend(Lending::ReadOnly), Err(RegionError::Stale { .. })));
    fs::remove_file(region.path()).unwrap();
    assert!(region.lend(Lending::ReadOnly).is_err());
}

#[test]
fn what_is_no_region_is_not_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("text");
    fs::write(&path, b"no region at all").unwrap();
    let file = File::open(&path).unwrap().into();
    assert!(matches!(LentRegion::map(&file, Lending::ReadOnly), Err(RegionError::Header { .. })));
    let pipe = rustix::pipe::pipe().unwrap().0;
    assert!(matches!(LentRegion::map(&pipe, Lending::ReadOnly), Err(RegionError::Foreign { .. })));
}

#[test]
fn all_of_it_can_be_faulted_in_ahead_slice_by_slice() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    for lending in [Lending::ReadOnly, Lending::ReadWrite] {
        let lent = LentRegion::map(&region.lend(lending).unwrap(), lending).unwrap();
        let slices = (0..1000).take_while(|_| lent.populate(4096)).count();
        // 64 KiB of header and 10,000 bytes of blocks in whole pages, but the last.
        assert_eq!(slices, 18);
        assert!(!lent.populate(4096));
    }
}
