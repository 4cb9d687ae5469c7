//! Another instance's region: what is mapped, what is refused, and what the owner may do meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::Path;

use chiasm_region::{
    ForeignCause, LandedDigest, PeerRegion, Region, RegionError, RegionOptions, digest_of,
    reclaim_stale,
};
use rstest::rstest;
use rustix::fs::{FlockOperation, flock};

use crate::child::Child;
use crate::support::{NAME, extent, no_spawns, options_for_test, pattern, region_for_test, traces};

const EPOCH: u64 = 7;
const BLOCK: u64 = 1000;

fn attach(dir: &Path) -> Result<PeerRegion, RegionError> {
    PeerRegion::attach(dir, NAME, EPOCH, BLOCK)
}

/// Refused for this reason, and nothing of it is left.
fn refused(dir: &Path) -> RegionError {
    let before = traces(dir);
    let error = attach(dir).unwrap_err();
    assert_eq!(traces(dir), before, "{error}");
    error
}

#[rstest]
fn entries_arrive_from_scattered_to_scattered_blocks(#[values(true, false)] digested: bool) {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let peer = region_for_test(theirs.path());
    let own = region_for_test(ours.path());
    let bytes = pattern(4500);
    let remote = [extent(8, 2), extent(0, 2), extent(5, 1)];
    peer.copy_in(&remote, 0, &bytes).unwrap();
    let mapped = attach(theirs.path()).unwrap();
    while mapped.populate(4096) {}
    let local = [extent(1, 1), extent(3, 4)];
    let mut digest = LandedDigest::new();
    for (offset, len) in [(0, 1), (1, 2600), (2601, 1899), (4500, 0)] {
        let digest = digested.then_some(&mut digest);
        own.copy_from_peer(&mapped, &remote, &local, offset, len, digest).unwrap();
    }
    let mut landed = vec![0; 4500];
    own.copy_out(&local, 0, &mut landed).unwrap();
    assert!(landed == bytes);
    assert_eq!(digest.finish(), digest_of(if digested { &bytes } else { &[] }));
}

#[rstest]
fn large_pieces_arrive_at_odd_places(#[values(true, false)] digested: bool) {
    let dir = tempfile::tempdir().unwrap();
    // Blocks that start nowhere near a multiple of anything, and pieces past every threshold.
    let options = |name: &str| RegionOptions {
        dir: dir.path().to_owned(),
        epoch: EPOCH,
        ..RegionOptions::new(name, 4, 300_001)
    };
    let peer = Region::create(&options("chiasm-peer")).unwrap();
    let own = Region::create(&options("chiasm-own")).unwrap();
    let bytes = pattern(700_000);
    peer.copy_in(&[extent(1, 3)], 0, &bytes).unwrap();
    let mapped = PeerRegion::attach(dir.path(), "chiasm-peer", EPOCH, 300_001).unwrap();
    let mut digest = LandedDigest::new();
    let taken = digested.then_some(&mut digest);
    let (remote, local) = ([extent(1, 3)], [extent(3, 1), extent(0, 2)]);
    own.copy_from_peer(&mapped, &remote, &local, 0, 700_000, taken).unwrap();
    let mut landed = vec![0; 700_000];
    own.copy_out(&local, 0, &mut landed).unwrap();
    assert!(landed == bytes);
    if digested {
        assert_eq!(digest.finish(), digest_of(&bytes));
    }
}

#[test]
fn what_does_not_fit_either_side_copies_nothing() {
    let (theirs, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let peer = region_for_test(theirs.path());
    peer.copy_in(&[extent(0, 10)], 0, &[9; 10_000]).unwrap();
    let own = region_for_test(ours.path());
    let mapped = attach(theirs.path()).unwrap();
    let good = [extent(0, 2)];
    for (remote, local) in [
        (vec![extent(9, 2)], good.to_vec()),
        (vec![extent(u32::MAX - 1, 1)], good.to_vec()),
        (vec![extent(0, 1)], good.to_vec()),
        (vec![], good.to_vec()),
        (good.to_vec(), vec![extent(0, 1)]),
        (good.to_vec(), vec![extent(9, 2)]),
    ] {
        assert!(own.copy_from_peer(&mapped, &remote, &local, 0, 1001, None).is_err());
        assert!(own.copy_from_peer(&mapped, &good, &good, u64::MAX, 2, None).is_err());
    }
    let read_only = Region::attach_read_only(own.path()).unwrap();
    assert!(read_only.copy_from_peer(&mapped, &good, &good, 0, 1, None).is_err());
    let mut landed = vec![1; 10_000];
    own.copy_out(&[extent(0, 10)], 0, &mut landed).unwrap();
    assert!(landed.iter().all(|byte| *byte == 0));

    assert!(mapped.check(&good, 2000).is_ok());
    assert!(mapped.check(&[], 0).is_ok());
    assert!(mapped.check(&good, 2001).is_err());
    assert!(mapped.check(&[extent(9, 2)], 1).is_err());
    assert!(mapped.check(&[extent(0, 1), extent(9, 2)], 1).is_err());
    assert!(mapped.check(&[extent(4_000_000_000, 1)], 0).is_err());
}

#[rstest]
#[case("")]
#[case("chiasm-")]
#[case("region")]
#[case("../chiasm-it")]
#[case("chiasm-it/../chiasm-it")]
#[case("chiasm-/../../etc/shadow")]
#[case("/dev/shm/chiasm-it")]
#[case("chiasm-it\0")]
#[case("chiasm-it\n")]
#[case("chiasm-\u{e9}")]
fn names_that_are_none_open_nothing(#[case] name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let _region = region_for_test(dir.path());
    let error = PeerRegion::attach(dir.path(), name, EPOCH, BLOCK).unwrap_err();
    assert!(matches!(error, RegionError::InvalidName { .. }), "{error}");
    let shown = error.to_string();
    assert!(!shown.contains(['\0', '\n', '\u{e9}']), "{shown:?}");
    let long = "chiasm-".to_owned() + &"x".repeat(1 << 20);
    let error = PeerRegion::attach(dir.path(), &long, EPOCH, BLOCK).unwrap_err();
    assert!(error.to_string().len() < 300);
}

#[test]
fn nothing_but_a_live_region_of_this_user_is_mapped() {
    let _quiet = no_spawns();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let path = dir.join(NAME);
    let io = |error: &RegionError| matches!(error, RegionError::Io { operation: "open", .. });
    assert!(io(&refused(dir)), "nothing there");

    fs::create_dir(&path).unwrap();
    let cause = |error| match error {
        RegionError::Foreign { cause, .. } => cause,
        other => panic!("{other}"),
    };
    assert_eq!(cause(refused(dir)), ForeignCause::NotRegular);
    fs::remove_dir(&path).unwrap();

    let elsewhere = tempfile::tempdir().unwrap();
    let region = region_for_test(elsewhere.path());
    symlink(region.path(), &path).unwrap();
    assert_eq!(cause(refused(dir)), ForeignCause::NotRegular, "a link is not followed");
    fs::remove_file(&path).unwrap();

    let region = region_for_test(dir);
    attach(dir).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(cause(refused(dir)), ForeignCause::Mode { mode: 0o640 });
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(65_534), None).unwrap();
    assert_eq!(cause(refused(dir)), ForeignCause::Owner { uid: 65_534 });
    chown(&path, Some(0), None).unwrap();
    attach(dir).unwrap();
    drop(region);
}

#[test]
fn another_life_another_block_size_and_missing_memory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let region = region_for_test(dir);
    let error = PeerRegion::attach(dir, NAME, EPOCH + 1, BLOCK).unwrap_err();
    assert!(matches!(error, RegionError::OtherLife { .. }), "{error}");
    let error = PeerRegion::attach(dir, NAME, EPOCH, BLOCK + 1).unwrap_err();
    assert!(matches!(error, RegionError::BlockSize { found: 1000, expected: 1001, .. }), "{error}");

    // A file that is as long as its header says, of which hardly a page is there.
    let sparse = dir.join("chiasm-sparse");
    let mut header = vec![0; 256];
    File::open(region.path()).unwrap().read_exact_at(&mut header, 0).unwrap();
    let file = File::create_new(&sparse).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.set_len(fs::metadata(region.path()).unwrap().len()).unwrap();
    file.write_all_at(&header, 0).unwrap();
    flock(&file, FlockOperation::LockShared).unwrap();
    let error = PeerRegion::attach(dir, "chiasm-sparse", EPOCH, BLOCK).unwrap_err();
    assert!(matches!(error, RegionError::Holes { .. }), "{error}");
    // A header that lies about what follows it.
    for (at, lie) in [(0, &b"x"[..]), (8, &[9]), (12, &[200]), (16, &[0; 8]), (32, &[1])] {
        file.write_all_at(&header, 0).unwrap();
        file.write_all_at(lie, at).unwrap();
        let error = PeerRegion::attach(dir, "chiasm-sparse", EPOCH, BLOCK).unwrap_err();
        assert!(matches!(error, RegionError::Header { .. }), "at {at}: {error}");
    }
}

/// Its owner was killed: nobody vouches for the bytes, and there is nobody to ask.
#[test]
fn a_region_whose_owner_is_dead_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    Child::run("hold", dir.path()).kill();
    let _quiet = no_spawns();
    let error = refused(dir.path());
    assert!(matches!(error, RegionError::Stale { .. }), "{error}");
}

/// A mapping is no reason why an owner could not go, or come back under the same name.
#[test]
fn the_owner_ends_and_starts_again_while_its_old_pages_are_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let ours = tempfile::tempdir().unwrap();
    let own = region_for_test(ours.path());
    let child = Child::run("serve", dir);
    let mapped = attach(dir).unwrap();
    child.kill();
    let _quiet = no_spawns();
    assert_eq!(reclaim_stale(dir).unwrap(), [dir.join(NAME)], "the reader keeps no lock");
    let again = Region::create(&options_for_test(dir)).unwrap();
    again.copy_in(&[extent(0, 10)], 0, &[0xEE; 10_000]).unwrap();
    let extents = [extent(2, 3)];
    own.copy_from_peer(&mapped, &extents, &extents, 0, 3000, None).unwrap();
    let mut landed = vec![0; 3000];
    own.copy_out(&extents, 0, &mut landed).unwrap();
    assert!(landed == pattern(3000), "the old bytes, not the new tenant's");
    assert_eq!(mapped.path(), again.path());
}
