//! Region files that are already there: opened without following anything, judged before use.
//!
//! It must never write to one.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use chiasm_core::reclaim::{Join, Life, Seen};
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{ForeignCause, RegionError};
use crate::header::{HEADER_BYTES, Header};
use crate::mapping::Access;
use crate::options::page_bytes;
use crate::reclaim;

/// What was found at a path by somebody who wants to use it.
pub(crate) enum Found {
    /// A file of ours that a process uses; now locked by this one too.
    Live(OwnedFd),
    /// A file of ours that nobody uses, or that is just being removed.
    Dead,
    Foreign(ForeignCause),
}

/// Open the file at `path` if it is this user's and alive, and hold its shared lock.
pub(crate) fn open_live(path: &Path, access: Access) -> Result<Found, RegionError> {
    match open_ours(path, access).map_err(|error| RegionError::io("open", path, error))? {
        Ok(file) => hold(file, path),
        Err(cause) => Ok(Found::Foreign(cause)),
    }
}

/// Hold the shared lock of this open file of ours, if `path` is its name and somebody uses it.
pub(crate) fn hold(file: OwnedFd, path: &Path) -> Result<Found, RegionError> {
    let mut join = Join::new();
    let mut life = join.saw(Seen::Yes);
    while life.is_none() {
        life = join.saw(reclaim::see(join.look(), Some(&file), path)?);
    }
    Ok(if life == Some(Life::Live) { Found::Live(file) } else { Found::Dead })
}

/// Open `path` without following a link or waiting for a pipe, if it is a regular file of this
/// user's that nobody else may open.
pub(crate) fn open_ours(
    path: &Path,
    access: Access,
) -> Result<Result<OwnedFd, ForeignCause>, Errno> {
    // Before the opening: opening a device may do things, and another user's file fails to open.
    if let Err(cause) = judge(&fs::lstat(path)?) {
        return Ok(Err(cause));
    }
    let mode = match access {
        Access::ReadWrite => OFlags::RDWR,
        Access::ReadOnly => OFlags::RDONLY,
    };
    let flags = mode | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::LOOP) => return Ok(Err(ForeignCause::NotRegular)),
        Err(error) => return Err(error),
    };
    // After it: what was opened may be another file than what was looked at.
    Ok(judge(&fs::fstat(&file)?).map(|()| file))
}

fn judge(stat: &Stat) -> Result<(), ForeignCause> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ForeignCause::NotRegular);
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(ForeignCause::Owner { uid: stat.st_uid });
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o077 != 0 {
        return Err(ForeignCause::Mode { mode });
    }
    Ok(())
}

/// Try to take a lock; whether it was to be had.
pub(crate) fn lock(
    file: &OwnedFd,
    operation: FlockOperation,
    path: &Path,
) -> Result<bool, RegionError> {
    match rustix::io::retry_on_intr(|| fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(RegionError::io("lock", path, error)),
    }
}

/// Whether `path` names exactly this open file.
pub(crate) fn is_at(file: BorrowedFd<'_>, path: &Path) -> bool {
    match (fs::fstat(file), fs::lstat(path)) {
        (Ok(open), Ok(named)) => (open.st_dev, open.st_ino) == (named.st_dev, named.st_ino),
        _ => false,
    }
}

/// The first bytes of the file, as many of a header's as there are.
pub(crate) fn first_bytes(file: BorrowedFd<'_>, path: &Path) -> Result<Vec<u8>, RegionError> {
    let mut bytes = vec![0; HEADER_BYTES];
    // A regular file gives all it has in one read.
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(file, bytes.as_mut_slice(), 0))
        .map_err(|error| RegionError::io("read", path, error))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The header of the region in `file`, checked against what the file is.
pub(crate) fn read_header(file: BorrowedFd<'_>, path: &Path) -> Result<Header, RegionError> {
    let bytes = first_bytes(file, path)?;
    let stat = fs::fstat(file).map_err(|error| RegionError::io("stat", path, error))?;
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    Header::parse(&bytes, file_bytes, page_bytes())
        .map_err(|source| RegionError::Header { path: path.to_owned(), source })
}
