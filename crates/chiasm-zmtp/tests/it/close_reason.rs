//! What an operator reads: the label and the text of every reason, in one table.

use std::time::Duration;

use chiasm_zmtp::{CloseReason, EnvelopeProblem, Role};

#[test]
#[expect(clippy::too_many_lines, reason = "one table, two lines of code")]
fn every_reason_says_what_was_seen_and_what_is_allowed() {
    let limit = Duration::from_secs(5);
    let table = [
        (CloseReason::PeerClosed, "peer_closed", "the peer closed the connection"),
        (
            CloseReason::Io { error: "Connection reset by peer".into() },
            "io",
            "the connection failed: Connection reset by peer",
        ),
        (
            CloseReason::ConnectFailed { error: "Connection refused".into() },
            "connect_failed",
            "could not connect: Connection refused",
        ),
        (
            CloseReason::ConnectTimeout { limit },
            "connect_timeout",
            "not connected within 5s (connect_timeout)",
        ),
        (
            CloseReason::NotZmtp { first: "GET / HTTP".into() },
            "not_zmtp",
            "not a ZMTP peer: its first bytes are \"GET / HTTP\"",
        ),
        (
            CloseReason::VersionTooOld { major: 1 },
            "version_too_old",
            "the peer speaks ZMTP 1, 3.0 or later is needed",
        ),
        (
            CloseReason::Mechanism { seen: "CURVE".into() },
            "mechanism",
            "the peer wants the security mechanism \"CURVE\", only NULL is spoken here",
        ),
        (
            CloseReason::AsServer { seen: 1 },
            "as_server",
            "the peer's greeting has as-server 1, with the NULL mechanism it must be 0",
        ),
        (
            CloseReason::SocketType { ours: Role::Dealer, theirs: "PUB".into() },
            "socket_type",
            "the peer is a PUB socket; a DEALER takes ROUTER, REP or DEALER",
        ),
        (
            CloseReason::BadCommand { name: "PING".into(), problem: "it came before READY" },
            "bad_command",
            "bad command \"PING\": it came before READY",
        ),
        (
            CloseReason::PeerError { reason: "busy".into() },
            "peer_error",
            "the peer refused the connection: \"busy\"",
        ),
        (
            CloseReason::MessageBeforeReady,
            "message_before_ready",
            "a message came before the peer's READY",
        ),
        (
            CloseReason::BadFlags { flags: 5 },
            "bad_flags",
            "a frame has the flags 0x05; 0 to 4 and 6 exist",
        ),
        (
            CloseReason::MessageTooLarge { announced: 65_537, limit: 65_536 },
            "message_too_large",
            "a message of at least 65537 bytes was announced, max_message_bytes is 65536",
        ),
        (
            CloseReason::CommandTooLarge { announced: 4097, limit: 4096 },
            "command_too_large",
            "a command of 4097 bytes was announced, 4096 are allowed",
        ),
        (
            CloseReason::Envelope(EnvelopeProblem::FirstFrame { bytes: 5 }),
            "envelope",
            "a message is not an empty frame and one payload: its first frame has 5 bytes",
        ),
        (
            CloseReason::Envelope(EnvelopeProblem::NoPayload),
            "envelope",
            "a message is not an empty frame and one payload: it ends after the first frame",
        ),
        (
            CloseReason::Envelope(EnvelopeProblem::MoreFrames),
            "envelope",
            "a message is not an empty frame and one payload: it has more than two frames",
        ),
        (
            CloseReason::HandshakeTimeout { waiting_for: "READY", limit },
            "handshake_timeout",
            "no READY from the peer within 5s (handshake_timeout)",
        ),
        (
            CloseReason::HeartbeatTimeout { limit },
            "heartbeat_timeout",
            "nothing received for 5s after a PING (heartbeat_timeout): the peer is frozen",
        ),
        (CloseReason::IdleTimeout { limit }, "idle_timeout", "no message for 5s (idle_timeout)"),
        (
            CloseReason::OutputFull { queued: 9, limit: 8 },
            "output_full",
            "the peer does not read: 9 bytes wait to be sent, max_output_bytes is 8",
        ),
        (
            CloseReason::ConnectionCap { limit: 1024 },
            "connection_cap",
            "1024 connections are open (max_connections)",
        ),
        (
            CloseReason::Refused { why: "an undecodable request".into() },
            "refused",
            "refused: an undecodable request",
        ),
        (CloseReason::ShutDown, "shut_down", "this node is shutting down"),
    ];
    for (reason, kind, text) in table {
        assert_eq!((reason.kind(), reason.to_string()), (kind, text.to_owned()));
    }
}
