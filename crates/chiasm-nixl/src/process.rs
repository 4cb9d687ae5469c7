//! A helper process as its node has it: one descriptor to wait on, commands in, events out.
//!
//! It must never block, but to start a process (about a millisecond) and, when dropped, to see one end
//! that it has killed (2 to 20 ms), or that peers have something under way with (`DROP_LIMIT`). It decides
//! nothing: when to start again, and whom to blame, is for the node to say.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command as Program, Stdio};

use chiasm_region::{Lending, Region, RegionError};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, recv, send, sendmsg, socketpair,
};

use crate::child::OwnedChild;
use crate::command::Command;
use crate::event::{Ended, Event};
use crate::frame::{Incoming, Outgoing};
use crate::launch::Launch;
use crate::limits::MAX_LAST_WORDS_BYTES;
use crate::settings::Settings;
use crate::setup::{PROTOCOL_REVISION, Role, Setup};

/// Reads of 4 KiB from its standard error at once: 64 KiB and the end, what a pipe holds.
const MAX_READS_OF_ERRORS: usize = 17;

/// How long a helper that peers have something under way with may take to end when it is dropped. A read
/// takes a few milliseconds; one that hangs would take for ever.
const DROP_LIMIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Why a helper could not be started. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The region could not be lent to it.
    #[error("cannot lend the region to a NIXL helper process: {0}")]
    Region(#[from] RegionError),
    /// The program could not be started.
    #[error("cannot start the NIXL helper process {program}: {source}")]
    Spawn {
        /// The program.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Descriptors are used up, or some such.
    #[error("cannot set up a NIXL helper process: {0}")]
    System(#[from] io::Error),
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// More than 4 MiB wait to be written: the helper does not keep up, or hangs. Try again later, or
    /// kill it.
    #[error("the NIXL helper process does not take its commands")]
    Full,
    /// The helper has ended, or is about to: [`Event::Ended`] comes.
    #[error("the NIXL helper process has ended")]
    Ended,
}

/// A running helper.
///
/// Wait until its descriptor ([`AsFd`]) is readable, then call [`recv`](Self::recv) until that gives
/// `None`. The descriptor is an epoll set of its own: put it into another one, or poll it.
///
/// Dropped, the process is killed and waited for, if it lives (S9). If reads are in flight in it, or a grant
/// is live, it has a second to see them end: a peer may come to harm by its end (hazard B3).
#[derive(Debug)]
pub struct HelperProcess {
    child: OwnedChild,
    /// Over the socket, the process and its standard error.
    epoll: OwnedFd,
    socket: Option<OwnedFd>,
    process: OwnedFd,
    errors: Option<OwnedFd>,
    waits_to_write: bool,
    incoming: Incoming,
    outgoing: Outgoing,
    fault: Option<String>,
    last_words: Vec<u8>,
    ended: bool,
    /// A grant over nixl is live.
    live: bool,
    /// Reads in flight.
    reads: usize,
}

impl HelperProcess {
    /// Start one. `region` is lent to it, as far as its role needs it. [`Event::Ready`] comes when it is
    /// up (60 to 500 ms), or [`Event::Refused`], or [`Event::Ended`].
    pub fn start(
        launch: &Launch,
        settings: &Settings,
        role: &Role,
        region: Option<&Region>,
    ) -> Result<Self, StartError> {
        let lent = lend(role, region)?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(io::Error::from)?;
        let setup = Setup {
            protocol_revision: PROTOCOL_REVISION,
            role: role.clone(),
            settings: settings.clone(),
        };
        // Before there is anybody to read it: one that ends at once is an event and not an error here.
        send_setup(&ours, &setup, &lent)?;
        let (errors, error_writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(io::Error::from)?;
        rustix::io::ioctl_fionbio(&errors, true).map_err(io::Error::from)?;
        let output = error_writer.try_clone()?;
        let child = Program::new(&launch.program)
            .args(&launch.arguments)
            .env_clear()
            .envs(Settings::defaults())
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .envs(settings.environment())
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(error_writer))
            .spawn()
            .map_err(|source| StartError::Spawn {
                program: launch.program.display().to_string(),
                source,
            })?;
        let mut child = OwnedChild::new(child);
        let process = child.pidfd()?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        for source in [ours.as_fd(), process.as_fd(), errors.as_fd()] {
            epoll::add(&epoll, source, EventData::new_u64(0), EventFlags::IN)
                .map_err(io::Error::from)?;
        }
        Ok(Self {
            child,
            epoll,
            socket: Some(ours),
            process,
            errors: Some(errors),
            waits_to_write: false,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            fault: None,
            last_words: Vec::new(),
            ended: false,
            live: false,
            reads: 0,
        })
    }

    /// Its process id, for logs.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Hand it a command: written now as far as the socket takes it, else later, as
    /// [`recv`](Self::recv) is called.
    pub fn send(&mut self, command: &Command) -> Result<(), SendError> {
        if self.ended || self.socket.is_none() {
            return Err(SendError::Ended);
        }
        if !self.outgoing.push(command) {
            return Err(SendError::Full);
        }
        match command {
            Command::Live(live) => self.live = *live,
            Command::Read { .. } => self.reads = self.reads.saturating_add(1),
            Command::LoadPeer { .. } | Command::ForgetPeer { .. } | Command::Ping => {}
        }
        self.write();
        Ok(())
    }

    /// The next event; `None` if there is none now, or after [`Event::Ended`].
    pub fn recv(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        self.write();
        let status = loop {
            match self.incoming.next() {
                Ok(Some(event)) => {
                    if matches!(event, Event::ReadDone { .. } | Event::ReadFailed { .. }) {
                        self.reads = self.reads.saturating_sub(1);
                    }
                    return Some(event);
                }
                Ok(None) => {}
                Err(error) => self.hang_up(&error.to_string()),
            }
            if self.read() {
                continue;
            }
            self.hear_errors();
            let status = self.child.reap()?;
            // What it wrote between that last look and its end is there now.
            if !self.read() {
                break status;
            }
        };
        self.hear_errors();
        let _ = epoll::delete(&self.epoll, &self.process);
        self.ended = true;
        Some(Event::Ended(Ended {
            code: status.code(),
            signal: status.signal(),
            fault: self.fault.take(),
            last_words: printable(&self.last_words),
        }))
    }

    /// End it now, whatever it is at: the one true abort of a read. [`Event::Ended`] comes when it is
    /// gone; only then are the blocks free that it was reading into.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    fn hang_up(&mut self, fault: &str) {
        self.fault.get_or_insert_with(|| fault.to_owned());
        self.incoming = Incoming::default();
        if let Some(socket) = self.socket.take() {
            let _ = epoll::delete(&self.epoll, &socket);
        }
        self.kill();
    }

    /// Read once; whether there may be more.
    fn read(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut bytes = [0; 16 * 1024];
        let read = rustix::io::retry_on_intr(|| recv(socket, &mut bytes[..], RecvFlags::empty()));
        match read {
            // Reset: it has ended with commands unread.
            Ok((0, _)) | Err(Errno::CONNRESET) => {
                // Its end is on the way; the pidfd says when. One that has only closed the socket would
                // never be heard of again: it is ended. That does not change how another one ended.
                let _ = epoll::delete(&self.epoll, socket);
                self.socket = None;
                self.kill();
                false
            }
            Ok((read, _)) => {
                self.incoming.extend(bytes.get(..read).unwrap_or_default());
                true
            }
            Err(Errno::WOULDBLOCK) => false,
            Err(error) => {
                self.hang_up(&format!("its socket failed: {}", io::Error::from(error)));
                false
            }
        }
    }

    fn write(&mut self) {
        let Some(socket) = &self.socket else { return };
        while !self.outgoing.is_empty() {
            let flags = SendFlags::NOSIGNAL;
            match rustix::io::retry_on_intr(|| send(socket, self.outgoing.front(), flags)) {
                Ok(sent) => self.outgoing.advance(sent),
                // Also a helper that has closed its end: what it said before is still to be read.
                Err(_) => break,
            }
        }
        let waits = !self.outgoing.is_empty();
        if waits != self.waits_to_write {
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, waits);
            let _ = epoll::modify(&self.epoll, socket, EventData::new_u64(0), flags);
            self.waits_to_write = waits;
        }
    }

    fn hear_errors(&mut self) {
        let Some(errors) = &self.errors else { return };
        let mut bytes = [0; 4096];
        for turn in 0.. {
            // As much as a pipe holds: one that writes without end is heard again at the next call.
            if turn == MAX_READS_OF_ERRORS {
                return;
            }
            match rustix::io::read(errors, &mut bytes[..]) {
                Ok(0) => break,
                Ok(read) => {
                    self.last_words.extend_from_slice(bytes.get(..read).unwrap_or_default());
                    let past = self.last_words.len().saturating_sub(MAX_LAST_WORDS_BYTES);
                    self.last_words.drain(..past);
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return,
                Err(_) => break,
            }
        }
        // Closed: level-triggered, it would be reported for ever.
        let _ = epoll::delete(&self.epoll, errors);
        self.errors = None;
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // It ends with its socket, when it is through. What does not is killed with `child`.
        if self.socket.take().is_some() && (self.live || self.reads > 0) {
            let _ = poll(&mut [PollFd::new(&self.process, PollFlags::IN)], Some(&DROP_LIMIT));
        }
    }
}

impl AsFd for HelperProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// The descriptors that a helper of this role gets, in the order in which it expects them.
fn lend(role: &Role, region: Option<&Region>) -> Result<Vec<OwnedFd>, StartError> {
    let lendings: &[Lending] = match role {
        // The second is for where NIXL does not register memory that cannot be written.
        Role::Serve { .. } => &[Lending::ReadOnly, Lending::ReadWrite],
        Role::Read => &[Lending::ReadWrite],
        Role::Probe => &[],
    };
    let no_region = || io::Error::new(io::ErrorKind::InvalidInput, "this role needs a region");
    lendings.iter().map(|&lending| Ok(region.ok_or_else(no_region)?.lend(lending)?)).collect()
}

/// The first frame, with the descriptors. It fits an empty socket.
fn send_setup(socket: &OwnedFd, setup: &Setup, lent: &[OwnedFd]) -> io::Result<()> {
    let mut first = Outgoing::default();
    first.push(setup);
    let lent: Vec<BorrowedFd<'_>> = lent.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut descriptors = SendAncillaryBuffer::new(&mut space);
    if !lent.is_empty() && !descriptors.push(SendAncillaryMessage::ScmRights(&lent)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let frame = first.front();
    let sent = sendmsg(socket, &[io::IoSlice::new(frame)], &mut descriptors, SendFlags::NOSIGNAL)?;
    if sent == frame.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

fn printable(bytes: &[u8]) -> String {
    let shown = |char: char| if char.is_ascii_graphic() || char == '\n' { char } else { ' ' };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;

    use super::*;

    /// A file gives more at each read, as a helper does that writes faster than it is heard.
    #[test]
    fn no_more_errors_than_a_pipe_holds_are_heard_at_once() {
        let launch = Launch::new("/bin/sh", ["-c", "exec sleep 1000"]);
        let start = HelperProcess::start(&launch, &Settings::default(), &Role::Probe, None);
        let mut helper = start.unwrap();
        let mut errors = tempfile::tempfile().unwrap();
        errors.set_len(1 << 20).unwrap();
        helper.errors = Some(errors.try_clone().unwrap().into());
        for heard in 1..4 {
            helper.hear_errors();
            assert_eq!(errors.stream_position().unwrap(), heard * 17 * 4096);
        }
        assert_eq!(helper.last_words.len(), MAX_LAST_WORDS_BYTES);
    }
}
