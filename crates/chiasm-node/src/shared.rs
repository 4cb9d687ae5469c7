//! What the engine's threads and the node's thread share: the core behind one mutex, the region, and
//! the way to wake each other.
//!
//! The mutex is held for microseconds: never across IO or a copy, never while logging.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chiasm_core::endpoint::Endpoint;
use chiasm_core::instance::Instance;
use chiasm_core::time::Nanos;
use chiasm_region::Region;

use crate::clock;
use crate::io_counts::IoCounts;
use crate::metrics::{EventCounts, SocketCounts};
use crate::news::News;
use crate::poller::Waker;
use crate::workers::Workers;

#[derive(Debug)]
pub(crate) struct Shared {
    instance: Mutex<Instance>,
    news: News,
    pub(crate) waker: Arc<Waker>,
    pub(crate) region: Region,
    pub(crate) workers: Workers,
    stopping: AtomicBool,
    events: Mutex<EventCounts>,
    sockets: Mutex<(SocketCounts, IoCounts)>,
    contacted: Mutex<BTreeSet<Endpoint>>,
}

/// Endpoints that [`Shared::contacted`] remembers.
const MAX_CONTACTED: usize = 4096;

impl Shared {
    pub(crate) fn new(instance: Instance, region: Region, waker: Arc<Waker>) -> Self {
        Self {
            instance: Mutex::new(instance),
            news: News::default(),
            waker,
            region,
            workers: Workers::default(),
            stopping: AtomicBool::new(false),
            events: Mutex::default(),
            sockets: Mutex::default(),
            contacted: Mutex::new(BTreeSet::new()),
        }
    }

    /// The core. A panic while it was held is a broken invariant of ours; what follows sees the state
    /// as it was left, and the node's thread has ended.
    pub(crate) fn core(&self) -> MutexGuard<'_, Instance> {
        self.instance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes one byte of an entry that peers may read. For tests only.
    pub(crate) fn corrupt(&self, hash: &str) {
        let core = self.core();
        let extents = core.cache().find(hash).map(|(_, entry)| entry.extents().to_vec());
        drop(core);
        let extents = extents.unwrap_or_default();
        let mut byte = [0];
        if self.region.copy_out(&extents, 0, &mut byte).is_ok() {
            let _ = self.region.copy_in(&extents, 0, &[!byte[0]]);
        }
    }

    /// Lets the engine do something with the core, and the node's thread know if there is work for it.
    pub(crate) fn act<T>(&self, call: impl FnOnce(&mut Instance, Nanos) -> T) -> T {
        let mut core = self.core();
        let result = call(&mut core, clock::now());
        let has_work = core.has_work();
        drop(core);
        if has_work {
            self.waker.wake();
        }
        result
    }

    /// Something has changed that a waiting engine thread could be interested in.
    pub(crate) fn notify(&self) {
        self.news.tell();
    }

    /// How much news there has been.
    pub(crate) fn news(&self) -> u64 {
        self.news.count()
    }

    /// Waits until there is more news than `seen`, at most for `limit`.
    pub(crate) fn wait(&self, seen: u64, limit: Duration) {
        self.news.wait(seen, limit);
    }

    /// A name is about to be resolved or a socket opened for this endpoint.
    pub(crate) fn contacted(&self, endpoint: &Endpoint) {
        let mut contacted = self.contacted.lock().unwrap_or_else(PoisonError::into_inner);
        if contacted.len() < MAX_CONTACTED {
            contacted.insert(endpoint.clone());
        }
    }

    /// Every endpoint that was resolved or connected to, at most [`MAX_CONTACTED`].
    pub(crate) fn all_contacted(&self) -> Vec<Endpoint> {
        let contacted = self.contacted.lock().unwrap_or_else(PoisonError::into_inner);
        contacted.iter().cloned().collect()
    }

    /// What has been logged so far.
    pub(crate) fn event_counts(&self) -> EventCounts {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts events that are logged.
    pub(crate) fn count_events(&self, count: impl FnOnce(&mut EventCounts)) {
        count(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The node's sockets as its thread last saw them.
    pub(crate) fn socket_counts(&self) -> SocketCounts {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    /// What the node's thread has asked the system for, as of its latest turn.
    pub(crate) fn io_counts(&self) -> IoCounts {
        let (_, counts) = *self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        IoCounts { wake_ups: self.waker.rung(), ..counts }
    }

    /// The node's thread has looked at its sockets.
    pub(crate) fn note_sockets(&self, sockets: SocketCounts, io: IoCounts) {
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = (sockets, io);
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
