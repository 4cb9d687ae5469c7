//! ZMTP input: no panic, no more memory than the limits, one verdict for every cut, and a router that
//! stays right whatever its connections do.

use std::time::Duration;

use chiasm_core::time::Nanos;
use chiasm_zmtp::{
    CloseReason, Connection, ConnectionId, Event, Limits, Link, LinkEvent, LinkLimits, Role,
    Router, RouterLimits,
};

use crate::input::Input;

/// What a connection may hold besides what its limits name: a command in part, small queues.
const OVERHEAD_BYTES: usize = 64 << 10;

/// All that a DEALER or a ROUTER of libzmq sends before its first message.
fn opening(dealer: bool) -> Vec<u8> {
    let mut bytes = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
    bytes.resize(64, 0);
    bytes.extend(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06");
    bytes.extend(if dealer { b"DEALER" } else { b"ROUTER" });
    bytes
}

fn limits() -> Limits {
    Limits { max_message_bytes: 4096, max_output_bytes: 8192, ..Limits::for_router() }
}

/// A byte says who we are and whether the handshake is done for the fuzzer, a byte how it is cut; the
/// rest is what comes.
pub(crate) fn connection(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.byte();
    let role = if kind & 1 == 0 { Role::Router } else { Role::Dealer };
    let cut = usize::from(input.byte()) + 1;
    let mut stream = if kind & 2 == 0 { Vec::new() } else { opening(role == Role::Router) };
    stream.extend(input.rest());
    let whole = feed(role, &stream, usize::MAX);
    assert_eq!(whole, feed(role, &stream, cut));
    assert_eq!(whole, feed(role, &stream, 1));
}

fn feed(role: Role, bytes: &[u8], cut: usize) -> Vec<Event> {
    let limits = limits();
    let bound = limits.max_message_bytes + limits.max_output_bytes + OVERHEAD_BYTES;
    let mut connection = Connection::new(role, &limits, Nanos::ZERO);
    let mut seen = Vec::new();
    for piece in bytes.chunks(cut.min(bytes.len().max(1))) {
        connection.receive(Nanos::ZERO, piece);
        seen.extend(std::iter::from_fn(|| connection.poll_event()));
        assert!(connection.memory_bytes() <= bound, "{} bytes held", connection.memory_bytes());
    }
    for event in &seen {
        match event {
            Event::Message(payload) => assert!(payload.len() <= limits.max_message_bytes),
            Event::Closed(reason) => check_reason(reason),
            Event::Ready(_) => {}
        }
    }
    let closed = seen.iter().filter(|event| matches!(event, Event::Closed(_))).count();
    assert_eq!(closed, usize::from(connection.is_closed()), "closed is told once");
    seen
}

fn check_reason(reason: &CloseReason) {
    let text = reason.to_string();
    assert!(text.len() < 600 && !text.contains('\n'), "{text}");
}

/// Connections that come, talk, read slowly, fall silent and go.
pub(crate) fn router(bytes: &[u8]) {
    const MOST: usize = 6;
    const OUTPUT: usize = 20_000;
    let mut input = Input::new(bytes);
    let limits =
        RouterLimits { connection: limits(), max_connections: MOST, max_output_bytes: OUTPUT };
    let mut router = Router::new(limits);
    let mut now = Nanos::ZERO;
    let mut open: Vec<ConnectionId> = Vec::new();
    while !input.is_empty() {
        let operation = input.byte();
        let chosen = open.get(input.below(MOST)).copied();
        match (operation % 9, chosen) {
            (0 | 1, _) => {
                if let Ok(id) = router.accept(now) {
                    assert!(!open.contains(&id));
                    open.push(id);
                    if operation % 9 == 1 {
                        router.receive(now, id, &opening(true));
                    }
                }
            }
            (2 | 3, Some(id)) => router.receive(now, id, input.bytes(200)),
            (4, Some(id)) => {
                let message = [&[1, 0, 0][..], &[3][..], b"abc"].concat();
                router.receive(now, id, &message);
            }
            (5, Some(id)) => {
                let _ = router.send(now, id, vec![7; usize::from(input.byte()) * 16]);
            }
            (6, Some(id)) => {
                let written = router.output(id).len().min(usize::from(input.byte()) * 8);
                router.consume_output(now, id, written);
            }
            (7, Some(id)) => router.close(id, CloseReason::ShutDown),
            (8, _) => {
                now = now.after(Duration::from_millis(u64::from(input.byte()) * 40));
                router.handle_timeout(now);
            }
            _ => {}
        }
        while let Some((id, event)) = router.poll_event() {
            assert!(open.contains(&id), "news of a connection that is over");
            if let Event::Closed(reason) = event {
                check_reason(&reason);
                open.retain(|known| *known != id);
            }
        }
        while router.poll_output().is_some() {}
        assert_eq!(router.open(), open.len());
        assert!(router.open() <= MOST && router.queued_bytes() <= OUTPUT);
    }
    router.close_all(&CloseReason::ShutDown);
    while let Some((id, event)) = router.poll_event() {
        if matches!(event, Event::Closed(_)) {
            open.retain(|known| *known != id);
        }
    }
    assert_eq!((router.open(), router.queued_bytes(), open.len()), (0, 0, 0));
}

/// One endpoint across attempts, losses and idle times.
pub(crate) fn link(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let connection = Limits { max_message_bytes: 4096, ..Limits::for_dealer() };
    let mut link = Link::new(LinkLimits { connection, ..LinkLimits::default() }, 7, Nanos::ZERO);
    let mut now = Nanos::ZERO;
    let (mut up, mut tried) = (false, false);
    while !input.is_empty() {
        match input.below(9) {
            0 => link.wake(now),
            1 => link.connected(now),
            2 => link.connect_failed(now, CloseReason::ShutDown),
            3 => link.receive(now, &opening(false)),
            4 => link.receive(now, input.bytes(200)),
            5 => {
                let _ = link.send(now, input.bytes(100).to_vec());
            }
            6 => link.consume_output(now, link.output().len().min(usize::from(input.byte()))),
            7 => link.close(now, CloseReason::ShutDown),
            _ => {
                now = now.after(Duration::from_millis(u64::from(input.byte()) * 100));
                link.handle_timeout(now);
            }
        }
        while let Some(event) = link.poll_event() {
            match event {
                LinkEvent::Connect => {
                    assert!(!tried, "another attempt before the end of the last");
                    tried = true;
                }
                LinkEvent::Up(_) => {
                    assert!(tried && !up);
                    up = true;
                }
                LinkEvent::Message(_) => assert!(up),
                LinkEvent::Down(reason) => {
                    assert!(tried, "down without an attempt");
                    check_reason(&reason);
                    (up, tried) = (false, false);
                }
                LinkEvent::Dormant => assert!(!tried),
            }
        }
        assert_eq!(link.is_up(), up);
        assert!(!tried || link.poll_timeout() < Nanos::NEVER, "an attempt without an end");
    }
}
