//! One process for each part: a lock on one byte of the region's file for each rank and for the node.
//!
//! Open-file-description locks: exclusive, taken without waiting, given back by the kernel when the
//! last descriptor and the last mapping of the open file are gone, SIGKILL included, and visible
//! across PID namespaces, because no process id is part of them. They do not meet the whole-file
//! `flock` that keeps the region alive: Linux keeps the two kinds apart.
//!
//! It must never wait for a lock, and never unlock.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Take the lock on byte `at` for the open file; whether it was to be had. Taken again by the same
/// open file it is a success.
pub(crate) fn take(file: BorrowedFd<'_>, at: u64) -> io::Result<bool> {
    let mut lock = lock_of(at);
    match control(file, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        // POSIX allows either for a lock that somebody else has.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether another open file has the lock on byte `at`.
pub(crate) fn is_taken(file: BorrowedFd<'_>, at: u64) -> io::Result<bool> {
    let mut lock = lock_of(at);
    control(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn lock_of(at: u64) -> libc::flock {
    // SAFETY: `flock` is plain data; all zeroes is a read lock on the whole file, which is then
    // changed. For these commands the process id has to be zero.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = libc::c_short::try_from(libc::F_WRLCK).expect("a small constant");
    lock.l_whence = libc::c_short::try_from(libc::SEEK_SET).expect("a small constant");
    lock.l_start = libc::off_t::try_from(at).expect("inside the header area");
    lock.l_len = 1;
    lock
}

fn control(file: BorrowedFd<'_>, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open (borrowed), and both commands want one valid `flock`, which
        // they may write to.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
