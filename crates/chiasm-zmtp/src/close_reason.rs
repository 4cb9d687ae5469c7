//! Why a connection ended: one variant per cause, each with what was seen and what is allowed.
//!
//! Text that came from a peer is shortened and made printable before it gets in here.

use std::time::Duration;

use thiserror::Error;

use crate::socket_type::Role;

/// Longest piece of a peer's bytes that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 64;

/// A peer's bytes as printable ASCII, at most [`MAX_SHOWN_BYTES`] of them.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let shown = bytes.get(..MAX_SHOWN_BYTES).unwrap_or(bytes);
    let mut text = shown.escape_ascii().to_string();
    if shown.len() < bytes.len() {
        text.push_str("...");
    }
    text
}

/// Why a connection ended.
///
/// The text names neither the peer nor the endpoint: the owner of the socket knows them and puts
/// them in front.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CloseReason {
    /// The stream ended; reported by the owner of the socket.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// Reading or writing failed; reported by the owner of the socket.
    #[error("the connection failed: {error}")]
    Io {
        /// The system's error text.
        error: String,
    },
    /// No stream could be established; reported by the owner of the socket.
    #[error("could not connect: {error}")]
    ConnectFailed {
        /// The system's error text.
        error: String,
    },
    /// No stream was established in time (a black-holed address).
    #[error("not connected within {limit:?} (connect_timeout)")]
    ConnectTimeout {
        /// The limit in force.
        limit: Duration,
    },
    /// The first ten bytes are no ZMTP signature: another protocol, often HTTP.
    #[error("not a ZMTP peer: its first bytes are \"{first}\"")]
    NotZmtp {
        /// The first ten bytes, printable.
        first: String,
    },
    /// The peer speaks a ZMTP before 3.0.
    #[error("the peer speaks ZMTP {major}, 3.0 or later is needed")]
    VersionTooOld {
        /// Major version in the peer's greeting.
        major: u8,
    },
    /// The peer wants a security mechanism.
    #[error("the peer wants the security mechanism \"{seen}\", only NULL is spoken here")]
    Mechanism {
        /// The mechanism in the peer's greeting, printable.
        seen: String,
    },
    /// The peer set as-server, which NULL does not have.
    #[error("the peer's greeting has as-server {seen}, with the NULL mechanism it must be 0")]
    AsServer {
        /// The as-server byte of the peer's greeting.
        seen: u8,
    },
    /// The peer's socket type cannot talk to ours.
    #[error("the peer is a {theirs} socket; a {ours} takes {}", ours.accepted())]
    SocketType {
        /// Our side.
        ours: Role,
        /// The peer's `Socket-Type`, printable.
        theirs: String,
    },
    /// A command that is malformed, unknown, or not allowed at this point.
    #[error("bad command \"{name}\": {problem}")]
    BadCommand {
        /// The command's name, printable.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The peer sent an ERROR command.
    #[error("the peer refused the connection: \"{reason}\"")]
    PeerError {
        /// The peer's reason, printable.
        reason: String,
    },
    /// A message came before the peer's READY.
    #[error("a message came before the peer's READY")]
    MessageBeforeReady,
    /// A frame with reserved flag bits, or a command that says that more frames follow.
    #[error("a frame has the flags {flags:#04x}; 0 to 4 and 6 exist")]
    BadFlags {
        /// The flags byte.
        flags: u8,
    },
    /// A message longer than allowed was announced. None of it was stored.
    #[error("a message of at least {announced} bytes was announced, max_message_bytes is {limit}")]
    MessageTooLarge {
        /// The announced length of one frame.
        announced: u64,
        /// The limit in force.
        limit: usize,
    },
    /// A command longer than allowed was announced. None of it was stored.
    #[error("a command of {announced} bytes was announced, {limit} are allowed")]
    CommandTooLarge {
        /// The announced length.
        announced: u64,
        /// The limit.
        limit: usize,
    },
    /// A message that is not `[empty][payload]` (hazard D3).
    #[error("a message is not an empty frame and one payload: {0}")]
    Envelope(EnvelopeProblem),
    /// The peer's READY did not come in time.
    #[error("no {waiting_for} from the peer within {limit:?} (handshake_timeout)")]
    HandshakeTimeout {
        /// `"greeting"` or `"READY"`.
        waiting_for: &'static str,
        /// The limit in force.
        limit: Duration,
    },
    /// Nothing was received after a PING: the peer's process or host is frozen, or the network is
    /// cut.
    #[error("nothing received for {limit:?} after a PING (heartbeat_timeout): the peer is frozen")]
    HeartbeatTimeout {
        /// The limit in force.
        limit: Duration,
    },
    /// No message in either direction for too long.
    #[error("no message for {limit:?} (idle_timeout)")]
    IdleTimeout {
        /// The limit in force.
        limit: Duration,
    },
    /// The peer does not read what it makes us send (hazard D1).
    #[error("the peer does not read: {queued} bytes wait to be sent, max_output_bytes is {limit}")]
    OutputFull {
        /// Bytes queued and not yet written.
        queued: usize,
        /// The limit in force.
        limit: usize,
    },
    /// All places are taken.
    #[error("{limit} connections are open (max_connections)")]
    ConnectionCap {
        /// The limit in force.
        limit: usize,
    },
    /// The owner refused the peer for a reason of its own (an undecodable payload, a quota).
    #[error("refused: {why}")]
    Refused {
        /// The owner's reason.
        why: String,
    },
    /// This node is shutting down.
    #[error("this node is shutting down")]
    ShutDown,
}

impl CloseReason {
    /// A `snake_case` label for metrics; the same for all values of one variant.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::Io { .. } => "io",
            Self::ConnectFailed { .. } => "connect_failed",
            Self::ConnectTimeout { .. } => "connect_timeout",
            Self::NotZmtp { .. } => "not_zmtp",
            Self::VersionTooOld { .. } => "version_too_old",
            Self::Mechanism { .. } => "mechanism",
            Self::AsServer { .. } => "as_server",
            Self::SocketType { .. } => "socket_type",
            Self::BadCommand { .. } => "bad_command",
            Self::PeerError { .. } => "peer_error",
            Self::MessageBeforeReady => "message_before_ready",
            Self::BadFlags { .. } => "bad_flags",
            Self::MessageTooLarge { .. } => "message_too_large",
            Self::CommandTooLarge { .. } => "command_too_large",
            Self::Envelope(_) => "envelope",
            Self::HandshakeTimeout { .. } => "handshake_timeout",
            Self::HeartbeatTimeout { .. } => "heartbeat_timeout",
            Self::IdleTimeout { .. } => "idle_timeout",
            Self::OutputFull { .. } => "output_full",
            Self::ConnectionCap { .. } => "connection_cap",
            Self::Refused { .. } => "refused",
            Self::ShutDown => "shut_down",
        }
    }
}

/// How a message differs from `[empty][payload]`. Judged frame by frame as lengths are announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EnvelopeProblem {
    /// The first frame is not empty.
    #[error("its first frame has {bytes} bytes")]
    FirstFrame {
        /// Announced length of the first frame.
        bytes: u64,
    },
    /// The empty frame is all there is.
    #[error("it ends after the first frame")]
    NoPayload,
    /// More frames follow the payload.
    #[error("it has more than two frames")]
    MoreFrames,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_bytes_are_shown_short_and_printable() {
        assert_eq!(printable(b"a\n\x1b[31m\xff"), "a\\n\\x1b[31m\\xff");
        assert_eq!(printable(&[b'x'; 64]).len(), 64);
        assert_eq!(printable(&[b'x'; 65]), format!("{}...", "x".repeat(64)));
    }
}
