//! epoll, level-triggered: what a slice leaves undone is reported again, so no source can starve. Only the
//! waker is an edge: it says nothing but that it is time to look.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use chiasm_planes::tcp::Calls;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use crate::io_counts::IoCounts;

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
    counts: Cell<IoCounts>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, counts: Cell::default() })
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
        self.count(|counts| counts.interests += 1);
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }

    /// As [`Poller::add`], of a source that is reported once for each time that it becomes readable, and
    /// need not be read.
    fn add_edge(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), flags)?)
    }

    /// Waits until a source is ready or `timeout` has passed; `ready` is then the numbers of the ready
    /// sources and nothing else.
    pub(crate) fn wait(&self, timeout: Option<Duration>, ready: &mut Vec<u64>) -> io::Result<()> {
        ready.clear();
        self.count(|counts| {
            counts.turns += 1;
            counts.sleeps += u64::from(timeout != Some(Duration::ZERO));
        });
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_WAIT];
        match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((events, _)) => ready.extend(events.iter().map(|event| event.data.u64())),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl Poller {
    /// Notes system calls on the sources.
    pub(crate) fn count(&self, add: impl FnOnce(&mut IoCounts)) {
        let mut counts = self.counts.get();
        add(&mut counts);
        self.counts.set(counts);
    }

    /// As [`Poller::count`], of a data stream.
    pub(crate) fn count_calls(&self, calls: Calls) {
        self.count(|counts| {
            counts.reads += calls.reads;
            counts.writes += calls.writes;
        });
    }

    /// System calls so far.
    pub(crate) fn counts(&self) -> IoCounts {
        self.counts.get()
    }
}

/// Where the node's thread is. Only it says [`AWAKE`] and [`ASLEEP`].
mod thread_state {
    /// It looks at the core before it sleeps.
    pub(super) const AWAKE: u8 = 0;
    /// As [`AWAKE`], and something has changed since it last began to look.
    pub(super) const TOLD: u8 = 1;
    /// It waits for its sources, or is about to.
    pub(super) const ASLEEP: u8 = 2;
}

use thread_state::{ASLEEP, AWAKE, TOLD};

/// Lets the node's thread know that the core has changed: by a system call only while that sleeps.
#[derive(Debug)]
pub(crate) struct Waker {
    event: OwnedFd,
    state: AtomicU8,
    /// System calls so far.
    rung: AtomicU64,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, state: AtomicU8::new(AWAKE), rung: AtomicU64::new(0) })
    }

    /// The poller's wait ends with `token` for each call that finds the thread asleep. Nobody reads the
    /// counter behind it: each write is an edge, and 2^64 of them do not come.
    pub(crate) fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        poller.add_edge(&self.event, token)
    }

    /// The node's thread looks at the core again soon. To be called after the change.
    pub(crate) fn wake(&self) {
        if self.state.swap(TOLD, Ordering::SeqCst) == ASLEEP {
            self.rung.fetch_add(1, Ordering::Relaxed);
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Node's thread: whether it may sleep; if not, something has changed since [`Waker::awake`]. It is
    /// to be called before every sleep, and `awake` after.
    pub(crate) fn may_sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Node's thread: it looks at the core from here on. In this order: who told it before has changed
    /// the core before it looks, and who tells it later keeps it from sleeping.
    pub(crate) fn awake(&self) {
        self.state.swap(AWAKE, Ordering::SeqCst);
    }

    /// How often the thread was woken by a system call.
    pub(crate) fn rung(&self) -> u64 {
        self.rung.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(poller: &Poller) -> usize {
        let mut ready = vec![7];
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        ready.len()
    }

    #[test]
    fn who_finds_the_thread_awake_keeps_it_from_sleeping_and_rings_nobody() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        waker.register(&poller, 7).unwrap();
        waker.wake();
        waker.wake();
        assert_eq!((waker.may_sleep(), waker.rung(), waits(&poller)), (false, 0, 0));
        waker.awake();
        assert!(waker.may_sleep());
    }

    #[test]
    fn the_first_who_finds_it_asleep_ends_its_wait_again_and_again() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        waker.register(&poller, 7).unwrap();
        for rung in 1..=3 {
            assert!(waker.may_sleep());
            waker.wake();
            waker.wake();
            assert_eq!((waker.rung(), waits(&poller), waits(&poller)), (rung, 1, 0));
            waker.awake();
        }
    }
}
