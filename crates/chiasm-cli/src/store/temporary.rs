//! Files that are being written into a store and do not have their names yet, and what is left of them.
//!
//! Each is locked while its writer lives. It must never remove one that is locked, or another user's.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use tempfile::NamedTempFile;

const PREFIX: &str = ".chiasm-";
const SUFFIX: &str = ".tmp";

/// Attempts to get a file that nobody takes for a dead one before it is locked.
const ATTEMPTS: u32 = 16;

/// A new empty file in `out`, locked; it goes when it is dropped.
pub(super) fn create(out: &Path) -> io::Result<NamedTempFile> {
    for _ in 0..ATTEMPTS {
        // As any new file: what others may do with it is for the umask to say.
        let temporary = tempfile::Builder::new()
            .prefix(PREFIX)
            .suffix(SUFFIX)
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(out)?;
        match flock(temporary.as_file(), FlockOperation::NonBlockingLockExclusive) {
            // Found before it was locked, it looked dead and is gone, or goes.
            Ok(()) if is_at(temporary.as_file(), temporary.path()) => return Ok(temporary),
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            // A file system without locks: then nothing is ever taken for dead there.
            Err(_) => return Ok(temporary),
        }
    }
    Err(io::Error::other("the files that are being written there are removed at once by others"))
}

/// Removes what writers have left in `out` that were killed. What is in the way of that stays.
pub(super) fn remove_dead(out: &Path) {
    for entry in fs::read_dir(out).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            remove_if_dead(&entry.path());
        }
    }
}

fn remove_if_dead(path: &Path) {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let is_ours =
        |at: &fs::Metadata| at.is_file() && at.uid() == rustix::process::geteuid().as_raw();
    // Before the opening: opening a device may do things.
    if !fs::symlink_metadata(path).is_ok_and(|at| is_ours(&at)) {
        return;
    }
    let Ok(file) = File::options().read(true).custom_flags(flags).open(path) else { return };
    let is_dead = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    if is_dead && is_at(&file, path) {
        let _ = fs::remove_file(path);
    }
}

/// Whether `path` names exactly this open file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}
