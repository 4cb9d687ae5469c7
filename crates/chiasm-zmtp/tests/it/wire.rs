//! Bytes as a peer would send them, written by hand and not by the crate under test, and the few
//! moves that all tests make.

use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Connection, Event, Limits, Role};

/// The instant `millis` after the origin.
pub(crate) fn at_ms(millis: u64) -> Nanos {
    Nanos::from_nanos(millis * 1_000_000)
}

/// The instant one nanosecond before `now`.
pub(crate) fn just_before(now: Nanos) -> Nanos {
    Nanos::from_nanos(now.as_nanos() - 1)
}

/// The greeting of libzmq 4.3.5 with the NULL mechanism.
pub(crate) fn greeting() -> Vec<u8> {
    let mut bytes = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
    bytes.resize(64, 0);
    bytes
}

/// A frame of any kind with a true length.
pub(crate) fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![flags];
    if flags & 2 == 0 {
        bytes.push(u8::try_from(body.len()).expect("a short frame"));
    } else {
        bytes.extend((body.len() as u64).to_be_bytes());
    }
    bytes.extend(body);
    bytes
}

/// The READY of a socket of this type, as libzmq writes it.
pub(crate) fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0".to_vec();
    body.push(u8::try_from(socket_type.len()).expect("a short name"));
    body.extend(socket_type.bytes());
    body.extend(b"\x08Identity\0\0\0");
    body.push(u8::try_from(identity.len()).expect("a short identity"));
    body.extend(identity);
    frame(if body.len() > 255 { 6 } else { 4 }, &body)
}

/// All that a peer of this type sends before its first message.
pub(crate) fn opening(socket_type: &str) -> Vec<u8> {
    [greeting(), ready(socket_type, b"")].concat()
}

/// A whole message: the empty frame and the payload.
pub(crate) fn message(payload: &[u8]) -> Vec<u8> {
    let flags = if payload.len() > 255 { 2 } else { 0 };
    [vec![1, 0], frame(flags, payload)].concat()
}

pub(crate) fn ping(time_to_live: u16, context: &[u8]) -> Vec<u8> {
    let mut body = b"\x04PING".to_vec();
    body.extend(time_to_live.to_be_bytes());
    body.extend(context);
    frame(4, &body)
}

pub(crate) fn pong(context: &[u8]) -> Vec<u8> {
    frame(4, &[b"\x04PONG", context].concat())
}

/// A connection at the origin whose peer has finished its handshake, output and events drained.
pub(crate) fn ready_connection(role: Role, limits: &Limits) -> Connection {
    let mut connection = Connection::new(role, limits, Nanos::ZERO);
    connection
        .receive(Nanos::ZERO, &opening(if role == Role::Router { "DEALER" } else { "ROUTER" }));
    assert!(matches!(connection.poll_event(), Some(Event::Ready(_))));
    assert_eq!(connection.poll_event(), None);
    drain_output(&mut connection, Nanos::ZERO);
    connection
}

/// All that the connection wants to write, written.
pub(crate) fn drain_output(connection: &mut Connection, now: Nanos) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !connection.output().is_empty() {
        let chunk = connection.output().to_vec();
        connection.consume_output(now, chunk.len());
        bytes.extend(chunk);
    }
    bytes
}

pub(crate) fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event()).collect()
}

/// Why the connection closed; fails if it did not.
pub(crate) fn close_reason(connection: &mut Connection) -> CloseReason {
    match events(connection).pop() {
        Some(Event::Closed(reason)) => reason,
        other => panic!("not closed, the last event is {other:?}"),
    }
}
