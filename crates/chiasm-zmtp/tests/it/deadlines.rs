//! Every deadline at its default, one nanosecond before it and at it.

use std::time::Duration;

use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Connection, Limits, Role};

use crate::wire::{
    at_ms, close_reason, drain_output, events, greeting, just_before, message, opening, ping, pong,
    ready, ready_connection,
};

/// PING with the default time to live of 30 s.
fn our_ping() -> Vec<u8> {
    ping(300, b"")
}

fn router() -> Connection {
    ready_connection(Role::Router, &Limits::for_router())
}

/// A router that never pings and whose idle limit is the default.
fn router_without_heartbeats() -> Connection {
    let limits = Limits { heartbeat_interval: Duration::MAX, ..Limits::for_router() };
    ready_connection(Role::Router, &limits)
}

/// Asserts that `connection` closes at `deadline` and not a nanosecond earlier; says why.
fn closes_exactly_at(connection: &mut Connection, deadline: Nanos) -> CloseReason {
    assert_eq!(connection.poll_timeout(), deadline);
    connection.handle_timeout(just_before(deadline));
    assert!(!connection.is_closed(), "closed early");
    connection.handle_timeout(deadline);
    assert!(connection.is_closed(), "still open at its deadline");
    assert_eq!(connection.poll_timeout(), Nanos::NEVER);
    close_reason(connection)
}

#[test]
fn a_silent_peer_has_5_s_for_its_handshake() {
    for role in [Role::Router, Role::Dealer] {
        let limits = Limits::for_router();
        let mut connection = Connection::new(role, &limits, at_ms(1000));
        let reason = closes_exactly_at(&mut connection, at_ms(6000));
        let limit = Duration::from_secs(5);
        assert_eq!(reason, CloseReason::HandshakeTimeout { waiting_for: "greeting", limit });
    }
}

#[test]
fn bytes_do_not_extend_the_handshake() {
    let mut connection = Connection::new(Role::Router, &Limits::for_router(), Nanos::ZERO);
    let bytes = [greeting(), ready("DEALER", b"")].concat();
    let (last, most) = bytes.split_last().expect("not empty");
    for (byte, at) in most.iter().zip((0..).step_by(40)) {
        connection.receive(at_ms(at), &[*byte]);
    }
    let reason = closes_exactly_at(&mut connection, at_ms(5000));
    let limit = Duration::from_secs(5);
    assert_eq!(reason, CloseReason::HandshakeTimeout { waiting_for: "READY", limit });
    connection.receive(at_ms(5000), &[*last]);
    assert_eq!(events(&mut connection), []);
}

#[test]
fn a_handshake_that_ends_in_time_has_no_deadline_any_more() {
    let mut connection = Connection::new(Role::Router, &Limits::for_router(), Nanos::ZERO);
    connection.receive(just_before(at_ms(5000)), &opening("DEALER"));
    connection.handle_timeout(at_ms(5000));
    assert!(connection.is_ready());
}

#[test]
fn a_ping_goes_out_every_2_s_in_both_roles() {
    for role in [Role::Router, Role::Dealer] {
        let mut connection = ready_connection(role, &Limits::for_router());
        for seconds in [2, 4, 6, 8] {
            let due = at_ms(seconds * 1000);
            assert_eq!(connection.poll_timeout(), due);
            connection.handle_timeout(just_before(due));
            assert_eq!(connection.output(), b"");
            connection.handle_timeout(due);
            assert_eq!(drain_output(&mut connection, due), our_ping());
            connection.receive(due, &pong(b""));
        }
        assert_eq!(events(&mut connection), []);
    }
}

#[test]
fn hazard_c11_a_frozen_peer_is_closed_6_s_after_its_last_byte() {
    for role in [Role::Router, Role::Dealer] {
        let mut connection = ready_connection(role, &Limits::for_router());
        for seconds in [2, 4] {
            connection.handle_timeout(at_ms(seconds * 1000));
            // Written: its host is there, its process is not.
            assert_eq!(drain_output(&mut connection, at_ms(seconds * 1000)), our_ping());
        }
        let reason = closes_exactly_at(&mut connection, at_ms(6000));
        assert_eq!(reason, CloseReason::HeartbeatTimeout { limit: Duration::from_secs(4) });
    }
}

#[test]
fn any_byte_ends_a_silence() {
    let mut connection = router();
    connection.handle_timeout(at_ms(2000));
    drain_output(&mut connection, at_ms(2000));
    // The first byte of a message, a nanosecond before the end.
    connection.receive(just_before(at_ms(6000)), &[1]);
    connection.handle_timeout(at_ms(6000));
    assert!(connection.is_ready());
    drain_output(&mut connection, at_ms(6000));
    connection.handle_timeout(at_ms(8000));
    closes_exactly_at(&mut connection, at_ms(10_000));
}

#[test]
fn receiving_nothing_does_not_end_a_silence() {
    let mut connection = router();
    connection.handle_timeout(at_ms(2000));
    drain_output(&mut connection, at_ms(2000));
    connection.receive(at_ms(5000), &[]);
    connection.handle_timeout(at_ms(6000));
    assert!(connection.is_closed());
}

#[test]
fn bytes_that_came_while_the_owner_slept_count() {
    let mut connection = router();
    connection.handle_timeout(at_ms(2000));
    drain_output(&mut connection, at_ms(2000));
    connection.receive(at_ms(60_000), &pong(b""));
    connection.handle_timeout(at_ms(60_000));
    assert!(connection.is_ready());
}

#[test]
fn a_long_message_over_a_slow_network_is_not_a_frozen_peer() {
    let mut connection = router();
    connection.send(at_ms(0), vec![0; 1_000_000]).expect("fits");
    // The peer reads 20 kB a second and has nothing to say: the PING is 50 s behind.
    for second in 1..=49 {
        connection.consume_output(at_ms(second * 1000), 20_000);
        connection.handle_timeout(at_ms(second * 1000));
        assert!(connection.is_ready(), "closed after {second} s");
    }
    // Then it freezes with a part unread: nothing is consumed any more.
    connection.handle_timeout(just_before(at_ms(53_000)));
    assert!(connection.is_ready());
    connection.handle_timeout(at_ms(53_000));
    assert_eq!(close_reason(&mut connection).kind(), "heartbeat_timeout");
}

#[test]
fn a_peer_that_freezes_with_a_ping_still_queued_is_closed() {
    let mut connection = router();
    connection.send(at_ms(0), vec![0; 1_000_000]).expect("fits");
    connection.handle_timeout(at_ms(2000));
    connection.receive(at_ms(3000), &message(b"a last word"));
    events(&mut connection);
    connection.handle_timeout(at_ms(4000));
    connection.handle_timeout(at_ms(6000));
    connection.consume_output(at_ms(7000), 0);
    closes_exactly_at(&mut connection, at_ms(8000));
}

#[test]
fn one_ping_at_most_waits_behind_a_long_message() {
    let mut connection = router();
    connection.send(at_ms(0), vec![0; 1_000_000]).expect("fits");
    connection.handle_timeout(at_ms(2000));
    let queued = connection.queued_bytes();
    for seconds in [4, 6, 8, 10] {
        connection.receive(at_ms(seconds * 1000), &pong(b""));
        connection.handle_timeout(at_ms(seconds * 1000));
    }
    assert_eq!(connection.queued_bytes(), queued);
}

#[test]
fn a_3_0_peer_is_never_pinged() {
    let mut bytes = opening("DEALER");
    bytes[11] = 0;
    let mut connection = Connection::new(Role::Router, &Limits::for_router(), Nanos::ZERO);
    connection.receive(Nanos::ZERO, &bytes);
    assert_eq!(connection.poll_timeout(), at_ms(600_000), "only the idle limit is left");
}

#[test]
fn a_router_closes_a_connection_without_a_message_for_10_min() {
    let mut connection = router_without_heartbeats();
    let reason = closes_exactly_at(&mut connection, at_ms(600_000));
    assert_eq!(reason, CloseReason::IdleTimeout { limit: Duration::from_mins(10) });
}

#[test]
fn messages_in_either_direction_defer_the_idle_limit_and_heartbeats_do_not() {
    let mut connection = router_without_heartbeats();
    connection.receive(at_ms(1000), &message(b"in"));
    assert_eq!(connection.poll_timeout(), at_ms(601_000));
    connection.send(at_ms(2000), b"out".to_vec()).expect("fits");
    assert_eq!(connection.poll_timeout(), at_ms(602_000));
    connection.receive(at_ms(3000), &[ping(0, b""), pong(b""), vec![1]].concat());
    assert_eq!(connection.poll_timeout(), at_ms(602_000));
}

#[test]
fn hazard_c19_an_idle_peer_that_answers_pings_is_not_closed() {
    let mut connection = router();
    let mut now = Nanos::ZERO;
    // One PING every 2 s: 1800 turns are an hour.
    for _ in 0..1800 {
        now = connection.poll_timeout();
        connection.handle_timeout(now);
        drain_output(&mut connection, now);
        connection.receive(now, &pong(b""));
    }
    assert_eq!((now, connection.is_ready()), (at_ms(3_600_000), true));
    assert_eq!(connection.idle_at(), at_ms(600_000), "but it would make room");
}

#[test]
fn a_dealer_connection_has_no_idle_limit() {
    let limits = Limits { heartbeat_interval: Duration::MAX, ..Limits::for_dealer() };
    let connection = ready_connection(Role::Dealer, &limits);
    assert_eq!(connection.poll_timeout(), Nanos::NEVER);
}

#[test]
fn early_timeouts_do_nothing() {
    let mut connection = router();
    connection.handle_timeout(Nanos::ZERO);
    connection.handle_timeout(at_ms(1));
    assert_eq!((connection.output(), connection.poll_timeout()), (&b""[..], at_ms(2000)));
}

#[test]
fn the_time_to_live_is_in_tenths_rounded_up() {
    for (ttl, tenths) in [
        (Duration::ZERO, 0),
        (Duration::from_nanos(1), 1),
        (Duration::from_millis(101), 2),
        (Duration::MAX, u16::MAX),
    ] {
        let limits = Limits { heartbeat_ttl: ttl, ..Limits::for_router() };
        let mut connection = ready_connection(Role::Router, &limits);
        connection.handle_timeout(at_ms(2000));
        assert_eq!(drain_output(&mut connection, at_ms(2000)), ping(tenths, b""));
    }
}
