//! E2: a start that fails leaves nothing, and says what to do.

use std::path::Path;

use chiasm_region::{Region, RegionError, RegionOptions};
use rstest::rstest;

use crate::child::Child;
use crate::support::{options_for_test, traces};

/// The error of a start that must fail, and that it left no file, descriptor or mapping.
fn fails(dir: &Path, options: &RegionOptions) -> RegionError {
    let before = traces(dir);
    let error = Region::create(options).expect_err("these options make no region");
    assert_eq!(traces(dir), before);
    error
}

#[test]
fn no_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let options = RegionOptions { blocks: 0, ..options_for_test(dir.path()) };
    assert!(matches!(fails(dir.path(), &options), RegionError::ZeroBlocks));
}

#[test]
fn blocks_of_no_size() {
    let dir = tempfile::tempdir().unwrap();
    let options = RegionOptions { block_size_bytes: 0, ..options_for_test(dir.path()) };
    assert!(matches!(fails(dir.path(), &options), RegionError::ZeroBlockSize));
}

#[rstest]
#[case(u32::MAX, u64::MAX)]
#[case(1, u64::MAX)]
#[case(2, 1 << 62)]
#[case(u32::MAX, 1 << 32)]
fn more_than_an_address_space(#[case] blocks: u32, #[case] block_size_bytes: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = RegionOptions { blocks, block_size_bytes, ..options_for_test(dir.path()) };
    let error = fails(dir.path(), &options);
    assert!(matches!(error, RegionError::TooLarge { .. }), "{error}");
}

#[rstest]
#[case("")]
#[case("region")]
#[case("chiasm-")]
#[case("chiasm-a/../b")]
#[case("../chiasm-a")]
#[case("chiasm-/../../a")]
fn a_name_that_is_none(#[case] name: &str) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("chiasm-a")).unwrap();
    let options = RegionOptions { name: name.to_owned(), ..options_for_test(dir.path()) };
    let error = fails(dir.path(), &options);
    assert!(matches!(error, RegionError::InvalidName { .. }), "{error}");
}

#[test]
fn a_file_in_place_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let error = fails(dir.path(), &options_for_test(&file));
    assert!(matches!(error, RegionError::Io { .. }), "{error}");
}

#[test]
fn an_address_space_that_is_too_small_for_the_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let child = Child::run("no address space", dir.path());
    assert_eq!(child.said, "cannot map: OutOfMemory, clean: true");
    assert!(child.finish().success());
}
