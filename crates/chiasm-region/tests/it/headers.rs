//! A header is a file's content, and may be anything (S7).

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};

use chiasm_region::{Region, RegionError};
use proptest::prelude::*;
use rustix::fs::{FlockOperation, flock};

use crate::support::{NAME, extent, region_for_test, traces};

/// A real header's bytes, and the file's size.
fn real_header() -> (Vec<u8>, u64) {
    let dir = tempfile::tempdir().unwrap();
    let region = region_for_test(dir.path());
    let mut bytes = fs::read(region.path()).unwrap();
    let file_bytes = bytes.len() as u64;
    bytes.truncate(256);
    (bytes, file_bytes)
}

/// Attach to a live file with this header; whether that worked, and then it can be used.
fn attach(header: &[u8], file_bytes: u64) -> Result<bool, TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(NAME);
    let file = File::create_new(&path).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.set_len(file_bytes).unwrap();
    file.write_all_at(header, 0).unwrap();
    flock(&file, FlockOperation::LockShared).unwrap();
    let before = traces(dir.path());
    let attached = match Region::attach(&path) {
        Ok(region) => {
            // Both ends of what it says are there.
            let last = extent(region.blocks() - 1, 1);
            region.copy_in(&[last], region.block_size_bytes() - 1, b"x").unwrap();
            region.copy_in(&[extent(0, 1)], 0, b"x").unwrap();
            true
        }
        Err(RegionError::Header { .. }) => false,
        Err(other) => panic!("{other}"),
    };
    prop_assert_eq!(traces(dir.path()), before);
    Ok(attached)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused(header in prop::collection::vec(any::<u8>(), 0..300), file_bytes in 0..200_000_u64) {
        prop_assert!(!attach(&header, file_bytes)?);
    }

    #[test]
    fn any_change_of_a_real_header_is_refused_or_harmless(
        changes in prop::collection::vec((0..256_usize, prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()]), 1..6),
        file_bytes in prop_oneof![4 => Just(None), 1 => (0..200_000_u64).prop_map(Some)],
    ) {
        let (mut header, real_bytes) = real_header();
        for (at, byte) in changes {
            header[at] = byte;
        }
        attach(&header, file_bytes.unwrap_or(real_bytes))?;
    }

    #[test]
    fn any_geometry_is_refused_unless_the_file_is_exactly_that(
        blocks in any::<u32>(), block_size in any::<u64>(), header_bytes in any::<u64>(), stated in any::<u64>(),
        which in 0..16_u8,
    ) {
        let (mut header, real_bytes) = real_header();
        let fields: [(usize, &[u8]); 4] = [
            (12, &blocks.to_le_bytes()),
            (16, &block_size.to_le_bytes()),
            (24, &header_bytes.to_le_bytes()),
            (32, &stated.to_le_bytes()),
        ];
        for (bit, (at, field)) in fields.into_iter().enumerate() {
            if which & (1 << bit) != 0 {
                header[at..at + field.len()].copy_from_slice(field);
            }
        }
        prop_assert_eq!(attach(&header, real_bytes)?, which == 0);
    }
}
