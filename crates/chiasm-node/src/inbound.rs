//! The serving side of a node: one listening socket for control connections and data streams.
//!
//! The first byte of a connection says what it is (PROTOCOL 42). Until it has come nothing is sent, so
//! that a data stream sees no ZMTP greeting. A connection that misbehaves is closed alone, with its
//! reason.

mod addresses;
mod readers;
mod streams;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use chiasm_core::producer::{PeerId, StreamId};
use chiasm_core::time::Nanos;
use chiasm_core::wire::Message;
use chiasm_planes::tcp::FIRST_BYTE;
use chiasm_zmtp::{CloseReason, Connection, ConnectionId, Event, Router, RouterLimits};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use self::addresses::{Addresses, peer_of};
use self::readers::Readers;
use self::streams::Streams;
use crate::fault::{Fault, Misdeed, Saboteur};
use crate::limits::NodeLimits;
use crate::poller::{Interest, Poller};
use crate::shared::Shared;
use crate::socket;
use crate::throttle::Throttle;
use crate::token::{Source, token};

/// Bytes read from a control connection at once.
const READ_BYTES: usize = 16 << 10;

/// Bytes written to a control connection at once, so that a descriptor list of 14 MB holds up nobody.
const WRITE_BYTES: usize = 1 << 20;

/// Connections accepted in one go, so that a flood of them leaves time for the others.
const ACCEPTS_PER_WAKE: usize = 64;

/// A connection that is a control connection, or of which the first byte has not come.
#[derive(Debug)]
struct Control {
    socket: OwnedFd,
    peer: SocketAddr,
    sniffed: bool,
    interest: Interest,
}

/// All connections that others made to this node.
#[derive(Debug)]
pub(crate) struct Inbound {
    listener: Option<OwnedFd>,
    router: Router,
    controls: BTreeMap<u64, Control>,
    streams: Streams,
    addresses: Addresses,
    readers: Readers,
    limits: NodeLimits,
    /// Accepting is off until this instant: the process or the system is out of descriptors.
    paused_until: Nanos,
    refusals: Throttle,
    /// Connections that were closed as soon as they were accepted.
    refused: u64,
    closes: Throttle,
    /// For tests only.
    saboteur: Option<Saboteur>,
}

impl Inbound {
    pub(crate) fn new(
        listener: Option<OwnedFd>,
        limits: &NodeLimits,
        dir: &Path,
        fault: Option<Fault>,
    ) -> Self {
        let saboteur = fault.map(Saboteur::new);
        let max_connections = limits.max_connections;
        let router = RouterLimits { max_connections, ..RouterLimits::default() };
        Self {
            listener,
            router: Router::new(router),
            controls: BTreeMap::new(),
            streams: Streams::new(limits, saboteur.as_ref().is_some_and(Saboteur::sends_slowly)),
            addresses: Addresses::default(),
            readers: Readers::new(dir.to_owned()),
            limits: limits.clone(),
            paused_until: Nanos::NEVER,
            refusals: Throttle::default(),
            refused: 0,
            closes: Throttle::default(),
            saboteur,
        }
    }

    pub(crate) fn register(&self, poller: &Poller) -> io::Result<()> {
        let Some(listener) = &self.listener else { return Ok(()) };
        poller.add(listener, token(Source::Listener, 0), Interest::READ)
    }

    /// The listening socket is readable.
    pub(crate) fn accept(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        for _ in 0..ACCEPTS_PER_WAKE {
            let Some(listener) = &self.listener else { return };
            match socket::accept(listener) {
                Ok(Some(socket)) => {
                    if let Err(reason) = self.take_in(now, socket, shared, poller) {
                        self.refused += 1;
                        if let Some(left_out) = self.refusals.pass(now) {
                            tracing::warn!(%reason, left_out, "connection refused");
                        }
                    }
                }
                Ok(None) => return,
                // Out of descriptors: who says nothing makes room for who may have something to say.
                // Each turn closes one connection and accepts one.
                Err(error)
                    if matches!(
                        Errno::from_io_error(&error),
                        Some(Errno::MFILE | Errno::NFILE)
                    ) && self.make_room(now, None, &no_descriptors(), shared) => {}
                Err(error) => {
                    // Out of descriptors: the waiting connection keeps the listener readable, so
                    // look away for a while instead of spinning.
                    tracing::warn!(%error, "cannot accept connections, trying again in a second");
                    self.paused_until = now.after(self.limits.accept_pause);
                    self.listen_for(Interest { read: false, write: false }, poller);
                    return;
                }
            }
        }
    }

    fn listen_for(&self, interest: Interest, poller: &Poller) {
        if let Some(listener) = &self.listener {
            let _ = poller.modify(listener, token(Source::Listener, 0), interest);
        }
    }

    fn take_in(
        &mut self,
        now: Nanos,
        socket: OwnedFd,
        shared: &Shared,
        poller: &Poller,
    ) -> Result<(), CloseReason> {
        let peer = peer_of(&socket).ok_or(CloseReason::PeerClosed)?;
        let limit = self.limits.max_connections_per_address;
        if !self.addresses.take(peer.ip(), limit) {
            let why = format!("{peer} has {limit} connections (max_connections_per_address)");
            let full = CloseReason::Refused { why };
            if !self.make_room(now, Some(peer.ip()), &full, shared)
                || !self.addresses.take(peer.ip(), limit)
            {
                return Err(full);
            }
        }
        let added = self.router.accept(now).and_then(|id| {
            let source = token(Source::Inbound, id.as_u64());
            let added = poller.add(&socket, source, Interest::READ);
            added.map(|()| id).map_err(|error| {
                let reason = CloseReason::Io { error: error.to_string() };
                self.router.close(id, reason.clone());
                reason
            })
        });
        match added {
            Ok(id) => {
                let control = Control { socket, peer, sniffed: false, interest: Interest::READ };
                self.controls.insert(id.as_u64(), control);
                Ok(())
            }
            Err(reason) => {
                self.addresses.give_back(peer.ip());
                Err(reason)
            }
        }
    }

    /// Closes a connection, of this address if one is given, that uses its place for nothing: the
    /// oldest that has not finished its handshake, or else the one that is idle for longest.
    fn make_room(
        &mut self,
        now: Nanos,
        address: Option<IpAddr>,
        reason: &CloseReason,
        shared: &Shared,
    ) -> bool {
        let spare = self.router.spare(now, |id| {
            let control = self.controls.get(&id.as_u64());
            control.is_some_and(|control| address.is_none_or(|ip| control.peer.ip() == ip))
        });
        let Some(id) = spare else { return false };
        self.closed(now, id, reason, shared);
        self.router.close(id, reason.clone());
        true
    }

    /// A connection is ready for what it waits for.
    pub(crate) fn ready(&mut self, now: Nanos, id: u64, shared: &Shared, poller: &Poller) {
        self.sniff(now, id, poller);
        if self.controls.get(&id).is_some_and(|control| control.sniffed) {
            if !self.owes_rows(id) {
                self.read(now, id, poller);
            }
            // Its greeting waited for the first byte; a full socket may have room again.
            self.flush(now, ConnectionId::from_u64(id), poller);
        } else {
            self.streams.ready(now, id, shared, poller);
            self.forget_closed_streams();
        }
    }

    /// Whether a descriptor list waits to be written to it. Until it has gone nothing is read from the
    /// peer: a request of 56 bytes may bring about an ack of 14 MB (hazard D1).
    fn owes_rows(&self, id: u64) -> bool {
        let connection = self.router.connection(ConnectionId::from_u64(id));
        connection.is_some_and(Connection::owes_rows)
    }

    /// Looks at the first byte without taking it.
    fn sniff(&mut self, now: Nanos, id: u64, poller: &Poller) {
        let Some(control) = self.controls.get_mut(&id).filter(|control| !control.sniffed) else {
            return;
        };
        let mut first = [0; 1];
        poller.count(|counts| counts.reads += 1);
        match rustix::net::recv(&control.socket, &mut first, RecvFlags::PEEK) {
            Ok((1.., _)) if first == [FIRST_BYTE] => self.become_stream(now, id),
            Ok(_) => control.sniffed = true,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.fail(id, errno),
        }
    }

    fn fail(&mut self, id: u64, errno: Errno) {
        let error = io::Error::from(errno).to_string();
        self.router.close(ConnectionId::from_u64(id), CloseReason::Io { error });
    }

    fn become_stream(&mut self, now: Nanos, id: u64) {
        let connection = ConnectionId::from_u64(id);
        if self.streams.is_full() {
            let why = format!("{} data streams are open (max_streams)", self.limits.max_streams);
            self.router.close(connection, CloseReason::Refused { why });
        } else if let Some(Control { socket, peer, .. }) = self.controls.remove(&id) {
            self.streams.add(now, id, socket, peer);
            // The router's part ends here, without a word: its end is not the stream's.
            self.router.close(connection, CloseReason::PeerClosed);
        }
    }

    fn read(&mut self, now: Nanos, id: u64, poller: &Poller) {
        let Some(control) = self.controls.get(&id) else { return };
        let connection = ConnectionId::from_u64(id);
        let mut buffer = [0; READ_BYTES];
        poller.count(|counts| counts.reads += 1);
        match rustix::io::read(&control.socket, &mut buffer) {
            Ok(0) => self.router.close(connection, CloseReason::PeerClosed),
            Ok(bytes) => {
                let bytes = buffer.get(..bytes).unwrap_or_default();
                self.router.receive(now, connection, bytes);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.fail(id, errno),
        }
    }

    /// Hands on what the control connections have to say, and writes what is to be written, until
    /// there is neither.
    pub(crate) fn pump(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        loop {
            if let Some((id, event)) = self.router.poll_event() {
                self.take_event(now, id, event, shared, poller);
            } else if let Some(id) = self.router.poll_output() {
                self.flush(now, id, poller);
            } else {
                return;
            }
        }
    }

    fn take_event(
        &mut self,
        now: Nanos,
        id: ConnectionId,
        event: Event,
        shared: &Shared,
        poller: &Poller,
    ) {
        match event {
            Event::Ready(_) => {}
            Event::Message(payload) => {
                let mut core = shared.core();
                let answer = core.handle_request(now, PeerId(id.as_u64()), &payload);
                let reader = core.take_new_reader();
                drop(core);
                if let Some((peer, region)) = reader {
                    self.readers.add(peer, &region);
                }
                match (answer, self.saboteur.as_mut()) {
                    // Perhaps the end of a grant, whose blocks somebody waits for.
                    (None, _) => shared.notify(),
                    (Some(answer), None) => self.answer(now, id, answer),
                    (Some(answer), Some(saboteur)) => {
                        let misdeed = saboteur.distort(now, id, &payload, answer.into_bytes());
                        self.misbehave(now, id, misdeed, shared, poller);
                    }
                }
            }
            Event::Closed(reason) => self.closed(now, id, &reason, shared),
        }
    }

    fn answer(&mut self, now: Nanos, id: ConnectionId, answer: impl Into<Message>) {
        if let Err(error) = self.router.send(now, id, answer) {
            self.router.close(id, CloseReason::Refused { why: error.to_string() });
        }
    }

    fn misbehave(
        &mut self,
        now: Nanos,
        id: ConnectionId,
        misdeed: Misdeed,
        shared: &Shared,
        poller: &Poller,
    ) {
        match misdeed {
            Misdeed::SendNothing => {}
            Misdeed::Send(answer) => self.answer(now, id, answer),
            Misdeed::CorruptThenSend(hash, answer) => {
                shared.corrupt(&hash);
                self.answer(now, id, answer);
            }
            Misdeed::SendThenDie(answer) => {
                self.answer(now, id, answer);
                self.flush(now, id, poller);
                die();
            }
            Misdeed::Die => die(),
        }
    }

    fn closed(&mut self, now: Nanos, id: ConnectionId, reason: &CloseReason, shared: &Shared) {
        // A connection that has become a stream is not here any more.
        let Some(control) = self.controls.remove(&id.as_u64()) else { return };
        self.addresses.give_back(control.peer.ip());
        shared.core().peer_gone(now, PeerId(id.as_u64()));
        self.readers.connection_gone(now, PeerId(id.as_u64()), shared);
        if matches!(reason, CloseReason::PeerClosed | CloseReason::ShutDown) {
            tracing::debug!(%reason, peer = %control.peer, "control connection closed");
        } else if let Some(left_out) = self.closes.pass(now) {
            tracing::info!(%reason, peer = %control.peer, left_out, "control connection closed");
        }
    }

    fn flush(&mut self, now: Nanos, id: ConnectionId, poller: &Poller) {
        let Some(control) = self.controls.get_mut(&id.as_u64()) else { return };
        if !control.sniffed {
            return;
        }
        let mut left = WRITE_BYTES;
        let write = loop {
            let output = self.router.output(id);
            if output.is_empty() {
                break false;
            }
            if left == 0 {
                break true;
            }
            poller.count(|counts| counts.writes += 1);
            match rustix::net::send(&control.socket, output, SendFlags::NOSIGNAL) {
                Ok(written) => {
                    self.router.consume_output(now, id, written);
                    left = left.saturating_sub(written);
                }
                Err(Errno::AGAIN) => break true,
                Err(Errno::INTR) => {}
                Err(errno) => return self.fail(id.as_u64(), errno),
            }
        };
        let owes_rows = self.router.connection(id).is_some_and(Connection::owes_rows);
        let interest = Interest { read: !owes_rows, write };
        if control.interest != interest {
            let source = token(Source::Inbound, id.as_u64());
            if poller.modify(&control.socket, source, interest).is_ok() {
                control.interest = interest;
            }
        }
    }

    /// The leases of these grants have ended: no more bytes for them.
    pub(crate) fn end_streams(&mut self, now: Nanos, ended: &[StreamId], shared: &Shared) {
        self.streams.end(now, ended, shared);
        self.forget_closed_streams();
    }

    fn forget_closed_streams(&mut self) {
        for peer in self.streams.take_closed() {
            self.addresses.give_back(peer.ip());
        }
    }

    /// Acts on deadlines: those of control connections, and those of silent data streams.
    pub(crate) fn handle_timeout(&mut self, now: Nanos, shared: &Shared, poller: &Poller) {
        self.router.handle_timeout(now);
        for (id, answer) in
            self.saboteur.as_mut().map(|saboteur| saboteur.due(now)).unwrap_or_default()
        {
            self.answer(now, id, answer);
        }
        self.streams.handle_timeout(now, shared, poller);
        self.readers.handle_timeout(now, shared);
        self.forget_closed_streams();
        if now >= self.paused_until {
            self.paused_until = Nanos::NEVER;
            self.listen_for(Interest::READ, poller);
        }
    }

    /// Control connections, those included that have not said yet what they are.
    pub(crate) fn connections(&self) -> usize {
        self.controls.len()
    }

    /// Data streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.open()
    }

    /// Connections and streams by the address that they come from.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (IpAddr, usize)> + Clone {
        self.addresses.iter()
    }

    /// Connections that were closed as soon as they were accepted, since the start.
    pub(crate) fn refused_connections(&self) -> u64 {
        self.refused
    }

    /// When [`Inbound::handle_timeout`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Nanos {
        let late = self.saboteur.as_ref().map_or(Nanos::NEVER, Saboteur::poll_timeout);
        let sockets = self.router.poll_timeout().min(self.streams.poll_timeout()).min(late);
        sockets.min(self.paused_until).min(self.readers.poll_timeout())
    }
}

/// The end of a killed producer: nothing is closed, nothing is removed.
fn die() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
}

fn no_descriptors() -> CloseReason {
    CloseReason::Refused { why: "no file descriptors are left (ulimit -n)".into() }
}
