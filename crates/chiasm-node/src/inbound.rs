//! The serving side of a node: one listening socket for control connections and data streams.
//!
//! The first byte of a connection says what it is. Until it has come nothing is sent, so that a data
//! stream sees no ZMTP greeting. A connection that misbehaves is closed alone, with its reason.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use chiasm_core::producer::{GrantToken, PeerId, StreamId, StreamRead};
use chiasm_core::time::Nanos;
use chiasm_planes::tcp::{FIRST_BYTE, Progress, ServeStream, Serving};
use chiasm_zmtp::{CloseReason, ConnectionId, Event, Router, RouterLimits};
use rustix::io::Errno;

use crate::limits::NodeLimits;
use crate::poller::{Interest, Poller};
use crate::shared::Shared;
use crate::socket;
use crate::token::{Source, token};

/// Bytes read from a control connection at once.
const READ_BYTES: usize = 16 << 10;

/// Connections accepted in one go, so that a flood of them leaves time for the others.
const ACCEPTS_PER_WAKE: usize = 64;

#[derive(Debug)]
enum Kind {
    /// Its first byte has not come, or it is a control connection: the router knows which.
    Control {
        sniffed: bool,
    },
    Data(Box<ServeStream>),
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    kind: Kind,
    interest: Interest,
}

/// All connections that others made to this node.
#[derive(Debug)]
pub(crate) struct Inbound {
    listener: Option<OwnedFd>,
    router: Router,
    connections: BTreeMap<u64, Connection>,
    streams: usize,
    limits: NodeLimits,
    /// Accepting is off until this instant: the process or the system is out of descriptors.
    paused_until: Option<Nanos>,
}

impl Inbound {
    pub(crate) fn new(listener: Option<OwnedFd>, limits: &NodeLimits) -> Self {
        let router =
            RouterLimits { max_connections: limits.max_connections, ..RouterLimits::default() };
        Self {
            listener,
            router: Router::new(router),
            connections: BTreeMap::new(),
            streams: 0,
            limits: limits.clone(),
            paused_until: None,
        }
    }

    pub(crate) fn register(&self, poller: &Poller) -> std::io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        poller.add(listener, token(Source::Listener, 0), Interest::READ)
    }

    /// The listening socket is readable.
    pub(crate) fn accept(&mut self, now: Nanos, poller: &Poller) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPTS_PER_WAKE {
            match socket::accept(listener) {
                Ok(Some(socket)) => {
                    let id = match self.router.accept(now) {
                        Ok(id) => id,
                        Err(reason) => {
                            tracing::warn!(%reason, "connection refused");
                            continue;
                        }
                    };
                    if let Err(error) =
                        poller.add(&socket, token(Source::Inbound, id.as_u64()), Interest::READ)
                    {
                        self.router.close(id, CloseReason::Io { error: error.to_string() });
                        continue;
                    }
                    let kind = Kind::Control { sniffed: false };
                    let connection = Connection { socket, kind, interest: Interest::READ };
                    self.connections.insert(id.as_u64(), connection);
                }
                Ok(None) => break,
                Err(error) => {
                    // Out of descriptors: the waiting connection keeps the listener readable, so
                    // look away for a while instead of spinning.
                    tracing::warn!(%error, "cannot accept, trying again in a second");
                    self.paused_until = Some(now.after(self.limits.accept_pause));
                    let listener_token = token(Source::Listener, 0);
                    let none = Interest { read: false, write: false };
                    let _ = poller.modify(listener, listener_token, none);
                    break;
                }
            }
        }
    }

    /// A connection is ready for what it waits for.
    pub(crate) fn ready(&mut self, now: Nanos, id: u64, shared: &Shared, poller: &Poller) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if matches!(connection.kind, Kind::Control { sniffed: false }) {
            self.sniff(now, id);
        }
        match self.connections.get(&id).map(|connection| &connection.kind) {
            Some(Kind::Control { sniffed: true }) => {
                self.control(now, id);
                // Its greeting waited for the first byte; a full socket may have room again.
                self.flush(now, ConnectionId::from_u64(id), poller);
            }
            Some(Kind::Data(_)) => self.data(now, id, shared, poller),
            _ => {}
        }
    }

    /// Looks at the first byte without taking it.
    fn sniff(&mut self, now: Nanos, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let mut first = [0; 1];
        let flags = rustix::net::RecvFlags::PEEK;
        match rustix::net::recv(&connection.socket, &mut first, flags) {
            Ok((1.., _)) if first == [FIRST_BYTE] => self.become_stream(now, id),
            Ok(_) => connection.kind = Kind::Control { sniffed: true },
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                let error = std::io::Error::from(error).to_string();
                self.router.close(ConnectionId::from_u64(id), CloseReason::Io { error });
            }
        }
    }

    fn become_stream(&mut self, now: Nanos, id: u64) {
        let connection_id = ConnectionId::from_u64(id);
        if self.streams >= self.limits.max_streams {
            let why = format!("{} data streams are open (max_streams)", self.limits.max_streams);
            self.router.close(connection_id, CloseReason::Refused { why });
            return;
        }
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.kind = Kind::Data(Box::new(ServeStream::new(now)));
            self.streams += 1;
            // The router's part ends here, without a word: its end is not the stream's.
            self.router.close(connection_id, CloseReason::PeerClosed);
        }
    }

    fn control(&mut self, now: Nanos, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let connection_id = ConnectionId::from_u64(id);
        let mut buffer = [0; READ_BYTES];
        match rustix::io::read(&connection.socket, &mut buffer) {
            Ok(0) => self.router.close(connection_id, CloseReason::PeerClosed),
            Ok(bytes) => {
                let bytes = buffer.get(..bytes).unwrap_or_default();
                self.router.receive(now, connection_id, bytes);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => {
                let error = std::io::Error::from(error).to_string();
                self.router.close(connection_id, CloseReason::Io { error });
            }
        }
    }

    fn data(&mut self, now: Nanos, id: u64, shared: &Shared, poller: &Poller) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Kind::Data(stream) = &mut connection.kind else { return };
        let mut core = Core { shared, now };
        match stream.progress(now, connection.socket.as_fd(), &shared.region, &mut core) {
            Progress::Closed(reason) => self.close_stream(now, id, &reason, shared),
            Progress::Blocked | Progress::Yielded => {
                let interest = Interest { read: stream.wants_read(), write: stream.wants_write() };
                connection.update(interest, id, poller);
            }
        }
    }

    fn close_stream(&mut self, now: Nanos, id: u64, reason: &str, shared: &Shared) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let Kind::Data(stream) = connection.kind else { return };
        self.streams -= 1;
        tracing::debug!(reason, "data stream closed");
        if let Some(serving) = stream.serving() {
            shared.core().stream_ended(now, serving, false);
        }
    }

    /// Hands on what the control connections have to say, and writes what is to be written, until
    /// there is neither.
    pub(crate) fn pump(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        loop {
            if let Some((id, event)) = self.router.poll_event() {
                self.take_event(now, id, event, shared);
            } else if let Some(id) = self.router.poll_output() {
                self.flush(now, id, poller);
            } else {
                return;
            }
        }
    }

    fn take_event(&mut self, now: Nanos, id: ConnectionId, event: Event, shared: &Shared) {
        match event {
            Event::Ready(_) => {}
            Event::Message(payload) => {
                let answer = shared.core().handle_request(now, PeerId(id.as_u64()), &payload);
                if let Some(answer) = answer
                    && let Err(error) = self.router.send(now, id, answer)
                {
                    self.router.close(id, CloseReason::Refused { why: error.to_string() });
                }
            }
            Event::Closed(reason) => self.closed(now, id, &reason, shared),
        }
    }

    fn closed(&mut self, now: Nanos, id: ConnectionId, reason: &CloseReason, shared: &Shared) {
        let connection = self.connections.get(&id.as_u64());
        if !connection.is_some_and(|connection| matches!(connection.kind, Kind::Control { .. })) {
            return;
        }
        if matches!(reason, CloseReason::PeerClosed | CloseReason::ShutDown) {
            tracing::debug!(%reason, peer = self.peer_name(id.as_u64()), "control connection closed");
        } else {
            tracing::info!(%reason, peer = self.peer_name(id.as_u64()), "control connection closed");
        }
        self.connections.remove(&id.as_u64());
        shared.core().peer_gone(now, PeerId(id.as_u64()));
    }

    fn peer_name(&self, id: u64) -> String {
        let socket = self.connections.get(&id).map(|connection| &connection.socket);
        let address = socket.and_then(|socket| rustix::net::getpeername(socket).ok().flatten());
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        address.map_or_else(|| "unknown".into(), |address| address.to_string())
    }

    fn flush(&mut self, now: Nanos, id: ConnectionId, poller: &Poller) {
        let Some(connection) = self.connections.get_mut(&id.as_u64()) else { return };
        if !matches!(connection.kind, Kind::Control { sniffed: true }) {
            return;
        }
        loop {
            let output = self.router.output(id);
            if output.is_empty() {
                connection.update(Interest::READ, id.as_u64(), poller);
                return;
            }
            let flags = rustix::net::SendFlags::NOSIGNAL;
            match rustix::net::send(&connection.socket, output, flags) {
                Ok(written) => self.router.consume_output(now, id, written),
                Err(Errno::AGAIN) => {
                    connection.update(Interest { read: true, write: true }, id.as_u64(), poller);
                    return;
                }
                Err(Errno::INTR) => {}
                Err(error) => {
                    let error = std::io::Error::from(error).to_string();
                    self.router.close(id, CloseReason::Io { error });
                    return;
                }
            }
        }
    }

    /// The streams whose lease has ended: no more bytes for them.
    pub(crate) fn close_streams(&mut self, now: Nanos, ended: &[StreamId], shared: &Shared) {
        if ended.is_empty() {
            return;
        }
        let theirs = |(id, connection): (&u64, &Connection)| match &connection.kind {
            Kind::Data(stream) => {
                stream.serving().is_some_and(|serving| ended.contains(&serving)).then_some(*id)
            }
            Kind::Control { .. } => None,
        };
        let ids: Vec<u64> = self.connections.iter().filter_map(theirs).collect();
        for id in ids {
            self.close_stream(now, id, "the lease ran out", shared);
        }
    }

    /// Acts on deadlines: those of control connections, and those of silent data streams.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        self.router.handle_timeout(now);
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            if let Some(listener) = &self.listener {
                let _ = poller.modify(listener, token(Source::Listener, 0), Interest::READ);
            }
        }
        let silent = |(id, connection): (&u64, &Connection)| match &connection.kind {
            Kind::Data(stream) => (now >= self.silence_ends(stream)).then_some(*id),
            Kind::Control { .. } => None,
        };
        let ids: Vec<u64> = self.connections.iter().filter_map(silent).collect();
        for id in ids {
            self.close_stream(now, id, "silent for too long", shared);
        }
    }

    fn silence_ends(&self, stream: &ServeStream) -> Nanos {
        let busy = stream.serving().is_some();
        let limit = if busy { self.limits.stream_stall } else { self.limits.stream_idle };
        stream.last_progress().after(limit)
    }

    /// When [`Inbound::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        let streams = self.connections.values().filter_map(|connection| match &connection.kind {
            Kind::Data(stream) => Some(self.silence_ends(stream)),
            Kind::Control { .. } => None,
        });
        let streams = streams.min().unwrap_or(Nanos::NEVER);
        let paused = self.paused_until.unwrap_or(Nanos::NEVER);
        self.router.poll_timeout().min(streams).min(paused)
    }
}

impl Connection {
    fn update(&mut self, interest: Interest, id: u64, poller: &Poller) {
        if self.interest != interest
            && poller.modify(&self.socket, token(Source::Inbound, id), interest).is_ok()
        {
            self.interest = interest;
        }
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
    }
}
