//! epoll, level-triggered: what a slice leaves undone is reported again, so no source can starve.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// Events that one wait reports; the rest come with the next.
const EVENTS_PER_WAIT: usize = 256;

/// What a source waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Interest {
    pub(crate) const READ: Self = Self { read: true, write: false };
    pub(crate) const WRITE: Self = Self { read: false, write: true };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

/// A set of sources, each with a number of the caller's choice.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    pub(crate) fn modify(
        &self,
        source: impl AsFd,
        token: u64,
        interest: Interest,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    /// Waits until a source is ready or `timeout` has passed; gives the numbers of the ready sources.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<u64>> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_WAIT];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((ready, _)) => Ok(ready.iter().map(|event| event.data.u64()).collect()),
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Wakes a waiting poller from another thread.
#[derive(Debug)]
pub(crate) struct Waker {
    event: OwnedFd,
    /// A wake-up has not been taken yet: another one would change nothing.
    on_its_way: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, on_its_way: AtomicBool::new(false) })
    }

    /// The node's thread looks at the core again soon. Cannot fail: a full counter is a wake-up that
    /// is on its way already.
    pub(crate) fn wake(&self) {
        if !self.on_its_way.swap(true, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Takes the wake-ups that have come; the caller looks at the core after it. In this order: a call
    /// that finds the flag still set has changed the core before the caller looks, and one that finds it
    /// cleared writes anew. The other way round a write could be taken and its flag stay set: nobody
    /// would wake the thread again.
    pub(crate) fn drain(&self) {
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
        self.on_its_way.store(false, Ordering::SeqCst);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.as_fd()
    }
}
