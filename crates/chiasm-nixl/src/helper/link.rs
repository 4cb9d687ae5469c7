//! A helper's end of the socket to its node.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};

use super::watch;
use crate::command::Command;
use crate::event::Event;
use crate::frame::{Incoming, Outgoing};
use crate::setup::Setup;

/// The node has gone, or does not speak as one: either way this helper has nothing to live for.
#[derive(Debug)]
pub(super) struct Closed;

/// The socket.
pub(super) struct Link {
    socket: OwnedFd,
    incoming: Incoming,
    outgoing: Outgoing,
    unfinished: Arc<AtomicBool>,
}

impl Link {
    /// Take the socket from standard input, and wait for the set-up and the descriptors that come with
    /// it. `None` for a set-up that does not parse: another version's.
    pub(super) fn accept() -> io::Result<(Self, Option<Setup>, Vec<OwnedFd>)> {
        let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let mut lent = Vec::new();
        let mut bytes = [0; 16 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::io::retry_on_intr(|| {
            let mut slices = [io::IoSliceMut::new(&mut bytes)];
            recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                lent.extend(descriptors);
            }
        }
        rustix::io::ioctl_fionbio(&socket, true)?;
        let mut link = Self {
            socket,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            unfinished: Arc::default(),
        };
        link.incoming.extend(bytes.get(..received.bytes).unwrap_or_default());
        let setup = link.incoming.next().ok().flatten();
        Ok((link, setup, lent))
    }

    /// End the process when the node closes, at the latest when its time is over.
    pub(super) fn watch(&self) -> io::Result<()> {
        watch::end_with(self.socket.try_clone()?, Arc::clone(&self.unfinished))
    }

    /// Whether there is something under way that peers would come to harm by if this process ended now.
    pub(super) fn set_unfinished(&self, is_so: bool) {
        self.unfinished.store(is_so, Ordering::Relaxed);
    }

    /// The next command, if there is one.
    pub(super) fn receive(&mut self) -> Result<Option<Command>, Closed> {
        loop {
            match self.incoming.next() {
                Ok(Some(command)) => return Ok(Some(command)),
                Ok(None) => {}
                Err(error) => {
                    eprintln!("the node sent {error}");
                    return Err(Closed);
                }
            }
            let mut bytes = [0; 16 * 1024];
            match recv(&self.socket, &mut bytes[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Closed),
                Ok((read, _)) => self.incoming.extend(bytes.get(..read).unwrap_or_default()),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Closed),
            }
        }
    }

    /// Whether so much waits to be written that nothing new should be begun.
    pub(super) fn is_full(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Queue an event; false if there is no room for it.
    pub(super) fn push(&mut self, event: &Event) -> bool {
        self.outgoing.push(event)
    }

    /// Write what the socket takes now.
    pub(super) fn flush(&mut self) -> Result<(), Closed> {
        while !self.outgoing.is_empty() {
            match send(&self.socket, self.outgoing.front(), SendFlags::NOSIGNAL) {
                Ok(sent) => self.outgoing.advance(sent),
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Closed),
            }
        }
        Ok(())
    }

    /// Queue an event and write all that waits, however long it takes.
    pub(super) fn send_all(&mut self, event: &Event) -> Result<(), Closed> {
        self.push(event);
        self.flush()?;
        while !self.outgoing.is_empty() {
            self.wait(None)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Wait for a command, for room to write what waits, or for `timeout`.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<(), Closed> {
        let mut flags = PollFlags::empty();
        // What waits to be written goes first: a node that does not listen gets no more to do.
        flags.set(PollFlags::IN, !self.is_full());
        flags.set(PollFlags::OUT, !self.outgoing.is_empty());
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        match poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(Closed),
        }
    }
}
