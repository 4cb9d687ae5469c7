//! Where a region's memory comes from, and in what pages.

use std::fs;

use chiasm_region::{Region, RegionError, RegionOptions};

use crate::small_tmpfs::Tmpfs;
use crate::support::{extent, options_for_test, pattern, traces};

/// The lines of `file` about this mapping.
fn lines_about(file: &str, region: &Region) -> Vec<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let path = region.path().parent().unwrap().to_str().unwrap();
    let line = maps.lines().find(|line| line.contains(path)).expect("it is mapped");
    let start = line.split_once('-').unwrap().0.to_owned();
    let all = fs::read_to_string(file).unwrap();
    all.lines().skip_while(|line| !line.starts_with(&start)).take(30).map(str::to_owned).collect()
}

fn is_usable(region: &Region, bytes: usize) {
    let blocks = region.blocks();
    region.copy_in(&[extent(0, blocks)], 0, &pattern(bytes)).unwrap();
    let mut seen = vec![0; bytes];
    region.copy_out(&[extent(0, blocks)], 0, &mut seen).unwrap();
    assert!(seen == pattern(bytes));
}

#[test]
fn huge_pages_are_asked_for_and_what_came_of_it_is_told() {
    // The mount decides, not the system's default for memory without one.
    let tmpfs = Tmpfs::mount("size=64m,huge=advise");
    let plain =
        RegionOptions { blocks: 4096, block_size_bytes: 4096, ..options_for_test(tmpfs.path()) };
    let region = Region::create(&plain).unwrap();
    assert_eq!(region.huge_page_bytes().unwrap(), 0, "nobody asked");
    drop(region);

    let region = Region::create(&RegionOptions { huge_pages: true, ..plain }).unwrap();
    let flags = lines_about("/proc/self/smaps", &region);
    let flags = flags.iter().find(|line| line.starts_with("VmFlags:")).unwrap();
    assert!(flags.split_whitespace().any(|flag| flag == "hg"), "{flags}");
    // How many there are is the system's choice: none, where memory is in pieces.
    let huge = region.huge_page_bytes().unwrap();
    assert!(huge <= 4096 * 4096 + 65_536, "{huge}");
    assert!(huge.is_multiple_of(1 << 20), "{huge}");
    is_usable(&region, 4096 * 4096);
    let file = fs::metadata(region.path()).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&file) * 512 >= file.len(), "all is reserved");
}

#[test]
fn huge_pages_that_nobody_has_are_no_error_and_too_little_memory_still_is() {
    let tmpfs = Tmpfs::mount("size=1m,huge=never");
    let fits = RegionOptions { huge_pages: true, ..options_for_test(tmpfs.path()) };
    let region = Region::create(&fits).unwrap();
    assert_eq!(region.huge_page_bytes().unwrap(), 0);
    is_usable(&region, 10_000);
    drop(region);

    for mount in ["size=1m,huge=never", "size=4m,huge=always"] {
        let tmpfs = Tmpfs::mount(mount);
        let before = traces(tmpfs.path());
        let large = RegionOptions {
            huge_pages: true,
            blocks: 2048,
            block_size_bytes: 4096,
            ..options_for_test(tmpfs.path())
        };
        let error = Region::create(&large).unwrap_err();
        assert!(matches!(error, RegionError::NoSpace { .. }), "{mount}: {error}");
        assert_eq!(traces(tmpfs.path()), before);
    }
}

#[test]
fn memory_comes_from_the_node_that_was_asked_for() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options = RegionOptions { numa_node: Some(0), ..options_for_test(dir.path()) };
    let region = Region::create(&options).unwrap();
    let lines = lines_about("/proc/self/numa_maps", &region);
    assert!(lines[0].contains("bind:0"), "{}", lines[0]);
    is_usable(&region, 10_000);
}

#[test]
fn a_node_that_is_not_there_is_an_error_that_says_where_to_look_and_leaves_nothing() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for node in [63, 1000, 1024, u32::MAX] {
        let before = traces(dir.path());
        let options = RegionOptions { numa_node: Some(node), ..options_for_test(dir.path()) };
        let error = Region::create(&options).unwrap_err();
        assert!(matches!(error, RegionError::Numa { .. }), "{error}");
        for part in [&node.to_string(), "/sys/devices/system/node/online", "CAP_SYS_NICE"] {
            assert!(error.to_string().contains(part), "{part} in {error}");
        }
        assert_eq!(traces(dir.path()), before);
    }
}
