//! S9: regions vanish with their creators, and a live one is never touched. E1, E4.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;

use chiasm_region::{Region, RegionError, digest_of, reclaim_stale};

use crate::child::Child;
use crate::support::{
    NAME, extent, no_spawns, options_for_test, pattern, region_for_test, spawn, traces,
};

fn is_live(outcome: &Result<Region, RegionError>) -> bool {
    matches!(outcome, Err(RegionError::Live { .. }))
}

#[test]
fn a_region_is_one_private_file_of_the_full_size_while_it_lives() {
    let dir = tempfile::tempdir().unwrap();
    let before = traces(dir.path());
    let region = region_for_test(dir.path());

    assert_eq!(region.path(), dir.path().join(NAME));
    assert_eq!((region.blocks(), region.block_size_bytes(), region.epoch()), (10, 1000, 7));
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(region.creator(), (uid, std::process::id()));
    let file = fs::metadata(region.path()).unwrap();
    assert_eq!(file.permissions().mode() & 0o7777, 0o600);
    assert!(file.len() >= 64 * 1024 + 10 * 1000);
    assert!(file.blocks() * 512 >= file.len(), "every byte is reserved");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no other file");

    let attached = Region::attach(region.path()).unwrap();
    assert_eq!((attached.blocks(), attached.block_size_bytes(), attached.epoch()), (10, 1000, 7));
    assert_eq!(attached.creator(), region.creator());
    drop(attached);
    assert!(region.path().exists(), "only its creator removes it");
    drop(region);
    assert_eq!(traces(dir.path()), before);
}

#[test]
fn a_relative_directory_is_found_again_from_anywhere() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let relative = Path::new(".").join(dir.path().file_name().unwrap());
    let region = region_for_test(&relative);
    assert!(region.path().is_absolute());
    drop(region);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn another_process_sees_the_same_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let child = Child::run("attach", dir.path());
    assert_eq!(child.said, digest_of(&pattern(2500)).to_string());
    let mut seen = vec![0; 2500];
    region.copy_out(&[extent(8, 2), extent(0, 1)], 500, &mut seen).unwrap();
    assert_eq!(seen, pattern(2500));
    assert!(child.finish().success());
    assert!(region.path().exists(), "who attached does not remove it");
}

#[test]
fn a_live_region_is_not_reclaimed_and_its_name_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("hold", dir.path());
    let before = fs::metadata(dir.path().join(NAME)).unwrap();

    assert_eq!(reclaim_stale(dir.path()).unwrap(), Vec::<std::path::PathBuf>::new());
    let error = Region::create(&options_for_test(dir.path())).unwrap_err();
    assert!(error.to_string().contains("in use by a running process"), "{error}");
    assert!(is_live(&Err(error)));

    let after = fs::metadata(dir.path().join(NAME)).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
    Region::attach(&dir.path().join(NAME)).unwrap();
    assert!(child.finish().success());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "its creator removed it");
}

#[test]
fn a_live_region_of_this_process_is_as_safe() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    assert!(is_live(&Region::create(&options_for_test(dir.path()))));
    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    assert!(region.path().exists());
}

#[test]
fn a_killed_creators_region_is_reclaimed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    fs::write(dir.path().join("chiasm-notes.txt"), "not a region").unwrap();
    Child::run("hold", dir.path()).kill();
    assert!(path.exists(), "SIGKILL leaves it");
    let _alone = no_spawns();

    assert!(matches!(Region::attach(&path), Err(RegionError::Stale { .. })));
    assert!(matches!(Region::attach_read_only(&path), Err(RegionError::Stale { .. })));
    assert!(path.exists());
    assert_eq!(reclaim_stale(dir.path()).unwrap(), [path]);
    assert_eq!(reclaim_stale(dir.path()).unwrap(), Vec::<std::path::PathBuf>::new());
    assert!(dir.path().join("chiasm-notes.txt").exists());
}

#[test]
fn a_killed_creators_name_is_made_anew_and_not_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let child = Child::run("hold", dir.path());
    let alone = no_spawns();
    Region::attach(&path).unwrap().copy_in(&[extent(0, 10)], 0, &[0xAA; 10_000]).unwrap();
    drop(alone);
    child.kill();
    // Somebody looks at the old file: it must stay as it is under them.
    let old = fs::File::open(&path).unwrap();

    let mut options = options_for_test(dir.path());
    options.blocks = 3;
    let region = Region::create(&options).unwrap();
    assert_ne!(old.metadata().unwrap().ino(), fs::metadata(&path).unwrap().ino());
    assert_eq!(old.metadata().unwrap().nlink(), 0);
    assert!(old.metadata().unwrap().len() > 64 * 1024, "unlinked, not truncated");
    let mut seen = vec![1; 3000];
    region.copy_out(&[extent(0, 3)], 0, &mut seen).unwrap();
    assert_eq!(seen, vec![0; 3000], "no old bytes");
}

#[test]
fn a_region_lives_as_long_as_anybody_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let child = Child::run("hold", dir.path());
    let _alone = no_spawns();
    let survivor = Region::attach(&path).unwrap();
    child.kill();

    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    assert!(is_live(&Region::create(&options_for_test(dir.path()))));
    Region::attach_read_only(&path).unwrap().copy_out(&[extent(0, 1)], 0, &mut [0; 9]).unwrap();
    drop(survivor);
    assert_eq!(reclaim_stale(dir.path()).unwrap(), [path]);
}

#[test]
fn a_mapping_survives_the_end_of_its_creator() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let attached = Region::attach(region.path()).unwrap();
    drop(region);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    attached.copy_in(&[extent(0, 10)], 0, &pattern(10_000)).unwrap();
    let mut seen = vec![0; 10_000];
    attached.copy_out(&[extent(0, 10)], 0, &mut seen).unwrap();
    assert_eq!(seen, pattern(10_000));
}

#[test]
fn a_panic_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("panic", dir.path());
    assert!(dir.path().join(NAME).exists());
    assert_eq!(child.finish().code(), Some(101));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_forked_child_does_not_remove_its_parents_region() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("fork", dir.path());
    assert_eq!(child.said, "still there");
    assert!(is_live(&Region::create(&options_for_test(dir.path()))), "nor its parent's lock");
    assert!(child.finish().success());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_program_that_is_executed_inherits_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let attached = Region::attach(region.path()).unwrap();
    let mut list = Command::new("ls");
    list.args(["-l", "/proc/self/fd"]).stdout(Stdio::piped());
    let output = spawn(&mut list).wait_with_output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    assert!(listing.contains("/proc/"), "{listing}");
    // By the directory: a file that was made without a name is listed without it.
    assert!(!listing.contains(dir.path().to_str().unwrap()), "{listing}");
    drop((region, attached));
}

#[test]
fn a_file_that_took_the_name_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    fs::rename(region.path(), dir.path().join("moved")).unwrap();
    fs::write(region.path(), "somebody's").unwrap();
    let path = region.path().to_owned();
    drop(region);
    assert_eq!(fs::read(path).unwrap(), b"somebody's");
}

#[test]
fn of_many_creators_at_once_exactly_one_gets_the_name() {
    const CREATORS: usize = 6;
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 {
        if round % 2 == 0 {
            Child::run("hold", dir.path()).kill();
        }
        let (start, end) = (Barrier::new(CREATORS + 1), Barrier::new(CREATORS));
        let outcomes: Vec<Option<String>> = std::thread::scope(|scope| {
            let creator = || {
                start.wait();
                let outcome = Region::create(&options_for_test(dir.path()));
                // Held until all have tried.
                end.wait();
                outcome.err().map(|error| error.to_string())
            };
            let creators: Vec<_> = (0..CREATORS).map(|_| scope.spawn(creator)).collect();
            start.wait();
            let _ = reclaim_stale(dir.path()).unwrap();
            creators.into_iter().map(|creator| creator.join().unwrap()).collect()
        });
        let refused: Vec<&String> = outcomes.iter().flatten().collect();
        assert_eq!(refused.len(), CREATORS - 1, "{refused:?}");
        assert!(refused.iter().all(|error| error.contains("in use")), "{refused:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
