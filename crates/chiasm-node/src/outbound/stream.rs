//! The data streams to all producers: which one takes a job, and what becomes of those that stall.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use chiasm_core::consumer::{FailureReason, ReadEnd, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::time::Nanos;
use chiasm_planes::tcp::{Progress, ReadJob, ReadStream, SLICE_BYTES};
use chiasm_region::Region;

use crate::limits::NodeLimits;
use crate::poller::{Interest, Poller};
use crate::socket;
use crate::token::{Source, token};

#[derive(Debug)]
struct Stream {
    endpoint: Endpoint,
    socket: OwnedFd,
    connecting: bool,
    interest: Interest,
    reads: ReadStream,
}

/// All data streams of this node, by number.
#[derive(Debug)]
pub(super) struct Streams {
    open: BTreeMap<u64, Stream>,
    /// Jobs that no stream has room for. Bounded by the transfers that the core starts.
    waiting: VecDeque<(Endpoint, ReadJob)>,
    ended: Vec<(TransferId, ReadEnd)>,
    /// Streams with jobs that have not been asked for.
    unasked: Vec<u64>,
    limits: NodeLimits,
}

impl Streams {
    pub(super) fn new(limits: &NodeLimits) -> Self {
        Self {
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            unasked: Vec::new(),
            limits: limits.clone(),
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Gives a job to a stream of its endpoint; opens one, under the number `id`, to the address that
    /// the control link has reached, if all others are busy and there may be more.
    pub(super) fn start(
        &mut self,
        now: Nanos,
        id: u64,
        endpoint: &Endpoint,
        address: SocketAddr,
        job: ReadJob,
        poller: &Poller,
    ) {
        let mine = self.open.iter().filter(|(_, stream)| stream.endpoint == *endpoint);
        let count = mine.clone().count();
        let best = mine
            .filter(|(_, stream)| stream.reads.has_room())
            .min_by_key(|(_, stream)| stream.reads.backlog_bytes())
            .map(|(id, stream)| (*id, stream.reads.backlog_bytes()));
        let may_open = count < self.limits.streams_per_peer;
        match best {
            Some((id, backlog)) if !may_open || backlog < SLICE_BYTES as u64 => {
                self.give(now, id, job);
            }
            _ if may_open => self.connect(now, id, endpoint, address, job, poller),
            _ => self.waiting.push_back((endpoint.clone(), job)),
        }
    }

    fn give(&mut self, now: Nanos, id: u64, job: ReadJob) {
        if let Some(stream) = self.open.get_mut(&id) {
            stream.reads.start(now, job);
            if !self.unasked.contains(&id) {
                self.unasked.push(id);
            }
        }
    }

    /// Asks for the jobs that were given to streams since the last call, many at once.
    pub(super) fn ask(&mut self, now: Nanos, poller: &Poller) {
        while let Some(id) = self.unasked.pop() {
            let Some(stream) = self.open.get_mut(&id).filter(|stream| !stream.connecting) else {
                continue;
            };
            stream.reads.ask(now, stream.socket.as_fd());
            poller.count_calls(stream.reads.take_calls());
            stream.update(Interest { read: true, write: stream.reads.wants_write() }, id, poller);
        }
    }

    fn connect(
        &mut self,
        now: Nanos,
        id: u64,
        endpoint: &Endpoint,
        address: SocketAddr,
        job: ReadJob,
        poller: &Poller,
    ) {
        let opened = socket::start_connect(address).and_then(|socket| {
            poller.add(&socket, token(Source::Stream, id), Interest::WRITE)?;
            Ok(socket)
        });
        match opened {
            Ok(socket) => {
                let mut reads = ReadStream::new(now);
                reads.start(now, job);
                let interest = Interest::WRITE;
                let endpoint = endpoint.clone();
                let stream = Stream { endpoint, socket, connecting: true, interest, reads };
                self.open.insert(id, stream);
            }
            Err(error) => {
                let reason = FailureReason::Plane(format!("no data stream: {error}"));
                self.ended.push((job.transfer, ReadEnd::Failed(reason)));
            }
        }
    }

    /// Ends a job at once, wherever it is.
    pub(super) fn abort(&mut self, transfer: TransferId) {
        if let Some(at) = self.waiting.iter().position(|(_, job)| job.transfer == transfer) {
            self.waiting.remove(at);
            let reason = FailureReason::Plane("aborted".into());
            self.ended.push((transfer, ReadEnd::Failed(reason)));
            return;
        }
        for stream in self.open.values_mut() {
            if stream.reads.abort(transfer) {
                self.ended.extend(stream.reads.take_ended());
                return;
            }
        }
    }

    /// The socket of this number is ready.
    pub(super) fn ready(&mut self, now: Nanos, id: u64, region: &Region, poller: &Poller) {
        let Some(stream) = self.open.get_mut(&id) else { return };
        if stream.connecting {
            match socket::finish_connect(&stream.socket) {
                Ok(()) => stream.connecting = false,
                Err(error) => return self.lose(id, &format!("no data stream: {error}")),
            }
        }
        let progress = stream.reads.progress(now, stream.socket.as_fd(), region);
        poller.count_calls(stream.reads.take_calls());
        match progress {
            Progress::Closed(reason) => self.lose(id, &reason),
            Progress::Blocked | Progress::Yielded => {
                let interest = Interest { read: true, write: stream.reads.wants_write() };
                stream.update(interest, id, poller);
                self.ended.extend(stream.reads.take_ended());
                self.feed(now, id);
            }
        }
    }

    /// Gives waiting jobs of the stream's endpoint to it while it has room.
    fn feed(&mut self, now: Nanos, id: u64) {
        while let Some(stream) = self.open.get(&id).filter(|stream| stream.reads.has_room()) {
            let at = self.waiting.iter().position(|(endpoint, _)| *endpoint == stream.endpoint);
            let Some((_, job)) = at.and_then(|at| self.waiting.remove(at)) else { return };
            self.give(now, id, job);
        }
    }

    fn lose(&mut self, id: u64, reason: &str) {
        let Some(mut stream) = self.open.remove(&id) else { return };
        stream.reads.lose(reason);
        self.ended.extend(stream.reads.take_ended());
        let endpoint = stream.endpoint;
        if self.open.values().any(|other| other.endpoint == endpoint) {
            return;
        }
        // Nobody is left to take the endpoint's waiting jobs up.
        let (lost, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|(other, _)| *other == endpoint);
        self.waiting = kept;
        for (_, job) in lost {
            let end = ReadEnd::Failed(FailureReason::Plane(reason.into()));
            self.ended.push((job.transfer, end));
        }
    }

    /// Closes all streams to a producer.
    pub(super) fn leave(&mut self, endpoint: &Endpoint) {
        let mine = self.open.iter().filter(|(_, stream)| stream.endpoint == *endpoint);
        let mine: Vec<u64> = mine.map(|(id, _)| *id).collect();
        for id in mine {
            self.lose(id, "the producer is not on the allowlist any more");
        }
    }

    pub(super) fn take_ended(&mut self) -> Vec<(TransferId, ReadEnd)> {
        std::mem::take(&mut self.ended)
    }

    /// Closes the streams that have stood idle or stalled for too long.
    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        let silent =
            |(id, stream): (&u64, &Stream)| (now >= self.silence_ends(stream)).then_some(*id);
        let silent: Vec<u64> = self.open.iter().filter_map(silent).collect();
        for id in silent {
            self.lose(id, "nothing moved on the data stream for too long");
        }
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        let ends = self.open.values().map(|stream| self.silence_ends(stream));
        ends.min().unwrap_or(Nanos::NEVER)
    }

    fn silence_ends(&self, stream: &Stream) -> Nanos {
        let idle = stream.reads.is_idle();
        // A consumer lets go first, so that it never sends a READ into a stream that is being closed.
        let limit = if idle { self.limits.stream_idle / 2 } else { self.limits.stream_stall };
        stream.reads.last_progress().after(limit)
    }
}

impl Stream {
    fn update(&mut self, interest: Interest, id: u64, poller: &Poller) {
        if self.interest != interest
            && poller.modify(&self.socket, token(Source::Stream, id), interest).is_ok()
        {
            self.interest = interest;
        }
    }
}
