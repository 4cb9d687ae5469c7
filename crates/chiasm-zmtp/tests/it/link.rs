//! The connecting side: attempts, back-off, loss, and the end of a link without use.

use std::time::Duration;

use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Link, LinkEvent, LinkLimits, SendError};

use crate::wire::{at_ms, just_before, message, opening};

const NOW: Nanos = Nanos::ZERO;

fn link() -> Link {
    Link::new(LinkLimits::default(), 7, NOW)
}

fn drain(link: &mut Link) -> Vec<LinkEvent> {
    std::iter::from_fn(|| link.poll_event()).collect()
}

fn refused() -> CloseReason {
    CloseReason::ConnectFailed { error: "connection refused".into() }
}

/// A link whose handshake is finished.
fn up() -> Link {
    let mut link = link();
    link.connected(NOW);
    link.receive(NOW, &opening("ROUTER"));
    assert!(matches!(drain(&mut link).as_slice(), [LinkEvent::Connect, LinkEvent::Up(_)]));
    link
}

/// The wait after which the link wants to connect again; it must be backing off.
fn next_attempt(link: &mut Link, now: Nanos) -> Nanos {
    let due = link.poll_timeout();
    link.handle_timeout(just_before(due));
    assert_eq!(drain(link), [], "too early, after a failure at {now:?}");
    link.handle_timeout(due);
    assert_eq!(drain(link), [LinkEvent::Connect]);
    due
}

#[test]
fn a_new_link_wants_to_connect_and_carries_messages_both_ways() {
    let mut link = up();
    assert!(link.is_up());
    assert!(link.output().starts_with(b"\xff"), "our greeting");
    let written = link.output().len();
    link.consume_output(NOW, written);
    link.send(NOW, b"request".to_vec()).expect("up");
    assert_eq!(link.output(), message(b"request"));
    link.receive(NOW, &message(b"ack"));
    assert_eq!(drain(&mut link), [LinkEvent::Message(b"ack".to_vec())]);
}

#[test]
fn nothing_is_kept_for_a_link_that_is_not_up() {
    let mut link = link();
    assert_eq!(link.send(NOW, b"x".to_vec()), Err(SendError::NotReady));
    link.connected(NOW);
    assert_eq!(link.send(NOW, b"x".to_vec()), Err(SendError::NotReady));
}

#[test]
fn hazard_c10_a_refused_connect_is_known_at_once() {
    let mut link = link();
    drain(&mut link);
    link.connect_failed(at_ms(1), refused());
    assert_eq!(drain(&mut link), [LinkEvent::Down(refused())]);
}

#[test]
fn a_black_holed_connect_is_given_up_after_3_s() {
    let mut link = link();
    drain(&mut link);
    assert_eq!(link.poll_timeout(), at_ms(3000));
    link.handle_timeout(just_before(at_ms(3000)));
    assert_eq!(drain(&mut link), []);
    link.handle_timeout(at_ms(3000));
    let reason = CloseReason::ConnectTimeout { limit: Duration::from_secs(3) };
    assert_eq!(drain(&mut link), [LinkEvent::Down(reason)]);
    // The stream of the given-up attempt comes too late and is not taken.
    link.connected(at_ms(3001));
    assert!(link.connection().is_none());
}

#[test]
fn waits_double_from_50_ms_to_5_s_and_lie_in_their_upper_half() {
    let mut link = link();
    drain(&mut link);
    let mut now = NOW;
    let mut waits = Vec::new();
    for whole_ms in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000] {
        link.wake(now);
        link.connect_failed(now, refused());
        assert_eq!(drain(&mut link), [LinkEvent::Down(refused())]);
        let due = next_attempt(&mut link, now);
        let wait = due.since(now);
        let whole = Duration::from_millis(whole_ms);
        assert!(wait >= whole / 2 && wait <= whole, "{wait:?} of {whole:?}");
        waits.push(wait);
        now = due;
    }
    assert_ne!(waits[8], waits[9], "the waits are spread");
}

#[test]
fn the_same_seed_gives_the_same_waits_and_another_one_others() {
    let first_wait = |seed| {
        let mut link = Link::new(LinkLimits::default(), seed, NOW);
        link.connect_failed(NOW, refused());
        link.poll_timeout()
    };
    assert_eq!(first_wait(1), first_wait(1));
    assert_ne!(first_wait(1), first_wait(2));
}

#[test]
fn a_lost_connection_is_told_and_tried_again() {
    let mut link = up();
    link.send(NOW, b"void".to_vec()).expect("up");
    link.close(at_ms(10), CloseReason::PeerClosed);
    assert_eq!(drain(&mut link), [LinkEvent::Down(CloseReason::PeerClosed)]);
    assert!(!link.is_up());
    assert_eq!(link.output(), b"", "what was queued is void");
    link.receive(at_ms(11), &message(b"stray"));
    assert_eq!(drain(&mut link), []);
    let due = next_attempt(&mut link, at_ms(10));
    link.connected(due);
    assert!(link.output().starts_with(b"\xff"), "a new connection starts anew");
}

#[test]
fn a_bad_peer_brings_the_link_down_with_its_reason() {
    let mut link = link();
    drain(&mut link);
    link.connected(NOW);
    link.receive(NOW, b"HTTP/1.1 400 Bad Request\r\n");
    let reason = CloseReason::NotZmtp { first: "HTTP/1.1 4".into() };
    assert_eq!(drain(&mut link), [LinkEvent::Down(reason)]);
}

#[test]
fn the_connections_own_deadlines_are_the_links() {
    let mut link = link();
    drain(&mut link);
    link.connected(at_ms(100));
    assert_eq!(link.poll_timeout(), at_ms(5100));
    link.handle_timeout(at_ms(5100));
    assert!(matches!(
        drain(&mut link).as_slice(),
        [LinkEvent::Down(CloseReason::HandshakeTimeout { .. })]
    ));
}

#[test]
fn only_a_message_makes_a_link_forget_its_failures() {
    let mut now = NOW;
    let mut link = link();
    drain(&mut link);
    // Shakes hands and hangs up, five times.
    for _ in 0..5 {
        link.connected(now);
        link.receive(now, &opening("ROUTER"));
        link.close(now, CloseReason::PeerClosed);
        drain(&mut link);
        now = next_attempt(&mut link, now);
    }
    link.connected(now);
    link.receive(now, &opening("ROUTER"));
    link.close(now, CloseReason::PeerClosed);
    assert!(link.poll_timeout().since(now) >= Duration::from_millis(800));
    drain(&mut link);
    now = next_attempt(&mut link, now);
    link.connected(now);
    link.receive(now, &[opening("ROUTER"), message(b"ack")].concat());
    link.close(now, CloseReason::PeerClosed);
    assert!(link.poll_timeout().since(now) <= Duration::from_millis(50));
}

#[test]
fn hazard_c12_a_link_without_use_ends_after_60_s() {
    let mut link = up();
    let mut now = NOW;
    let mut seen = Vec::new();
    // One PING every 2 s.
    for _ in 0..30 {
        now = link.poll_timeout();
        if now < at_ms(60_000) {
            // Alive, but without a message.
            link.receive(now, &crate::wire::pong(b""));
        }
        link.handle_timeout(now);
        let written = link.output().len();
        link.consume_output(now, written);
        seen.extend(drain(&mut link));
    }
    assert_eq!((now, link.poll_timeout()), (at_ms(60_000), Nanos::NEVER));
    let idle = CloseReason::IdleTimeout { limit: Duration::from_mins(1) };
    assert_eq!(seen, [LinkEvent::Down(idle), LinkEvent::Dormant]);

    link.wake(at_ms(70_000));
    assert_eq!(drain(&mut link), [LinkEvent::Connect]);
}

#[test]
fn hazard_c12_a_link_that_never_connected_ends_too() {
    let mut link = link();
    let mut now = NOW;
    let (mut connects, mut downs, mut dormant) = (0, 0, 0);
    // More turns than a minute of waits has.
    for _ in 0..200 {
        for event in drain(&mut link) {
            match event {
                LinkEvent::Connect => {
                    connects += 1;
                    link.connect_failed(now, refused());
                }
                LinkEvent::Down(_) => downs += 1,
                LinkEvent::Dormant => dormant += 1,
                other => panic!("{other:?}"),
            }
        }
        if link.poll_timeout() == Nanos::NEVER {
            break;
        }
        now = link.poll_timeout();
        link.handle_timeout(now);
    }
    downs += drain(&mut link).len();
    assert_eq!((now, dormant), (at_ms(60_000), 1));
    assert_eq!(connects, downs, "each Connect has its Down");
    assert!((15..40).contains(&connects), "{connects} attempts in a minute");

    // Woken, it starts anew: with the shortest wait.
    link.wake(now);
    link.connect_failed(now, refused());
    assert!(link.poll_timeout().since(now) <= Duration::from_millis(50));
}

#[test]
fn a_send_a_message_and_a_wake_are_use() {
    let idle_at = |act: fn(&mut Link)| {
        let mut limits = LinkLimits::default();
        limits.connection.heartbeat_interval = Duration::MAX;
        let mut link = Link::new(limits, 7, NOW);
        link.connected(NOW);
        link.receive(NOW, &opening("ROUTER"));
        act(&mut link);
        link.poll_timeout()
    };
    assert_eq!(idle_at(|_| ()), at_ms(60_000));
    assert_eq!(idle_at(|link| link.wake(at_ms(5))), at_ms(60_005));
    assert_eq!(idle_at(|link| link.receive(at_ms(6), &message(b"x"))), at_ms(60_006));
    assert_eq!(idle_at(|link| link.send(at_ms(7), vec![]).expect("up")), at_ms(60_007));
    assert_eq!(idle_at(|link| link.receive(at_ms(8), &crate::wire::pong(b""))), at_ms(60_000));
}

#[test]
fn calls_that_do_not_fit_the_state_are_ignored() {
    let mut link = up();
    link.connected(NOW);
    link.connect_failed(NOW, refused());
    assert!(link.is_up());
    link.close(NOW, CloseReason::ShutDown);
    link.close(NOW, CloseReason::ShutDown);
    link.connected(NOW);
    link.connect_failed(NOW, refused());
    assert_eq!(drain(&mut link), [LinkEvent::Down(CloseReason::ShutDown)]);
}
