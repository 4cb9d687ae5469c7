//! A child process that is never left behind: ended and reaped at the latest when it is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The child.
#[derive(Debug)]
pub(crate) struct OwnedChild {
    child: Child,
    /// Names this process and no later one of its number.
    pidfd: Option<OwnedFd>,
    status: Option<ExitStatus>,
}

impl OwnedChild {
    pub(crate) fn new(child: Child) -> Self {
        Self { child, pidfd: None, status: None }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A descriptor that is readable once the process has ended.
    pub(crate) fn pidfd(&mut self) -> io::Result<OwnedFd> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        self.pidfd = Some(pidfd.try_clone()?);
        Ok(pidfd)
    }

    /// Send SIGKILL, which a stopped process obeys too.
    pub(crate) fn kill(&mut self) {
        // It fails for a process that has ended and is not there to be signalled: nothing to do. Not by its
        // number, which is another process's once somebody else has reaped it.
        let _ = match &self.pidfd {
            Some(pidfd) => pidfd_send_signal(pidfd, Signal::KILL).map_err(io::Error::from),
            None => self.child.kill(),
        };
    }

    /// How it ended, once it has; it is reaped then. Does not wait.
    pub(crate) fn reap(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = match self.child.try_wait() {
                Ok(status) => status,
                // Reaped by somebody else in this process (an engine that collects all children): how it
                // ended is not known, but it is gone.
                Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => {
                    Some(ExitStatus::from_raw(0))
                }
                Err(_) => None,
            };
        }
        self.status
    }
}

impl Drop for OwnedChild {
    /// S9. Two to twenty milliseconds, if it has to be killed.
    fn drop(&mut self) {
        if self.reap().is_none() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}
