//! What else can have a region's name is reported and stays as it is (E3, E5).

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use chiasm_region::{ForeignCause, HeaderError, Region, RegionError, reclaim_stale};
use rstest::rstest;
use rustix::fs::{FlockOperation, flock};

use crate::child::Child;
use crate::support::{NAME, no_spawns, options_for_test, region_for_test, spawn, traces};

/// The bytes of a region that nobody uses.
fn dead_region(dir: &Path) -> PathBuf {
    Child::run("hold", dir).kill();
    dir.join(NAME)
}

fn change(path: &Path, at: usize, field: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at..at + field.len()].copy_from_slice(field);
    fs::write(path, bytes).unwrap();
}

/// What is at `path` itself, as far as anybody could have changed it.
fn look(path: &Path) -> (u64, u32, u64, i64, i64, Option<PathBuf>) {
    let file = fs::symlink_metadata(path).unwrap();
    let (changed, nanoseconds) = (file.mtime(), file.mtime_nsec());
    (file.ino(), file.mode(), file.len(), changed, nanoseconds, fs::read_link(path).ok())
}

/// Neither made over, nor attached to, nor reclaimed.
fn assert_foreign(dir: &Path, expected: ForeignCause) {
    let path = dir.join(NAME);
    let (before, seen) = (traces(dir), look(&path));
    let cause = |outcome: Result<Region, RegionError>| match outcome.unwrap_err() {
        RegionError::Foreign { path: named, cause } => {
            assert_eq!(named, path);
            cause
        }
        other => panic!("{other}"),
    };
    assert_eq!(cause(Region::create(&options_for_test(dir))), expected);
    if !matches!(expected, ForeignCause::Content(_)) {
        assert_eq!(cause(Region::attach(&path)), expected);
        assert_eq!(cause(Region::attach_read_only(&path)), expected);
    }
    assert_eq!(reclaim_stale(dir).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(look(&path), seen);
    assert_eq!(traces(dir), before);
}

#[test]
fn a_symbolic_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    // To a dead region, which would be removed or attached to; to nothing; to a file.
    let target = dead_region(elsewhere.path());
    let notes = elsewhere.path().join("notes");
    fs::write(&notes, "mine").unwrap();
    for target in [&target, &elsewhere.path().join("nothing"), &notes] {
        symlink(target, dir.path().join(NAME)).unwrap();
        assert_foreign(dir.path(), ForeignCause::NotRegular);
        fs::remove_file(dir.path().join(NAME)).unwrap();
    }
    assert!(target.exists());
    assert_eq!(fs::read(notes).unwrap(), b"mine");
    assert!(!elsewhere.path().join("nothing").exists());
}

#[test]
fn a_directory_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(NAME)).unwrap();
    assert_foreign(dir.path(), ForeignCause::NotRegular);
}

#[test]
fn a_pipe_is_neither_opened_nor_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let made = spawn(Command::new("mkfifo").arg(dir.path().join(NAME))).wait().unwrap();
    assert!(made.success());
    assert_foreign(dir.path(), ForeignCause::NotRegular);
}

#[test]
fn a_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join(NAME)).unwrap();
    assert_foreign(dir.path(), ForeignCause::NotRegular);
}

#[test]
fn another_users_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dead_region(dir.path());
    chown(&path, Some(12345), None).expect("these tests run as root");
    assert_foreign(dir.path(), ForeignCause::Owner { uid: 12345 });
}

#[test]
fn a_file_that_others_may_open_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dead_region(dir.path());
    for mode in [0o644, 0o660, 0o606] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_foreign(dir.path(), ForeignCause::Mode { mode });
    }
}

#[test]
fn another_programs_file_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let long = b"a letter to a friend ".repeat(4000);
    for content in [&b"chiasm"[..], b"a letter to a friend", &long[..64 * 1024 - 1], &long] {
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let cause = if content.len() < 8 { HeaderError::Short } else { HeaderError::Magic };
        assert_foreign(dir.path(), ForeignCause::Content(cause));
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

/// What an accident makes of a dead region.
fn damaged(dir: &Path) -> [Box<dyn Fn() + '_>; 3] {
    let cut = |bytes| {
        let file = File::options().write(true).open(dir.join(NAME)).unwrap();
        file.set_len(bytes).unwrap();
    };
    [
        Box::new(move || cut(0)),
        Box::new(move || change(&dir.join(NAME), 0, &[0; 8])),
        Box::new(|| fs::write(dir.join(NAME), vec![0xff; 128 << 10]).unwrap()),
    ]
}

#[test]
fn a_damaged_region_is_removed_when_nobody_uses_it() {
    let dir = tempfile::tempdir().unwrap();
    for damage in damaged(dir.path()) {
        let path = dead_region(dir.path());
        damage();
        let alone = no_spawns();
        assert_eq!(reclaim_stale(dir.path()).unwrap(), std::slice::from_ref(&path));
        drop(alone);
        dead_region(dir.path());
        damage();
        drop(Region::create(&options_for_test(dir.path())).unwrap());
        assert!(!path.exists());
    }
}

#[test]
fn a_damaged_region_stays_while_somebody_uses_it_and_is_not_attached_to() {
    let dir = tempfile::tempdir().unwrap();
    for damage in damaged(dir.path()) {
        let path = dead_region(dir.path());
        damage();
        let user = File::open(&path).unwrap();
        flock(&user, FlockOperation::LockShared).unwrap();
        assert!(Region::attach(&path).is_err());
        assert!(Region::create(&options_for_test(dir.path())).is_err());
        assert!(reclaim_stale(dir.path()).unwrap().is_empty());
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_region_of_an_unknown_layout_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dead_region(dir.path());
    change(&path, 8, &2_u32.to_le_bytes());
    assert_foreign(dir.path(), ForeignCause::Content(HeaderError::Version { version: 2 }));
}

#[rstest]
#[case::truncated_to_the_header(256)]
#[case::truncated_to_the_header_area(64 * 1024)]
#[case::one_page_short(64 * 1024 + 8192)]
#[case::grown(10 << 20)]
fn a_file_of_the_wrong_size_is_never_mapped(#[case] file_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dead_region(dir.path());
    let alone = no_spawns();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(file_bytes).unwrap();
    let before = traces(dir.path());

    // While somebody holds it, it cannot be attached to (E4: and nobody waits for it to grow) ...
    flock(&file, FlockOperation::LockShared).unwrap();
    let error = Region::attach(&path).unwrap_err();
    let RegionError::Header { source: HeaderError::FileSize { file_bytes: seen, .. }, .. } = error
    else {
        panic!("{error}")
    };
    assert_eq!(seen, file_bytes);
    assert_eq!(traces(dir.path()), before);
    drop(file);
    drop(alone);
    // ... and dead, it is a dead region like any other.
    drop(Region::create(&options_for_test(dir.path())).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_region_under_removal_is_neither_attached_to_nor_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dead_region(dir.path());
    let file = File::open(&path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    assert!(matches!(Region::attach(&path), Err(RegionError::Stale { .. })));
    let outcome = Region::create(&options_for_test(dir.path()));
    assert!(matches!(outcome, Err(RegionError::Live { .. })), "given up after a bounded time");
    assert!(reclaim_stale(dir.path()).unwrap().is_empty());
    assert!(path.exists());
}

#[test]
fn half_made_regions_are_reclaimed_and_those_being_made_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let draft = |n: u32, content: &[u8]| {
        let path = dir.path().join(format!(".chiasm-draft-1-{n}"));
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let finished = fs::read(dead_region(dir.path())).unwrap();
    fs::remove_file(dir.path().join(NAME)).unwrap();
    let dead = [draft(0, b""), draft(1, &vec![0; 70_000]), draft(2, &finished)];
    let live = File::open(draft(3, b"")).unwrap();
    flock(&live, FlockOperation::LockShared).unwrap();
    let foreign = draft(4, b"a letter to a friend");

    assert_eq!(reclaim_stale(dir.path()).unwrap(), dead);
    assert!(dir.path().join(".chiasm-draft-1-3").exists());
    assert!(foreign.exists());
}

#[test]
fn reclaiming_looks_at_nothing_but_our_names() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(dead_region(dir.path())).unwrap();
    for name in ["vllm_ec_1_dp0.mmap", "chiasm-", "chiasm-a b", "xchiasm-a"] {
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(reclaim_stale(dir.path()).unwrap(), [dir.path().join(NAME)]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
}

#[test]
fn a_directory_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(reclaim_stale(&nowhere), Err(RegionError::Io { .. })));
    assert!(matches!(Region::attach(&nowhere.join(NAME)), Err(RegionError::Io { .. })));
    assert!(matches!(Region::create(&options_for_test(&nowhere)), Err(RegionError::Io { .. })));
}

#[test]
fn attaching_under_another_name_works() {
    // The name is how a region is found, not what it is: a hard link or rename changes nothing.
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let other = dir.path().join("other");
    fs::hard_link(region.path(), &other).unwrap();
    assert_eq!(Region::attach(&other).unwrap().epoch(), 7);
}
