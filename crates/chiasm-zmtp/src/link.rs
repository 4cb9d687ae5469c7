//! The connecting side: the life of one link to one endpoint across losses.
//!
//! Never connects by itself and never resolves a name: it says when the owner shall. Never carries
//! anything over a loss: what was queued or unanswered on a lost connection is void, and
//! [`LinkEvent::Down`] tells so.

use std::collections::VecDeque;
use std::time::Duration;

use chiasm_core::time::Nanos;

use crate::close_reason::CloseReason;
use crate::connection::{Connection, Event, Peer};
use crate::limits::{KEPT_EVENTS, LinkLimits};
use crate::send_error::SendError;
use crate::socket_type::Role;

/// What a link tells its owner. Each `Connect` is followed by exactly one `Down`, at the latest
/// before `Dormant`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// Start to connect (resolve first, if it is a name), then call [`Link::connected`] or
    /// [`Link::connect_failed`].
    Connect,
    /// The handshake is finished: payloads can be sent.
    Up(Peer),
    /// The payload of one message.
    Message(Vec<u8>),
    /// The attempt or the connection has ended: drop the socket and whatever waits for an answer on
    /// it. The link tries again by itself, unless `Dormant` follows.
    Down(CloseReason),
    /// The link is out of use and does nothing until [`Link::wake`]. It may as well be dropped.
    Dormant,
}

#[derive(Debug)]
enum State {
    Dormant,
    /// Backing off.
    Waiting {
        until: Nanos,
    },
    /// The owner is connecting.
    Connecting {
        deadline: Nanos,
    },
    /// There is a stream.
    Open(Box<Connection>),
}

/// A link to one endpoint. The same drive as [`Connection`]: one mutation, then drain.
#[derive(Debug)]
pub struct Link {
    limits: LinkLimits,
    state: State,
    events: VecDeque<LinkEvent>,
    /// When it goes dormant without further use.
    idle_at: Nanos,
    /// Attempts and connections in a row that brought no message.
    failures: u32,
    /// State of the generator of jitter.
    seed: u64,
}

impl Link {
    /// A link that wants to connect at once. `seed` spreads the retries of many links; the same
    /// seed gives the same waits.
    #[must_use]
    pub fn new(limits: LinkLimits, seed: u64, now: Nanos) -> Self {
        let mut link = Self {
            limits,
            state: State::Dormant,
            events: VecDeque::new(),
            idle_at: Nanos::NEVER,
            failures: 0,
            seed,
        };
        link.wake(now);
        link
    }

    /// Marks the link as in use; a dormant one wants to connect again. An owner that waits for an
    /// answer longer than the idle limit calls it meanwhile.
    pub fn wake(&mut self, now: Nanos) {
        self.idle_at = now.after(self.limits.idle_timeout);
        if matches!(self.state, State::Dormant) {
            self.connect(now);
        }
    }

    /// The owner's stream is established. Ignored unless the link asked for it: the owner then
    /// closes that stream.
    pub fn connected(&mut self, now: Nanos) {
        if matches!(self.state, State::Connecting { .. }) {
            let connection = Connection::new(Role::Dealer, &self.limits.connection, now);
            self.state = State::Open(Box::new(connection));
        }
    }

    /// The owner could not connect. Ignored unless the link asked for it.
    pub fn connect_failed(&mut self, now: Nanos, reason: CloseReason) {
        if matches!(self.state, State::Connecting { .. }) {
            self.down(now, reason);
        }
    }

    /// [`Connection::receive`].
    pub fn receive(&mut self, now: Nanos, bytes: &[u8]) {
        if let State::Open(connection) = &mut self.state {
            connection.receive(now, bytes);
            self.collect(now);
        }
    }

    /// [`Connection::output`]; empty without a stream.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.connection().map(Connection::output).unwrap_or_default()
    }

    /// [`Connection::consume_output`].
    pub fn consume_output(&mut self, now: Nanos, written: usize) {
        if let State::Open(connection) = &mut self.state {
            connection.consume_output(now, written);
        }
    }

    /// [`Connection::send`]; [`SendError::NotReady`] unless the link is up.
    pub fn send(&mut self, now: Nanos, payload: Vec<u8>) -> Result<(), SendError> {
        let State::Open(connection) = &mut self.state else { return Err(SendError::NotReady) };
        connection.send(now, payload)?;
        self.wake(now);
        Ok(())
    }

    /// Ends the attempt or connection of the moment, if there is one, for a reason of the owner's
    /// (the stream ended, the peer was refused). The link backs off and tries again.
    pub fn close(&mut self, now: Nanos, reason: CloseReason) {
        if let State::Open(connection) = &mut self.state {
            connection.close(reason);
            self.collect(now);
        } else {
            self.connect_failed(now, reason);
        }
    }

    /// The next thing for the owner.
    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        let event = self.events.pop_front();
        if event.is_none() && self.events.capacity() > KEPT_EVENTS {
            // As in a connection: a burst must not leave its queue behind.
            self.events = VecDeque::new();
        }
        event
    }

    /// When to call [`Link::handle_timeout`]; [`Nanos::NEVER`] if there is no need to.
    #[must_use]
    pub fn poll_timeout(&self) -> Nanos {
        let next = match &self.state {
            State::Dormant => return Nanos::NEVER,
            State::Waiting { until } => *until,
            State::Connecting { deadline } => *deadline,
            State::Open(connection) => connection.poll_timeout(),
        };
        next.min(self.idle_at)
    }

    /// Acts on every deadline that has passed (at its very instant it has). Early calls do nothing.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if now >= self.idle_at {
            self.sleep(now);
            return;
        }
        match &mut self.state {
            State::Waiting { until } if now >= *until => self.connect(now),
            State::Connecting { deadline } if now >= *deadline => {
                let limit = self.limits.connect_timeout;
                self.down(now, CloseReason::ConnectTimeout { limit });
            }
            State::Open(connection) => {
                connection.handle_timeout(now);
                self.collect(now);
            }
            State::Dormant | State::Waiting { .. } | State::Connecting { .. } => {}
        }
    }

    /// Whether payloads can be sent.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.connection().is_some_and(Connection::is_ready)
    }

    /// The connection of the moment, to look at.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        match &self.state {
            State::Open(connection) => Some(connection),
            _ => None,
        }
    }

    fn connect(&mut self, now: Nanos) {
        self.state = State::Connecting { deadline: now.after(self.limits.connect_timeout) };
        self.events.push_back(LinkEvent::Connect);
    }

    /// Hands on what the connection has to say.
    fn collect(&mut self, now: Nanos) {
        while let State::Open(connection) = &mut self.state {
            match connection.poll_event() {
                None => break,
                Some(Event::Ready(peer)) => self.events.push_back(LinkEvent::Up(peer)),
                Some(Event::Message(payload)) => {
                    // Only a message proves that the endpoint is of use: a peer that shakes hands
                    // and hangs up must not be called twenty times a second.
                    self.failures = 0;
                    self.idle_at = now.after(self.limits.idle_timeout);
                    self.events.push_back(LinkEvent::Message(payload));
                }
                Some(Event::Closed(reason)) => self.down(now, reason),
            }
        }
    }

    fn down(&mut self, now: Nanos, reason: CloseReason) {
        self.events.push_back(LinkEvent::Down(reason));
        self.state = State::Waiting { until: now.after(self.backoff()) };
        self.failures = self.failures.saturating_add(1);
    }

    /// The end of the link's use (hazard C12).
    fn sleep(&mut self, now: Nanos) {
        let limit = self.limits.idle_timeout;
        self.close(now, CloseReason::IdleTimeout { limit });
        self.state = State::Dormant;
        self.failures = 0;
        self.events.push_back(LinkEvent::Dormant);
    }

    /// The wait after the failures so far: doubling from `backoff_min` to `backoff_max`, of which
    /// between a half and all is drawn.
    fn backoff(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let whole = self.limits.backoff_min.saturating_mul(factor).min(self.limits.backoff_max);
        let half = u64::try_from(whole.as_nanos() / 2).unwrap_or(u64::MAX);
        let spread = self.random().checked_rem(half.saturating_add(1)).unwrap_or_default();
        Duration::from_nanos(half.saturating_add(spread))
    }

    /// The next number of `SplitMix64` (Steele, Lea, Flood 2014): enough to spread retries.
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
