//! One ZMTP connection, either role: handshake, heartbeats, messages, limits.
//!
//! Never does IO and never reads a clock. One mutation, then drain: call [`Connection::receive`],
//! [`Connection::handle_timeout`] or another method that takes `&mut self`, then
//! [`Connection::poll_event`] until it is empty, then write [`Connection::output`], then sleep no
//! longer than to [`Connection::poll_timeout`].

use std::collections::VecDeque;
use std::time::Duration;

use chiasm_core::time::Nanos;
use chiasm_core::wire::Message;

use crate::close_reason::{CloseReason, printable};
use crate::command::{self, Command};
use crate::frame::{Header, Kind};
use crate::greeting::GREETING;
use crate::inbound::{Inbound, Item};
use crate::limits::{COMMAND_ROOM_BYTES, KEPT_EVENTS, Limits};
use crate::outbound::{ENCODE_BYTES, Outbound};
use crate::send_error::SendError;
use crate::socket_type::{Role, SocketType};

/// What the peer said of itself in its READY.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// At most 255 bytes, usually empty. Chosen by the peer, so no proof of anything.
    pub identity: Vec<u8>,
    /// One of the types that our role accepts.
    pub socket_type: SocketType,
}

/// What a connection tells its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The handshake is finished: from here on [`Connection::send`] takes payloads. Comes once.
    Ready(Peer),
    /// The payload of one message, without its envelope.
    Message(Vec<u8>),
    /// The connection has ended, and the owner shall close its socket. Comes once, last, after all
    /// messages that were received before.
    Closed(CloseReason),
}

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Waiting for the peer's greeting or its READY.
    Handshake,
    Ready,
    Closed,
}

/// Every deadline of a connection, [`Nanos::NEVER`] where it does not run.
#[derive(Debug)]
struct Deadlines {
    /// The peer's READY must be here.
    handshake: Nanos,
    /// We owe the next PING.
    ping: Nanos,
    /// Something must have been received since the last PING.
    silence: Nanos,
    /// A message must have passed: only where no PING shows that the peer lives.
    idle: Nanos,
}

impl Deadlines {
    const NONE: Self = Self {
        handshake: Nanos::NEVER,
        ping: Nanos::NEVER,
        silence: Nanos::NEVER,
        idle: Nanos::NEVER,
    };

    fn next(&self) -> Nanos {
        self.handshake.min(self.ping).min(self.silence).min(self.idle)
    }
}

/// One connection, either role. See the module for how to drive it.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    limits: Limits,
    phase: Phase,
    inbound: Inbound,
    outbound: Outbound,
    events: VecDeque<Event>,
    deadlines: Deadlines,
    /// The peer's minor version of ZMTP 3; PING exists from 3.1 on.
    peer_minor: u8,
    /// How many queued bytes must be written until our last PING is: 0 once it is on its way.
    ping_behind: usize,
    /// From when on it is idle, unless a message passes before.
    idle_at: Nanos,
}

impl Connection {
    /// A connection over a stream that was established at `now`. Our greeting is its first output.
    #[must_use]
    pub fn new(role: Role, limits: &Limits, now: Nanos) -> Self {
        let mut outbound = Outbound::default();
        outbound.push(GREETING.to_vec());
        Self {
            role,
            phase: Phase::Handshake,
            inbound: Inbound::new(limits.max_message_bytes),
            outbound,
            events: VecDeque::new(),
            deadlines: Deadlines {
                handshake: now.after(limits.handshake_timeout),
                ..Deadlines::NONE
            },
            peer_minor: 0,
            ping_behind: 0,
            idle_at: Nanos::NEVER,
            limits: limits.clone(),
        }
    }

    /// Takes bytes that the peer sent. Ignored once closed.
    ///
    /// Read sockets before timers: bytes that are here stop a deadline that passed while the owner
    /// was away. Until the owner drains the events they hold the messages that `bytes` completed,
    /// so hand over no more at once than may be held (a small message takes 56 bytes as an event
    /// and at least 4 on the wire).
    pub fn receive(&mut self, now: Nanos, mut bytes: &[u8]) {
        if !bytes.is_empty() {
            self.deadlines.silence = Nanos::NEVER;
        }
        while self.phase != Phase::Closed {
            match self.inbound.next_item(&mut bytes).and_then(|item| self.accept(now, item)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => self.close(reason),
            }
        }
    }

    /// The next thing for the owner.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() && (self.is_closed() || self.events.capacity() > KEPT_EVENTS) {
            // A closed one holds nothing; a burst of small messages must not leave its queue behind.
            self.events = VecDeque::new();
        }
        event
    }

    /// What to write next; empty when there is nothing. Writing may take any prefix; there may be
    /// more behind it once it is consumed.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.outbound.front()
    }

    /// Tells that the first `written` bytes of the output are written.
    pub fn consume_output(&mut self, now: Nanos, written: usize) {
        let consumed = self.outbound.consume(written);
        if self.ping_behind > 0 && consumed > 0 {
            // The PING has not left yet, and a peer that reads at all is not frozen: a long
            // message over a slow network must not close the connection. A frozen peer's buffers
            // fill, and then nothing is consumed any more.
            self.ping_behind = self.ping_behind.saturating_sub(consumed);
            if self.deadlines.silence != Nanos::NEVER {
                self.deadlines.silence = now.after(self.limits.heartbeat_timeout);
            }
        }
    }

    /// Queues one payload as a message; it is moved, not copied, unless it is small. A descriptor list
    /// that is part of it is encoded while it is written, and counts against `max_output_bytes` only
    /// as far as it has been encoded. An error changes nothing.
    pub fn send(&mut self, now: Nanos, payload: impl Into<Message>) -> Result<(), SendError> {
        match self.phase {
            Phase::Handshake => return Err(SendError::NotReady),
            Phase::Closed => return Err(SendError::Closed),
            Phase::Ready => {}
        }
        let payload = payload.into();
        let size = payload.bytes();
        let header = Header::bytes(0).saturating_add(Header::bytes(size));
        let (bytes, rows) = match payload.into_parts() {
            (mut bytes, Some((mut rows, length))) if length <= ENCODE_BYTES as u64 => {
                bytes.extend(rows.next_bytes(ENCODE_BYTES));
                (bytes, None)
            }
            parts => parts,
        };
        let needed = header.saturating_add(bytes.len());
        let queued = self.held_bytes();
        let limit = self.limits.max_output_bytes;
        if queued.saturating_add(needed) > limit {
            return Err(SendError::OutputFull { needed, queued, limit });
        }
        let write_header = |out: &mut Vec<u8>| {
            Header::write(out, Kind::More, 0);
            Header::write(out, Kind::Last, size);
        };
        self.outbound.push_after(header, write_header, bytes);
        if let Some((rows, length)) = rows {
            self.outbound.push_rows(rows, usize::try_from(length).unwrap_or(usize::MAX));
        }
        self.used(now);
        Ok(())
    }

    /// When to call [`Connection::handle_timeout`]; [`Nanos::NEVER`] if there is no need to.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        self.deadlines.next()
    }

    /// Acts on every deadline that has passed (at its very instant it has). Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if now >= self.deadlines.handshake {
            let waiting_for = if self.inbound.in_greeting() { "greeting" } else { "READY" };
            let limit = self.limits.handshake_timeout;
            self.close(CloseReason::HandshakeTimeout { waiting_for, limit });
        } else if now >= self.deadlines.silence {
            self.close(CloseReason::HeartbeatTimeout { limit: self.limits.heartbeat_timeout });
        } else if now >= self.deadlines.idle {
            self.close(CloseReason::IdleTimeout { limit: self.limits.idle_timeout });
        } else if now >= self.deadlines.ping
            && let Err(reason) = self.ping(now)
        {
            self.close(reason);
        }
    }

    /// Ends the connection for a reason of the owner's. Does nothing if it has ended already.
    ///
    /// What is queued is dropped; an owner that wants it to arrive writes it first.
    pub fn close(&mut self, reason: CloseReason) {
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.inbound = Inbound::new(0);
        self.outbound = Outbound::default();
        self.deadlines = Deadlines::NONE;
        self.events.push_back(Event::Closed(reason));
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether payloads can be sent.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// From when on it is idle and gives up its place if that is needed, as long as no message passes;
    /// [`Nanos::NEVER`] where its handshake is not finished.
    #[must_use]
    pub fn idle_at(&self) -> Nanos {
        if self.is_ready() { self.idle_at } else { Nanos::NEVER }
    }

    /// Bytes queued and not yet written.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.outbound.queued()
    }

    /// Bytes queued that are there: those of descriptor lists that have not been encoded are not.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.outbound.queued().saturating_sub(self.outbound.unencoded())
    }

    /// Whether a descriptor list waits for its turn: a peer that wants more of them has to take these
    /// first, so its owner reads no more of its requests meanwhile.
    #[must_use]
    pub fn owes_rows(&self) -> bool {
        self.outbound.unencoded() > 0
    }

    /// Whether there is something for the owner.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Heap bytes held now: partial input, queued output, undrained events.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let slots = self.events.capacity().saturating_mul(size_of::<Event>());
        let events = self.events.iter().map(|event| match event {
            Event::Ready(peer) => peer.identity.capacity(),
            Event::Message(payload) => payload.capacity(),
            Event::Closed(_) => 0,
        });
        events
            .fold(slots, usize::saturating_add)
            .saturating_add(self.inbound.memory_bytes())
            .saturating_add(self.outbound.memory_bytes())
    }

    /// Acts on one item of the peer's stream; false if there was none.
    fn accept(&mut self, now: Nanos, item: Option<Item>) -> Result<bool, CloseReason> {
        match item {
            None => return Ok(false),
            Some(Item::Greeting { minor }) => {
                self.peer_minor = minor;
                // Not before: READY belongs to NULL, which the peer has only now agreed to.
                self.outbound.push(command::ready_frame(self.role));
            }
            Some(Item::Command(body)) => self.command(now, &body)?,
            Some(Item::Payload(payload)) => {
                self.used(now);
                self.events.push_back(Event::Message(payload));
            }
        }
        Ok(true)
    }

    fn command(&mut self, now: Nanos, body: &[u8]) -> Result<(), CloseReason> {
        let bad = |name: &str, problem| CloseReason::BadCommand { name: name.into(), problem };
        match (command::parse(body)?, self.phase) {
            (Command::Error { reason }, _) => {
                Err(CloseReason::PeerError { reason: printable(reason) })
            }
            (Command::Ready { socket_type, identity }, Phase::Handshake) => {
                self.ready(now, socket_type, identity)
            }
            (Command::Ready { .. }, _) => Err(bad("READY", "it came twice")),
            (Command::Ping { context }, Phase::Ready) => self.queue(command::pong_frame(context)),
            (Command::Pong, Phase::Ready) => Ok(()),
            (Command::Ping { .. }, _) => Err(bad("PING", "it came before READY")),
            (Command::Pong, _) => Err(bad("PONG", "it came before READY")),
        }
    }

    fn ready(
        &mut self,
        now: Nanos,
        socket_type: &[u8],
        identity: &[u8],
    ) -> Result<(), CloseReason> {
        let refused =
            || CloseReason::SocketType { ours: self.role, theirs: printable(socket_type) };
        let socket_type = SocketType::parse(socket_type)
            .filter(|theirs| self.role.accepts(*theirs))
            .ok_or_else(refused)?;
        self.phase = Phase::Ready;
        self.inbound.allow_messages();
        self.deadlines = Deadlines::NONE;
        // A 3.0 peer does not know PING; for it only the idle limit is left.
        if self.peer_minor > 0 {
            self.deadlines.ping = now.after(self.limits.heartbeat_interval);
        }
        self.used(now);
        self.events.push_back(Event::Ready(Peer { identity: identity.to_vec(), socket_type }));
        Ok(())
    }

    /// A message has passed.
    fn used(&mut self, now: Nanos) {
        self.idle_at = now.after(self.limits.idle_timeout);
        if self.deadlines.ping == Nanos::NEVER {
            self.deadlines.idle = self.idle_at;
        }
    }

    /// Queues a PING and starts to count the peer's silence.
    ///
    /// PINGs go out at a fixed interval, not only after silence: libzmq counts their time to live
    /// from the last thing that *we* sent.
    fn ping(&mut self, now: Nanos) -> Result<(), CloseReason> {
        self.deadlines.ping = now.after(self.limits.heartbeat_interval);
        // One that still waits behind a long message is enough.
        if self.ping_behind == 0 {
            self.queue(command::ping_frame(tenths(self.limits.heartbeat_ttl)))?;
            // Only the first PING of a silence may be waited for. Each later one would put the
            // deadline off again, and a frozen peer would live for ever.
            if self.deadlines.silence == Nanos::NEVER {
                self.ping_behind = self.outbound.queued();
            }
        }
        let silence = now.after(self.limits.heartbeat_timeout);
        self.deadlines.silence = self.deadlines.silence.min(silence);
        Ok(())
    }

    /// Queues a command, for which there is a little more room than for messages.
    fn queue(&mut self, frame: Vec<u8>) -> Result<(), CloseReason> {
        let queued = self.held_bytes();
        let limit = self.limits.max_output_bytes.saturating_add(COMMAND_ROOM_BYTES);
        if queued.saturating_add(frame.len()) > limit {
            let limit = self.limits.max_output_bytes;
            return Err(CloseReason::OutputFull { queued, limit });
        }
        self.outbound.push(frame);
        Ok(())
    }
}

/// A time to live as PING carries it: tenths of a second, rounded up, at most what 16 bits hold.
fn tenths(duration: Duration) -> u16 {
    u16::try_from(duration.as_nanos().div_ceil(100_000_000)).unwrap_or(u16::MAX)
}
