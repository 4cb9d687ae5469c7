//! A Unix socket beside the region, and its name in the file system.
//!
//! It must never be reachable by another user, not even for a moment, and never take a name from
//! something that is not a dead socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

/// Gone with its name when it is dropped.
#[derive(Debug)]
pub(crate) struct NamedSocket {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode, so that only this socket's name is removed.
    identity: (u64, u64),
    /// A forked child has a copy of this value; the name is not its to remove.
    process: u32,
}

impl NamedSocket {
    /// Binds a non-blocking socket of this `kind` to a path beside a region whose name and lock this
    /// process has.
    pub(crate) fn bind(path: PathBuf, kind: SocketType) -> io::Result<Self> {
        // Longer than a socket's address can be (108 bytes) is InvalidInput or NameTooLong here.
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // Linux gives the name the mode that the socket has when it is bound, less the umask, so there
        // is no moment with wider rights, and the umask, which all threads share, stays as it is.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        match bind(&socket, &address) {
            // The region's name is ours, so what is left of an earlier life is dead.
            Err(Errno::ADDRINUSE) if named(&path).is_some_and(|stat| is_own_socket(&stat)) => {
                rustix::fs::unlink(&path)?;
                bind(&socket, &address)?;
            }
            bound => bound?,
        }
        let stat = named(&path).ok_or(Errno::NOENT)?;
        let identity = (stat.st_dev, stat.st_ino);
        let bound = Self { socket, path, identity, process: std::process::id() };
        // Where a file system knows no modes, nobody gets through, and the drop takes the name back.
        if Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
            return Err(io::Error::other("others may open it here: the mode is not 0600"));
        }
        Ok(bound)
    }
}

impl AsFd for NamedSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for NamedSocket {
    fn drop(&mut self) {
        let is_there = |stat: Stat| (stat.st_dev, stat.st_ino) == self.identity;
        if self.process == std::process::id() && named(&self.path).is_some_and(is_there) {
            // Nothing can be done about a failure here; it goes with the region at the next start.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// What has this name, a link itself and not where it leads to.
fn named(path: &Path) -> Option<Stat> {
    rustix::fs::lstat(path).ok()
}

/// Whether it is a socket of this user's.
pub(crate) fn is_own_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
        && stat.st_uid == rustix::process::geteuid().as_raw()
}
