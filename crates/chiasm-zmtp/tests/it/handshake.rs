//! Greeting and READY: the golden bytes, what is tolerated, and each reason for a refusal.

use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Connection, Event, Limits, Peer, Role, SendError, SocketType};

use crate::wire::{close_reason, drain_output, events, frame, greeting, opening, ready};

fn router() -> Connection {
    Connection::new(Role::Router, &Limits::for_router(), Nanos::ZERO)
}

fn dealer() -> Connection {
    Connection::new(Role::Dealer, &Limits::for_dealer(), Nanos::ZERO)
}

/// What a router says to a peer that sends `bytes` first.
fn refusal(bytes: &[u8]) -> CloseReason {
    let mut connection = router();
    connection.receive(Nanos::ZERO, bytes);
    assert!(connection.is_closed());
    assert!(connection.output().is_empty(), "nothing is said to a refused peer");
    close_reason(&mut connection)
}

#[test]
fn the_greeting_is_sent_at_once_and_ready_only_after_the_peers_greeting() {
    let mut connection = router();
    let mut golden = b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01NULL".to_vec();
    golden.resize(64, 0);
    assert_eq!(drain_output(&mut connection, Nanos::ZERO), golden);

    connection.receive(Nanos::ZERO, &greeting()[..63]);
    assert_eq!(drain_output(&mut connection, Nanos::ZERO), b"");
    connection.receive(Nanos::ZERO, &greeting()[63..]);
    assert_eq!(
        drain_output(&mut connection, Nanos::ZERO),
        b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06ROUTER\x08Identity\0\0\0\0"
    );
    assert!(!connection.is_ready());
}

#[test]
fn the_dealers_ready_names_a_dealer() {
    let mut connection = dealer();
    connection.receive(Nanos::ZERO, &greeting());
    assert_eq!(
        drain_output(&mut connection, Nanos::ZERO)[64..],
        *b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
    );
}

#[test]
fn nothing_can_be_sent_before_the_peers_ready() {
    let mut connection = router();
    assert_eq!(connection.send(Nanos::ZERO, b"early".to_vec()), Err(SendError::NotReady));
    connection.receive(Nanos::ZERO, &greeting());
    assert_eq!(connection.send(Nanos::ZERO, b"early".to_vec()), Err(SendError::NotReady));
    connection.receive(Nanos::ZERO, &ready("DEALER", b""));
    assert_eq!(connection.send(Nanos::ZERO, b"now".to_vec()), Ok(()));
    let output = drain_output(&mut connection, Nanos::ZERO);
    assert!(output.ends_with(b"\x01\x00\x00\x03now"));
}

#[test]
fn the_peers_identity_and_type_are_reported() {
    let mut connection = router();
    connection.receive(Nanos::ZERO, &greeting());
    connection.receive(Nanos::ZERO, &ready("REQ", b"\0id\xff"));
    let peer = Peer { identity: b"\0id\xff".to_vec(), socket_type: SocketType::Req };
    assert_eq!(events(&mut connection), [Event::Ready(peer)]);
}

#[test]
fn an_identity_may_have_255_bytes() {
    let mut connection = router();
    connection.receive(Nanos::ZERO, &[greeting(), ready("DEALER", &[7; 255])].concat());
    assert!(connection.is_ready());

    let mut body = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\x01\0".to_vec();
    body.extend([7; 256]);
    let reason = refusal(&[greeting(), frame(6, &body)].concat());
    let problem = "its Identity is longer than 255 bytes";
    assert_eq!(reason, CloseReason::BadCommand { name: "READY".into(), problem });
}

#[test]
fn property_names_ignore_case_and_unknown_properties_are_skipped() {
    let mut connection = router();
    let body = b"\x05READY\x07X-Thing\0\0\0\x02ab\x0bsOCKET-tYPE\0\0\0\x06DEALER";
    connection.receive(Nanos::ZERO, &[greeting(), frame(4, body)].concat());
    assert!(connection.is_ready());
}

#[test]
fn minor_version_0_and_later_major_versions_are_accepted() {
    for (major, minor) in [(3, 0), (3, 1), (3, 9), (4, 0)] {
        let mut bytes = opening("DEALER");
        (bytes[10], bytes[11]) = (major, minor);
        let mut connection = router();
        connection.receive(Nanos::ZERO, &bytes);
        assert!(connection.is_ready(), "{major}.{minor}");
    }
}

#[test]
fn a_version_before_3_is_refused_at_its_eleventh_byte() {
    for major in 0..3 {
        let bytes = [b"\xff\0\0\0\0\0\0\0\x01\x7f", &[major][..]].concat();
        assert_eq!(refusal(&bytes), CloseReason::VersionTooOld { major });
    }
}

#[test]
fn an_http_request_is_named_by_its_first_bytes() {
    let reason = refusal(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(reason, CloseReason::NotZmtp { first: "GET / HTTP".into() });
    assert_eq!(reason.to_string(), "not a ZMTP peer: its first bytes are \"GET / HTTP\"");
}

#[test]
fn a_signature_with_a_wrong_end_is_refused() {
    assert_eq!(refusal(b"\xff\0\0\0\0\0\0\0\x01\x7e").kind(), "not_zmtp");
}

#[test]
fn another_mechanism_is_refused() {
    let mut bytes = greeting();
    bytes[12..17].copy_from_slice(b"PLAIN");
    assert_eq!(refusal(&bytes), CloseReason::Mechanism { seen: "PLAIN".into() });
    bytes[12..17].copy_from_slice(b"NULLX");
    assert_eq!(refusal(&bytes), CloseReason::Mechanism { seen: "NULLX".into() });
    bytes[12..17].copy_from_slice(b"NULL\0");
    bytes[30] = b'x';
    assert_eq!(refusal(&bytes).kind(), "mechanism");
}

#[test]
fn as_server_is_refused() {
    let mut bytes = greeting();
    bytes[32] = 1;
    assert_eq!(refusal(&bytes), CloseReason::AsServer { seen: 1 });
}

#[test]
fn only_types_that_share_the_envelope_may_meet() {
    let all = ["ROUTER", "DEALER", "REQ", "REP", "PUB", "SUB", "PUSH", "PULL", "PAIR", "dealer"];
    let accepted_by = |make: fn() -> Connection| {
        all.into_iter().filter(move |name| {
            let mut connection = make();
            connection.receive(Nanos::ZERO, &opening(name));
            assert_ne!(connection.is_ready(), connection.is_closed());
            connection.is_ready()
        })
    };
    assert_eq!(accepted_by(router).collect::<Vec<_>>(), ["ROUTER", "DEALER", "REQ"]);
    assert_eq!(accepted_by(dealer).collect::<Vec<_>>(), ["ROUTER", "DEALER", "REP"]);
    assert_eq!(
        refusal(&opening("PUB")).to_string(),
        "the peer is a PUB socket; a ROUTER takes DEALER, REQ or ROUTER"
    );
}

#[test]
fn a_ready_without_type_or_cut_off_is_refused() {
    for (body, problem) in [
        (&b"\x05READY"[..], "it has no Socket-Type"),
        (b"\x05READY\x0bSocket-Type\0\0", "a property's value is cut off"),
        (b"\x05READY\x0bSocket-Type\0\0\0\x07DEALER", "a property's value is cut off"),
        (b"\x05READY\x0cSocket-Type", "a property's name is cut off"),
        (b"\x05READY\0\0\0\0\0", "a property has no name"),
    ] {
        let reason = refusal(&[greeting(), frame(4, body)].concat());
        assert_eq!(reason, CloseReason::BadCommand { name: "READY".into(), problem });
    }
}

#[test]
fn a_second_ready_is_refused() {
    let reason = refusal(&[opening("DEALER"), ready("DEALER", b"")].concat());
    let problem = "it came twice";
    assert_eq!(reason, CloseReason::BadCommand { name: "READY".into(), problem });
}

#[test]
fn a_ping_or_pong_before_ready_is_refused() {
    for name in ["PING", "PONG"] {
        let body = [b"\x04", name.as_bytes(), b"\0\0"].concat();
        let reason = refusal(&[greeting(), frame(4, &body)].concat());
        let problem = "it came before READY";
        assert_eq!(reason, CloseReason::BadCommand { name: name.into(), problem });
    }
}

#[test]
fn a_message_before_ready_is_refused_at_its_header() {
    assert_eq!(refusal(&[greeting(), vec![1, 0]].concat()), CloseReason::MessageBeforeReady);
}

#[test]
fn the_peers_error_is_shown_short_and_printable() {
    let reason = refusal(&[greeting(), frame(4, b"\x05ERROR\x06no\n\xffgo")].concat());
    assert_eq!(reason, CloseReason::PeerError { reason: "no\\n\\xffgo".into() });

    let long = [b"\x05ERROR\xff".to_vec(), vec![b'x'; 255]].concat();
    let CloseReason::PeerError { reason } = refusal(&[greeting(), frame(6, &long)].concat()) else {
        panic!("not an error of the peer");
    };
    assert_eq!(reason.len(), 67);

    let cut = refusal(&[greeting(), frame(4, b"\x05ERROR\x07abc")].concat());
    assert_eq!(cut.kind(), "bad_command");
}
