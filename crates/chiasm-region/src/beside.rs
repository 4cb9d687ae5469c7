//! The sockets beside a region: their names, and what becomes of them when the region is gone.
//!
//! It must never remove a socket that somebody listens on, one of another user's, or anything that is
//! no socket.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::options::is_region_name;

/// What the name of the status socket beside a region has more than the region's own.
const STATUS_SUFFIX: &str = ".status";

/// Where the node that made the region at `region` listens for `chiasm status`.
///
/// The socket lives and dies inside the region's life: it is made after the region has its name and
/// removed before that goes, by its node or, together with a dead region, by the next start. So
/// whether a socket is a left-over is decided by the region's lock too.
#[must_use]
pub fn status_socket(region: &Path) -> PathBuf {
    let mut path = region.as_os_str().to_owned();
    path.push(STATUS_SUFFIX);
    path.into()
}

/// What the name of the wake-up socket beside a region has more than the region's own.
const WAKE_SUFFIX: &str = ".wake";

/// Where the node of the region at `region` is woken by its workers: a Unix datagram socket, mode 0600.
/// It lives and dies as the [`status_socket`] does.
#[must_use]
pub fn wake_socket(region: &Path) -> PathBuf {
    let mut path = region.as_os_str().to_owned();
    path.push(WAKE_SUFFIX);
    path.into()
}

/// The region that a status socket belongs to; `None` if `path` is no name of one.
#[must_use]
pub fn region_of_status_socket(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_suffix(STATUS_SUFFIX)?;
    is_region_name(name).then(|| path.with_file_name(name))
}

/// Remove what is at `path` if it is a socket of this user's. A failure leaves a socket on which nobody
/// listens: untidy, no more.
pub(crate) fn remove(path: &Path) {
    if own_socket(path).is_some() {
        let _ = fs::unlink(path);
    }
}

/// Remove a socket of this user's that has the name of one beside a region, where that region is gone
/// and nobody listens; whether it was removed.
pub(crate) fn remove_if_orphan(path: &Path) -> bool {
    let Some((region, kind)) = region_and_kind(path) else { return false };
    let is_gone = || matches!(fs::lstat(&region), Err(Errno::NOENT));
    let Some(seen) = own_socket(path).filter(|_| is_gone()) else { return false };
    if !refuses(path, kind) {
        return false;
    }
    // A node that has taken the name since has made the region first.
    let is_same = |now: Stat| (now.st_dev, now.st_ino) == (seen.st_dev, seen.st_ino);
    is_gone() && own_socket(path).is_some_and(is_same) && fs::unlink(path).is_ok()
}

fn region_and_kind(path: &Path) -> Option<(PathBuf, SocketType)> {
    let name = path.file_name()?.to_str()?;
    let of = |suffix, kind| {
        let region = name.strip_suffix(suffix).filter(|region| is_region_name(region))?;
        Some((path.with_file_name(region), kind))
    };
    of(STATUS_SUFFIX, SocketType::STREAM).or_else(|| of(WAKE_SUFFIX, SocketType::DGRAM))
}

fn own_socket(path: &Path) -> Option<Stat> {
    let is_ours = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Socket
            && stat.st_uid == rustix::process::geteuid().as_raw()
    };
    fs::lstat(path).ok().filter(is_ours)
}

/// Whether it is certain that nobody listens.
fn refuses(path: &Path, kind: SocketType) -> bool {
    // Where a queue is full somebody listens: never wait in it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || -> Result<(OwnedFd, SocketAddrUnix), Errno> {
        Ok((socket_with(AddressFamily::UNIX, kind, flags, None)?, SocketAddrUnix::new(path)?))
    };
    let Ok((socket, address)) = open() else { return false };
    matches!(connect(&socket, &address), Err(Errno::CONNREFUSED))
}
