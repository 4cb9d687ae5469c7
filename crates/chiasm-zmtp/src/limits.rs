//! Every bound of this crate, by name, with the reason for its value.
//!
//! The fields are for the operator; the constants are what the protocol itself bounds.

use std::time::Duration;

/// Longest command body in bytes. A PING needs 23, an ERROR 262; libzmq's READY of a DEALER with a
/// full 255 byte identity needs 300. The rest is room for properties that we do not know.
pub(crate) const MAX_COMMAND_BYTES: usize = 4096;

/// Longest context of a PING in bytes (ZMTP 3.1).
pub(crate) const MAX_PING_CONTEXT_BYTES: usize = 16;

/// Longest identity of a peer in bytes (ZMTP 3.1).
pub(crate) const MAX_IDENTITY_BYTES: usize = 255;

/// Room for commands past `max_output_bytes`, so that a peer that reads slowly but is alive still
/// gets its PONGs: 160 of the longest ones. A peer that fills it too is closed.
pub(crate) const COMMAND_ROOM_BYTES: usize = 4096;

/// Room for events that an idle connection keeps: a burst of more gives it back.
pub(crate) const KEPT_EVENTS: usize = 16;

/// Bounds of one connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Longest incoming message in bytes, all its frames together. A longer one closes the
    /// connection as soon as its length is announced.
    ///
    /// Router: 64 KiB (an `XferReq` is below 1 KiB, its longest fields are bounded at 1280 bytes).
    /// Dealer: 20 MiB (an upstream ack of a region of 1e6 blocks is 14 MB).
    pub max_message_bytes: usize,
    /// Most bytes queued and not yet written. A payload that does not fit is refused with
    /// [`SendError::OutputFull`](crate::SendError::OutputFull). 1 MiB. The descriptor lists for
    /// upstream consumers, 14 bytes per block of the region, count as far as they have been encoded.
    pub max_output_bytes: usize,
    /// From the connection's start to the peer's READY: 5 s. Bytes do not extend it.
    pub handshake_timeout: Duration,
    /// Time between two PINGs: 2 s, upstream's `HEARTBEAT_IVL`. `Duration::MAX`: none.
    pub heartbeat_interval: Duration,
    /// How long nothing at all may be received after a PING: 4 s, upstream's `HEARTBEAT_TIMEOUT`.
    /// With the default interval a frozen peer is noticed within 6 s of its last byte.
    pub heartbeat_timeout: Duration,
    /// The time to live in our PINGs: after so long without a message or command of ours libzmq
    /// closes the connection. 30 s, upstream's wait for an ack.
    ///
    /// Upstream's own heartbeats are never in force, so this is how its consumers notice that *we*
    /// froze. Not shorter: libzmq counts whole messages, and a 14 MB ack may take its time.
    pub heartbeat_ttl: Duration,
    /// After how long without a message in either direction a connection is idle; commands do not
    /// count. Router: 10 min. Dealer: `Duration::MAX`, never (a [`Link`](crate::Link) has an idle
    /// limit of its own).
    ///
    /// An idle connection whose peer answers PINGs gives up its place to a new one where there is no
    /// other, and stays otherwise: libzmq would connect again at once, and an upstream consumer that
    /// loses a connection may lose a request over it (hazard C19). One without PINGs is closed.
    pub idle_timeout: Duration,
}

impl Limits {
    /// The defaults of the bound side: small requests come in.
    #[must_use]
    pub const fn for_router() -> Self {
        Self {
            max_message_bytes: 64 << 10,
            max_output_bytes: 1 << 20,
            handshake_timeout: Duration::from_secs(5),
            heartbeat_interval: Duration::from_secs(2),
            heartbeat_timeout: Duration::from_secs(4),
            heartbeat_ttl: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(10),
        }
    }

    /// The defaults of the connecting side: acks of upstream's size come in.
    #[must_use]
    pub const fn for_dealer() -> Self {
        Self { max_message_bytes: 20 << 20, idle_timeout: Duration::MAX, ..Self::for_router() }
    }
}

/// Bounds of the bound side over all of its connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouterLimits {
    /// Bounds of each connection.
    pub connection: Limits,
    /// Most open connections: 1024. One more takes the place of the oldest that has not finished
    /// its handshake, or else of the one that has been idle for longest; where there is neither it is
    /// refused.
    pub max_connections: usize,
    /// Most bytes queued and not yet written over all connections: 64 MiB. Past it the
    /// connection that has most queued is closed: the peer that does not read pays, not the others.
    pub max_output_bytes: usize,
}

impl Default for RouterLimits {
    fn default() -> Self {
        Self { connection: Limits::for_router(), max_connections: 1024, max_output_bytes: 64 << 20 }
    }
}

/// Bounds of a link to one endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkLimits {
    /// Bounds of each of its connections.
    pub connection: Limits,
    /// From the wish to connect to an established stream, name resolution included: 3 s.
    pub connect_timeout: Duration,
    /// Longest wait before the second attempt: 50 ms. It doubles with each further one.
    pub backoff_min: Duration,
    /// Longest wait between two attempts: 5 s.
    pub backoff_max: Duration,
    /// How long a link is kept without use: 60 s (hazard C12). Use is a wake, a send or a message.
    pub idle_timeout: Duration,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            connection: Limits::for_dealer(),
            connect_timeout: Duration::from_secs(3),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            idle_timeout: Duration::from_mins(1),
        }
    }
}
