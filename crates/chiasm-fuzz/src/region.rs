//! A region's header and its completion rings, as anybody may have left them or written over them.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use chiasm_core::cache::EntryKey;
use chiasm_core::dispatch::{DispatchId, MAX_RANKS, Outcome, Rank, Receipt};
use chiasm_core::extent::Extent;
use chiasm_region::{Completions, Region, RegionError, RegionOptions, Worker, WorkerLife};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::input::Input;

/// Bytes of the header proper, and of the area in front of the blocks.
const HEADER_BYTES: usize = 256;
const AREA_BYTES: u64 = 64 << 10;

/// A directory in memory, which goes with the value: a run leaves nothing behind.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").expect("room for a small directory")
}

/// A region in `dir`, as small as its blocks are.
pub(crate) fn options(dir: &TempDir, blocks: u32, block_bytes: u64) -> RegionOptions {
    let dir = dir.path().to_owned();
    RegionOptions { dir, ..RegionOptions::new("chiasm-fuzz", blocks, block_bytes) }
}

/// A real header and the size of its file.
fn real() -> &'static (Vec<u8>, u64) {
    static REAL: OnceLock<(Vec<u8>, u64)> = OnceLock::new();
    REAL.get_or_init(|| {
        let dir = directory();
        let region = Region::create(&options(&dir, 3, 100)).expect("room for a small region");
        let mut bytes = fs::read(region.path()).expect("our own file");
        let size = bytes.len() as u64;
        bytes.truncate(HEADER_BYTES);
        (bytes, size)
    })
}

/// The first byte says whether a real header is changed, at a place by a byte each, or given whole; the
/// second how long the file is.
pub(crate) fn header(bytes: &[u8]) {
    let (real_header, real_size) = real();
    let mut input = Input::new(bytes);
    let changed = input.flag();
    let size = match input.byte() {
        0..=200 => *real_size,
        other => AREA_BYTES - 128 + u64::from(other) * 4,
    };
    let mut header = if changed { real_header.clone() } else { Vec::new() };
    if changed {
        while !input.is_empty() {
            let place = input.below(HEADER_BYTES);
            header[place] = input.byte();
        }
    } else {
        header.extend(input.take(HEADER_BYTES));
    }

    let dir = directory();
    let path = dir.path().join("chiasm-fuzz");
    let file = dead_file(&path, size, &header);
    flock(&file, FlockOperation::LockShared).expect("nobody else has it");
    for attach in [Region::attach, Region::attach_read_only] {
        match attach(&path) {
            Ok(region) => {
                assert_eq!(file.metadata().expect("an open file").len(), *real_size);
                let mut last = [0];
                let extents = [Extent::new(region.blocks() - 1, 1).expect("not empty")];
                let read = region.copy_out(&extents, region.block_size_bytes() - 1, &mut last);
                read.expect("the last byte is there");
            }
            Err(error) => {
                assert!(matches!(error, RegionError::Header { .. }), "{error}");
                assert!(error.to_string().len() < 1024);
            }
        }
    }
    drop(file);
    fs::remove_file(path).expect("still there: nobody but its creator removes it");
}

fn dead_file(path: &PathBuf, size: u64, header: &[u8]) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path);
    let file = file.expect("a new file");
    file.set_permissions(Permissions::from_mode(0o600)).expect("our own file");
    file.set_len(size).expect("room");
    file.write_all_at(header, 0).expect("room");
    file
}

/// Words over the area behind the header: as 16 bits of place and a number, or as a record of a ring;
/// in between the node takes what is there.
pub(crate) fn rings(bytes: &[u8]) {
    let dir = directory();
    let options = options(&dir, 2, 64);
    let mut region = Region::create_or_attach(&options).expect("room for a small region");
    region.claim_node().expect("nobody else has it");
    let file = File::options().write(true).open(region.path()).expect("our own file");
    let mut completions = Completions::new();
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        match input.below(4) {
            0 => {
                let place = u64::from(input.byte()) * 256 + u64::from(input.byte() & !7);
                let word = input.size().to_le_bytes();
                if place >= HEADER_BYTES as u64 {
                    file.write_all_at(&word, place).expect("inside the file");
                }
            }
            1 | 2 => {
                let ring = u64::try_from(input.below(usize::from(MAX_RANKS))).expect("small");
                let slot = u64::try_from(input.below(64)).expect("small");
                let at = 4096 + ring * 3840 + 128 + slot * 56;
                for word in 0..7 {
                    let number = input.size().to_le_bytes();
                    file.write_all_at(&number, at + word * 8).expect("inside the file");
                }
            }
            _ => take(&mut completions, &region),
        }
    }
    for _ in 0..3 {
        take(&mut completions, &region);
    }
    // A worker that joins works, or is told that it cannot.
    let rank = Rank::new(0).expect("the first");
    if let Ok(mut worker) = Worker::attach(&options, rank) {
        let receipt = Receipt {
            dispatch: DispatchId::from_u64(1),
            key: EntryKey::from_parts(0, 1),
            bytes: 1,
        };
        let _ = worker.try_complete(receipt, Outcome::Failed);
        assert!(matches!(completions.worker(&region, rank), WorkerLife::Alive(_)));
    }
    let path = region.path().to_owned();
    drop(region);
    assert!(!path.exists(), "it goes with its last user, whatever was written into it");
}

fn take(completions: &mut Completions, region: &Region) {
    let before = completions.garbage();
    let reports = completions.take(region).len() as u64;
    let taken = reports + completions.garbage() - before;
    assert!(taken <= u64::from(MAX_RANKS) * 64, "{taken} records at once");
    let _ = completions.may_sleep(region);
    completions.awake(region);
}
