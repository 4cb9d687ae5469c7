//! What the tests share: regions for tests, and what a region leaves behind in this process.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{RwLock, RwLockReadGuard};

use chiasm_core::cache::EntryKey;
use chiasm_core::dispatch::{DispatchId, Order, OrderKind, Rank};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::extent::Extent;
use chiasm_region::{Region, RegionOptions};

pub(crate) const NAME: &str = "chiasm-it";

/// Ten blocks of 1000 bytes in `dir`.
pub(crate) fn options_for_test(dir: &Path) -> RegionOptions {
    RegionOptions { dir: dir.to_owned(), epoch: 7, ..RegionOptions::new(NAME, 10, 1000) }
}

pub(crate) fn region_for_test(dir: &Path) -> Region {
    Region::create(&options_for_test(dir)).expect("the region can be made")
}

pub(crate) fn extent(first: u32, count: u32) -> Extent {
    Extent::new(first, count).expect("a valid extent")
}

pub(crate) fn rank(number: u16) -> Rank {
    Rank::new(number).expect("a rank")
}

/// The order to save 2500 bytes into blocks 8, 9 and 1.
pub(crate) fn save_for_test(by: u16) -> Order {
    Order {
        kind: OrderKind::Save,
        dispatch: DispatchId::from_u64(77),
        key: EntryKey::from_parts(4, 5),
        ranks: rank(by).into(),
        meta: EntryMeta::new(50, 50, Dtype::Uint8).expect("small"),
        extents: vec![extent(8, 2), extent(1, 1)],
    }
}

/// `len` bytes that differ from their neighbours and from block to block.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).expect("below 251")).collect()
}

/// Everything in the directory, and everything of this process that refers to it: open files and
/// mappings, files without a name included.
pub(crate) fn traces(dir: &Path) -> BTreeSet<String> {
    let dir = dir.to_str().expect("a printable path");
    let names = fs::read_dir(dir)
        .expect("the directory is there")
        .map(|entry| format!("file {}", entry.unwrap().file_name().display()));
    // A descriptor can be closed by another test between the listing and the look.
    let descriptors = fs::read_dir("/proc/self/fd")
        .expect("/proc")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(dir))
        .map(|target| format!("descriptor {}", target.display()));
    let maps = fs::read_to_string("/proc/self/maps").expect("/proc");
    let mappings = maps.lines().filter(|line| line.contains(dir)).map(|m| format!("mapping {m}"));
    names.chain(descriptors).chain(mappings).collect()
}

/// Between its fork and its exec, a new process holds every open file of this one, and so every
/// lock. A test that needs a lock to be gone with its last descriptor must not meet that moment in
/// another test's thread.
static SPAWNING: RwLock<()> = RwLock::new(());

/// Start a process; done with it when the new program runs.
pub(crate) fn spawn(command: &mut Command) -> Child {
    let _alone = SPAWNING.write();
    command.spawn().expect("the program is installed")
}

/// No process is started while the guard lives.
pub(crate) fn no_spawns() -> RwLockReadGuard<'static, ()> {
    SPAWNING.read().expect("no spawn panics")
}
