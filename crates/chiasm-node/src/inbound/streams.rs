//! The data streams that consumers have opened: grants become bytes in sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use chiasm_core::producer::{GrantToken, StreamId, StreamRead};
use chiasm_core::time::Nanos;
use chiasm_planes::tcp::{Progress, ServeStream, Serving};

use crate::limits::NodeLimits;
use crate::poller::{Interest, Poller};
use crate::shared::Shared;
use crate::token::{Source, token};

/// How often silent streams are looked for while there are any.
const SWEEP: Duration = Duration::from_secs(1);

/// What a stream moves at once, and how long it then rests, where it has to be slow.
const TRICKLE_BYTES: usize = 1024;
const TRICKLE_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Stream {
    socket: OwnedFd,
    peer: SocketAddr,
    interest: Interest,
    serve: ServeStream,
}

#[derive(Debug)]
pub(super) struct Streams {
    open: BTreeMap<u64, Stream>,
    limits: NodeLimits,
    next_sweep: Nanos,
    /// Streams trickle, for tests of slow producers: when they may move again.
    slow: Option<Nanos>,
    /// Peers whose stream has closed since the owner looked.
    closed: Vec<SocketAddr>,
}

impl Streams {
    pub(super) fn new(limits: &NodeLimits, slow: bool) -> Self {
        Self {
            open: BTreeMap::new(),
            limits: limits.clone(),
            next_sweep: Nanos::NEVER,
            slow: slow.then_some(Nanos::NEVER),
            closed: Vec::new(),
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.open.len() >= self.limits.max_streams
    }

    /// Takes over a connection whose first byte says that it is a stream.
    pub(super) fn add(&mut self, now: Nanos, id: u64, socket: OwnedFd, peer: SocketAddr) {
        let mut serve = ServeStream::new(now);
        if self.slow.is_some() {
            serve.limit_slice(TRICKLE_BYTES);
        }
        self.open.insert(id, Stream { socket, peer, interest: Interest::READ, serve });
        self.next_sweep = self.next_sweep.min(now.after(SWEEP));
    }

    /// The stream's socket is ready. Nothing happens if there is no such stream.
    pub(super) fn ready(&mut self, now: Nanos, id: u64, shared: &Shared, poller: &Poller) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        let mut core = Core { shared, now };
        let progress = stream.serve.progress(now, stream.socket.as_fd(), &shared.region, &mut core);
        poller.count_calls(stream.serve.take_calls());
        match progress {
            Progress::Closed(reason) => self.close(now, id, &reason, shared),
            Progress::Blocked | Progress::Yielded => {
                let (read, write) = (stream.serve.wants_read(), stream.serve.wants_write());
                let mut interest = Interest { read, write };
                if let Some(resume) = &mut self.slow {
                    interest = Interest { read: false, write: false };
                    *resume = (*resume).min(now.after(TRICKLE_PAUSE));
                }
                if stream.interest != interest
                    && poller.modify(&stream.socket, token(Source::Inbound, id), interest).is_ok()
                {
                    stream.interest = interest;
                }
            }
        }
    }

    fn close(&mut self, now: Nanos, id: u64, reason: &str, shared: &Shared) {
        let Some(stream) = self.open.remove(&id) else { return };
        tracing::debug!(reason, peer = %stream.peer, "data stream closed");
        self.closed.push(stream.peer);
        if let Some(serving) = stream.serve.serving() {
            shared.core().stream_ended(now, serving, false);
            shared.notify();
        }
    }

    /// The leases of these grants have ended: no more bytes for them.
    pub(super) fn end(&mut self, now: Nanos, ended: &[StreamId], shared: &Shared) {
        if ended.is_empty() {
            return;
        }
        let serves = |stream: &Stream| stream.serve.serving().is_some_and(|id| ended.contains(&id));
        for id in self.those(serves) {
            self.close(now, id, "the lease ran out", shared);
        }
    }

    /// Closes the streams that have moved nothing for too long.
    pub(super) fn handle_timeout(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        if let Some(resume) = &mut self.slow
            && now >= *resume
        {
            *resume = Nanos::NEVER;
            for id in self.those(|_| true) {
                self.ready(now, id, shared, poller);
            }
        }
        if now < self.next_sweep {
            return;
        }
        let (stall, idle) = (self.limits.stream_stall, self.limits.stream_idle);
        let silent = |stream: &Stream| {
            let limit = if stream.serve.wants_write() { stall } else { idle };
            now >= stream.serve.last_progress().after(limit)
        };
        for id in self.those(silent) {
            self.close(now, id, "silent for too long", shared);
        }
        self.next_sweep = if self.open.is_empty() { Nanos::NEVER } else { now.after(SWEEP) };
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        self.next_sweep.min(self.slow.unwrap_or(Nanos::NEVER))
    }

    fn those(&self, wanted: impl Fn(&Stream) -> bool) -> Vec<u64> {
        self.open.iter().filter(|(_, stream)| wanted(stream)).map(|(id, _)| *id).collect()
    }

    /// The peers whose stream has closed since the last call.
    pub(super) fn take_closed(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.closed)
    }
}

/// The producer as a stream sees it: each call holds the core's lock for itself.
struct Core<'a> {
    shared: &'a Shared,
    now: Nanos,
}

impl Serving for Core<'_> {
    fn open(&mut self, token: GrantToken) -> Option<StreamRead> {
        self.shared.core().open_stream(self.now, token)
    }

    fn completed(&mut self, stream: StreamId) {
        self.shared.core().stream_ended(self.now, stream, true);
        self.shared.notify();
    }
}
