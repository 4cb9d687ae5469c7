//! The other end of the status socket: asking a node, as `chiasm status` does.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chiasm_region::region_of_status_socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};

use super::REQUEST;
use crate::named_socket::is_own_socket;

/// Longest answer that is taken, in bytes: ten times what a node with full tables says.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Why a node gave no status.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no socket of this name.
    #[error("{path}: there is no status socket: {error}", path = .path.display())]
    Absent {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is a link, another kind of file, or another user's: not even connected to.
    #[error("{path} is no socket of this user", path = .path.display())]
    Foreign {
        /// Its path.
        path: PathBuf,
    },
    /// The socket is there and nobody listens: its node was killed.
    #[error("{path}: nobody listens, its node was killed", path = .path.display())]
    Dead {
        /// Its path.
        path: PathBuf,
    },
    /// The node lives and does not answer: it hangs, is stopped, or is ending.
    #[error("{path}: the node does not answer: {why}", path = .path.display())]
    Silent {
        /// Its path.
        path: PathBuf,
        /// In which way.
        why: String,
    },
}

/// The status sockets of this user in a directory, by name, whether somebody listens on them or not.
pub fn sockets(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let is_ours = |path: &Path| rustix::fs::lstat(path).is_ok_and(|stat| is_own_socket(&stat));
        if region_of_status_socket(&path).is_some() && is_ours(&path) {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Asks the node that listens at `path` for its status: one JSON object. Takes no longer than
/// `limit`.
pub fn ask(path: &Path, limit: Duration) -> Result<String, AskError> {
    let end = Instant::now() + limit;
    let silent = |why: String| AskError::Silent { path: path.to_owned(), why };
    let socket = open(path, limit)?;
    let sent = send(&socket, REQUEST, SendFlags::NOSIGNAL);
    sent.map_err(|error| silent(io::Error::from(error).to_string()))?;
    let mut answer = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        if !wait(&socket, end).map_err(|error| silent(error.to_string()))? {
            return Err(silent(format!("nothing came within {} s", limit.as_secs_f64())));
        }
        match recv(&socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) => break,
            Ok((count, _)) => answer.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(silent(io::Error::from(error).to_string())),
        }
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(silent(format!("it says more than {MAX_ANSWER_BYTES} bytes")));
        }
    }
    match String::from_utf8(answer) {
        Ok(text) if text.ends_with('\n') => Ok(text.trim_end().to_owned()),
        _ => Err(silent("the answer breaks off".into())),
    }
}

fn open(path: &Path, limit: Duration) -> Result<OwnedFd, AskError> {
    let path_buf = || path.to_owned();
    let absent = |error: Errno| AskError::Absent { path: path_buf(), error: error.into() };
    let stat = rustix::fs::lstat(path).map_err(absent)?;
    if !is_own_socket(&stat) {
        return Err(AskError::Foreign { path: path_buf() });
    }
    let address = SocketAddrUnix::new(path).map_err(absent)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.map_err(absent)?;
    // How long to stand in the queue of those who wait to be accepted.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit)).map_err(absent)?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED) => return Err(AskError::Dead { path: path_buf() }),
        Err(Errno::AGAIN | Errno::TIMEDOUT) => {
            let why = "more clients wait for it than it has taken in".to_owned();
            return Err(AskError::Silent { path: path_buf(), why });
        }
        Err(error) => return Err(absent(error)),
    }
    // What was connected to may be another thing than what was looked at.
    let listener = sockopt::socket_peercred(&socket).map_err(absent)?.uid;
    if listener != rustix::process::geteuid() {
        return Err(AskError::Foreign { path: path_buf() });
    }
    Ok(socket)
}

/// Waits until there is something to read; false if `end` has come first.
fn wait(socket: &OwnedFd, end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut sources = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut sources, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}
