//! The bound side over many connections: caps, ids, one timer index. Still without IO.
//!
//! Never lets one connection cost another: a bad peer is closed alone, a full house makes room by
//! dropping who has not finished a handshake or has been idle for longest, and full output queues cost
//! who reads least.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chiasm_core::time::Nanos;
use chiasm_core::wire::Message;

use crate::close_reason::CloseReason;
use crate::connection::{Connection, Event};
use crate::limits::RouterLimits;
use crate::send_error::SendError;
use crate::socket_type::Role;

/// Names one connection of a [`Router`], in the order of acceptance. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(u64);

impl ConnectionId {
    /// The id as a number, for event loops that carry one along.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The id with this number; names a connection only if it came from [`ConnectionId::as_u64`].
    #[must_use]
    pub const fn from_u64(id: u64) -> Self {
        Self(id)
    }
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// The instant under which `Router::timeouts` holds it; [`Nanos::NEVER`]: it does not.
    timeout: Nanos,
    /// Whether `Router::eventful` holds it.
    eventful: bool,
    /// Whether `Router::writable` holds it.
    writable: bool,
    /// Its share of `Router::queued`.
    queued: usize,
}

/// The connections of one bound socket.
///
/// A connection is forgotten when its [`Event::Closed`] is handed out; calls with its id do nothing
/// from then on.
#[derive(Debug)]
pub struct Router {
    limits: RouterLimits,
    next_id: u64,
    entries: BTreeMap<ConnectionId, Entry>,
    /// Every connection that has a timeout, by it.
    timeouts: BTreeSet<(Nanos, ConnectionId)>,
    /// Connections that have events, each once, served in turn.
    eventful: VecDeque<ConnectionId>,
    /// Connections whose output began to wait, each once.
    writable: VecDeque<ConnectionId>,
    /// Output bytes queued over all connections.
    queued: usize,
    /// Connections that are not closed.
    open: usize,
}

impl Router {
    /// A router without connections.
    #[must_use]
    pub fn new(limits: RouterLimits) -> Self {
        Self {
            limits,
            next_id: 0,
            entries: BTreeMap::new(),
            timeouts: BTreeSet::new(),
            eventful: VecDeque::new(),
            writable: VecDeque::new(),
            queued: 0,
            open: 0,
        }
    }

    /// Takes in a connection that was accepted at `now`.
    ///
    /// With `max_connections` open, the oldest one without a finished handshake makes room, or else the
    /// one that has been idle for longest; where there is neither the answer is
    /// [`CloseReason::ConnectionCap`] and the owner closes the new socket.
    pub fn accept(&mut self, now: Nanos) -> Result<ConnectionId, CloseReason> {
        let limit = self.limits.max_connections;
        if self.open >= limit {
            let full = CloseReason::ConnectionCap { limit };
            let spare = self.spare(now, |_| true).ok_or_else(|| full.clone())?;
            self.close(spare, full);
        }
        let id = ConnectionId(self.next_id);
        self.next_id = self.next_id.saturating_add(1);
        let connection = Connection::new(Role::Router, &self.limits.connection, now);
        let entry = Entry {
            connection,
            timeout: Nanos::NEVER,
            eventful: false,
            writable: false,
            queued: 0,
        };
        self.entries.insert(id, entry);
        self.open = self.open.saturating_add(1);
        self.with(id, |_| ());
        self.shed();
        Ok(id)
    }

    /// Which of these connections a new one may take the place of: the oldest without a finished
    /// handshake, or else the one that has been idle for longest (`idle_timeout`).
    #[must_use]
    pub fn spare(&self, now: Nanos, among: impl Fn(ConnectionId) -> bool) -> Option<ConnectionId> {
        let mut idle: Option<(Nanos, ConnectionId)> = None;
        for (id, Entry { connection, .. }) in &self.entries {
            if connection.is_closed() || !among(*id) {
                continue;
            }
            if !connection.is_ready() {
                return Some(*id);
            }
            let since = connection.idle_at();
            if since <= now && idle.is_none_or(|(longest, _)| since < longest) {
                idle = Some((since, *id));
            }
        }
        idle.map(|(_, id)| id)
    }

    /// The connection of this id, to look at: its output, its state.
    #[must_use]
    pub fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        self.entries.get(&id).map(|entry| &entry.connection)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.open
    }

    /// Output bytes queued and not yet written over all connections, without those of descriptor lists
    /// that have not been encoded.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.queued
    }

    /// [`Connection::receive`].
    pub fn receive(&mut self, now: Nanos, id: ConnectionId, bytes: &[u8]) {
        self.with(id, |connection| connection.receive(now, bytes));
        self.shed();
    }

    /// [`Connection::output`].
    #[must_use]
    pub fn output(&self, id: ConnectionId) -> &[u8] {
        self.connection(id).map(Connection::output).unwrap_or_default()
    }

    /// [`Connection::consume_output`].
    pub fn consume_output(&mut self, now: Nanos, id: ConnectionId, written: usize) {
        self.with(id, |connection| connection.consume_output(now, written));
    }

    /// [`Connection::send`]. If that takes the router past its own `max_output_bytes`, the
    /// connection that has most queued is closed; if it is this one, the answer is
    /// [`SendError::Closed`].
    pub fn send(
        &mut self,
        now: Nanos,
        id: ConnectionId,
        payload: impl Into<Message>,
    ) -> Result<(), SendError> {
        self.with(id, |connection| connection.send(now, payload)).ok_or(SendError::Closed)??;
        self.shed();
        let closed = self.connection(id).is_none_or(Connection::is_closed);
        if closed { Err(SendError::Closed) } else { Ok(()) }
    }

    /// [`Connection::close`].
    pub fn close(&mut self, id: ConnectionId, reason: CloseReason) {
        self.with(id, |connection| connection.close(reason));
    }

    /// Closes every connection.
    pub fn close_all(&mut self, reason: &CloseReason) {
        let ids: Vec<_> = self.entries.keys().copied().collect();
        for id in ids {
            self.close(id, reason.clone());
        }
    }

    /// The next thing for the owner, connections in turn.
    pub fn poll_event(&mut self) -> Option<(ConnectionId, Event)> {
        while let Some(id) = self.eventful.pop_front() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            let Some(event) = entry.connection.poll_event() else {
                entry.eventful = false;
                continue;
            };
            if matches!(event, Event::Closed(_)) {
                self.entries.remove(&id);
            } else {
                self.eventful.push_back(id);
            }
            return Some((id, event));
        }
        None
    }

    /// The next connection whose output has begun to wait since it was last empty: write it now, or
    /// when its socket takes bytes again. PINGs and PONGs appear here too.
    pub fn poll_output(&mut self) -> Option<ConnectionId> {
        while let Some(id) = self.writable.pop_front() {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.writable = false;
            if entry.queued > 0 {
                return Some(id);
            }
        }
        None
    }

    /// The earliest timeout of all connections; [`Nanos::NEVER`] if there is none.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.timeouts.first().map_or(Nanos::NEVER, |(timeout, _)| *timeout)
    }

    /// Acts on every deadline that has passed. Touches only the connections that have one.
    pub fn handle_timeout(&mut self, now: Nanos) {
        let due: Vec<_> = self
            .timeouts
            .iter()
            .take_while(|(timeout, _)| *timeout <= now)
            .map(|(_, id)| *id)
            .collect();
        for id in due {
            self.with(id, |connection| connection.handle_timeout(now));
        }
        self.shed();
    }

    /// Closes who has most queued until the rest fits: greetings, PINGs and PONGs count like payloads.
    fn shed(&mut self) {
        let limit = self.limits.max_output_bytes;
        while self.queued > limit {
            let entries = self.entries.iter().filter(|(_, entry)| !entry.connection.is_closed());
            let Some((worst, entry)) = entries.max_by_key(|(_, entry)| entry.queued) else { break };
            let (worst, queued) = (*worst, entry.queued);
            self.close(worst, CloseReason::OutputFull { queued, limit });
        }
    }

    /// Lets `change` work on a connection and brings the indices up to date: the one way in.
    fn with<T>(
        &mut self,
        id: ConnectionId,
        change: impl FnOnce(&mut Connection) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(&id)?;
        let was_closed = entry.connection.is_closed();
        let result = change(&mut entry.connection);

        let timeout = entry.connection.poll_timeout();
        if timeout != entry.timeout {
            self.timeouts.remove(&(entry.timeout, id));
            if timeout != Nanos::NEVER {
                self.timeouts.insert((timeout, id));
            }
            entry.timeout = timeout;
        }
        let queued = entry.connection.held_bytes();
        self.queued = self.queued.saturating_sub(entry.queued).saturating_add(queued);
        if entry.queued == 0 && queued > 0 && !entry.writable {
            entry.writable = true;
            self.writable.push_back(id);
        }
        entry.queued = queued;
        if !entry.eventful && entry.connection.has_events() {
            entry.eventful = true;
            self.eventful.push_back(id);
        }
        if entry.connection.is_closed() && !was_closed {
            self.open = self.open.saturating_sub(1);
        }
        Some(result)
    }
}
