//! The listening socket of the status, and its name in the file system.
//!
//! It must never be reachable by another user, not even for a moment, and never take a name from
//! something that is not a dead socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use chiasm_region::{Region, status_socket};
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    sockopt,
};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 8;

/// Gone with its name when it is dropped.
#[derive(Debug)]
pub(crate) struct StatusSocket {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode, so that only this socket's name is removed.
    identity: (u64, u64),
    /// A forked child has a copy of this value; the name is not its to remove.
    process: u32,
}

impl StatusSocket {
    /// Listens beside the region, whose name and lock this process has.
    pub(crate) fn beside(region: &Region) -> io::Result<Self> {
        let path = status_socket(region.path());
        // Longer than a socket's address can be (108 bytes) is InvalidInput or NameTooLong here.
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
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
        // Where a file system knows no modes, nobody listens, and the drop takes the name back.
        if Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
            return Err(io::Error::other("others may open it here: the mode is not 0600"));
        }
        listen(&bound.socket, BACKLOG)?;
        Ok(bound)
    }

    /// The next client, if one waits and is of this user (or root, who may everything).
    pub(crate) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(client) => {
                let peer = sockopt::socket_peercred(&client)?.uid;
                Ok((peer.is_root() || peer == rustix::process::geteuid()).then_some(client))
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for StatusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for StatusSocket {
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
pub(super) fn is_own_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
        && stat.st_uid == rustix::process::geteuid().as_raw()
}
