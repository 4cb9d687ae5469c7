//! The bound side over many connections: ids, the caps, fairness, the timer index.

use std::collections::BTreeSet;
use std::time::Duration;

use chiasm_core::time::Nanos;
use chiasm_zmtp::{
    CloseReason, Connection, ConnectionId, Event, Limits, Router, RouterLimits, SendError,
};

use crate::wire::{at_ms, just_before, message, opening, ping};

const NOW: Nanos = Nanos::ZERO;

fn drain(router: &mut Router) -> Vec<(ConnectionId, Event)> {
    std::iter::from_fn(|| router.poll_event()).collect()
}

/// Accepts a connection and finishes its handshake.
fn ready(router: &mut Router, now: Nanos) -> ConnectionId {
    let id = router.accept(now).expect("a free place");
    router.receive(now, id, &opening("DEALER"));
    assert!(matches!(drain(router).as_slice(), [(of, Event::Ready(_))] if *of == id));
    write_all(router, id, now);
    id
}

/// Writes all that the connection has queued.
fn write_all(router: &mut Router, id: ConnectionId, now: Nanos) -> Vec<u8> {
    let mut written = Vec::new();
    while !router.output(id).is_empty() {
        written.extend(router.output(id));
        let count = router.output(id).len();
        router.consume_output(now, id, count);
    }
    written
}

#[test]
fn a_connection_is_forgotten_when_its_close_is_handed_out_and_its_id_never_comes_back() {
    let mut router = Router::new(RouterLimits::default());
    let first = ready(&mut router, NOW);
    router.close(first, CloseReason::PeerClosed);
    assert!(router.connection(first).is_some());
    assert_eq!(drain(&mut router), [(first, Event::Closed(CloseReason::PeerClosed))]);
    assert!(router.connection(first).is_none());
    assert_eq!((router.open(), router.queued_bytes()), (0, 0));

    let second = ready(&mut router, NOW);
    assert_ne!(first, second);
    router.receive(NOW, first, &message(b"stray"));
    router.close(first, CloseReason::ShutDown);
    router.consume_output(NOW, first, 1);
    assert_eq!(router.send(NOW, first, b"x".to_vec()), Err(SendError::Closed));
    assert_eq!(router.output(first), b"");
    assert_eq!(drain(&mut router), []);
}

#[test]
fn hazard_d3_two_hundred_bad_envelopes_delay_nobody() {
    let mut router = Router::new(RouterLimits::default());
    let bad: Vec<_> = (0..200).map(|_| ready(&mut router, NOW)).collect();
    let good = ready(&mut router, NOW);
    for id in &bad {
        router.receive(NOW, *id, &[1, 0, 1, 0, 0, 1, b'x']);
    }
    router.receive(NOW, good, &message(b"request"));
    let seen = drain(&mut router);
    assert_eq!(seen.len(), 201);
    for (id, event) in seen {
        match event {
            Event::Message(payload) => assert_eq!((id, payload), (good, b"request".to_vec())),
            Event::Closed(reason) => assert_eq!((id == good, reason.kind()), (false, "envelope")),
            Event::Ready(_) => panic!("ready twice"),
        }
    }
    assert_eq!(router.open(), 1);
}

#[test]
fn connections_take_turns() {
    let mut router = Router::new(RouterLimits::default());
    let [a, b] = [ready(&mut router, NOW), ready(&mut router, NOW)];
    router.receive(NOW, a, &message(b"").repeat(3));
    router.receive(NOW, b, &message(b"").repeat(2));
    let order: Vec<_> = drain(&mut router).into_iter().map(|(id, _)| id).collect();
    assert_eq!(order, [a, b, a, b, a]);
}

#[test]
fn the_1025th_connection_takes_the_place_of_the_oldest_silent_one() {
    let mut router = Router::new(RouterLimits::default());
    let served = ready(&mut router, NOW);
    let silent: Vec<_> = (1..1024).map(|_| router.accept(NOW).expect("a free place")).collect();
    drain(&mut router);
    let newcomer = router.accept(NOW).expect("a silent one makes room");
    let full = CloseReason::ConnectionCap { limit: 1024 };
    assert_eq!(drain(&mut router), [(silent[0], Event::Closed(full))]);
    assert_eq!(router.open(), 1024);
    router.receive(NOW, newcomer, &opening("DEALER"));
    router.receive(NOW, served, &message(b"still here"));
    assert_eq!(drain(&mut router).len(), 2);
}

#[test]
fn a_full_house_of_peers_in_use_refuses_the_next() {
    let mut router = Router::new(RouterLimits::default());
    let all: Vec<_> = (0..1024).map(|_| ready(&mut router, NOW)).collect();
    assert_eq!(router.accept(NOW), Err(CloseReason::ConnectionCap { limit: 1024 }));
    assert_eq!(router.open(), 1024);
    router.close(all[500], CloseReason::PeerClosed);
    assert!(router.accept(NOW).is_ok(), "a closed one counts no longer");
}

#[test]
fn in_a_full_house_the_one_that_has_been_idle_for_longest_makes_room() {
    let mut router = Router::new(RouterLimits::default());
    let all: Vec<_> = (0..1024).map(|_| ready(&mut router, NOW)).collect();
    // All but the third have been of use since, in one direction or the other.
    for (id, turn) in all.iter().zip(0..) {
        match turn {
            2 => router.receive(at_ms(1000), *id, &ping(0, b"")),
            turn if turn % 2 == 0 => router.receive(at_ms(1000), *id, &message(b"in")),
            _ => router.send(at_ms(1000), *id, b"out".to_vec()).expect("fits"),
        }
    }
    drain(&mut router);
    let full = CloseReason::ConnectionCap { limit: 1024 };
    assert_eq!(router.accept(just_before(at_ms(600_000))), Err(full.clone()), "none is idle");
    let newcomer = router.accept(at_ms(602_000)).expect("the third one makes room");
    assert_eq!(drain(&mut router), [(all[2], Event::Closed(full.clone()))]);
    // The newcomer has not finished its handshake, and so is next.
    router.accept(at_ms(602_000)).expect("the newcomer makes room");
    assert_eq!(drain(&mut router), [(newcomer, Event::Closed(full))]);
}

#[test]
fn hundreds_of_silent_connections_are_gone_after_the_handshake_limit() {
    let mut router = Router::new(RouterLimits::default());
    let served = ready(&mut router, at_ms(4000));
    for _ in 0..300 {
        router.accept(NOW).expect("a free place");
    }
    assert_eq!(router.poll_timeout(), at_ms(5000));
    router.handle_timeout(at_ms(5000));
    let closed = drain(&mut router);
    assert_eq!(closed.len(), 300);
    assert!(closed.iter().all(|(id, _)| *id != served));
    assert_eq!(router.poll_timeout(), at_ms(6000), "the served one's PING");
}

#[test]
fn past_64_mib_of_output_the_peer_that_reads_least_is_closed() {
    let mut router = Router::new(RouterLimits::default());
    let reader = ready(&mut router, NOW);
    let slow: Vec<_> = (0..64).map(|_| ready(&mut router, NOW)).collect();
    let (worst, others) = slow.split_first().expect("64");
    router.send(NOW, *worst, vec![0; (1 << 20) - 11]).expect("fits exactly");
    for id in others {
        router.send(NOW, *id, vec![0; (1 << 20) - 12]).expect("fits");
    }
    router.send(NOW, reader, vec![0; 52]).expect("fits");
    assert_eq!(router.queued_bytes(), (64 << 20) - 7);
    // One byte too many: nine for the message, of which the limit leaves room for seven.
    router.send(NOW, reader, vec![0; 4]).expect("the slow peer pays");
    let reason = CloseReason::OutputFull { queued: 1 << 20, limit: 64 << 20 };
    assert_eq!(drain(&mut router), [(*worst, Event::Closed(reason))]);
    assert_eq!(router.queued_bytes(), (63 << 20) - 63 + 56 + 8);
    assert_eq!(write_all(&mut router, reader, NOW), [message(&[0; 52]), message(&[0; 4])].concat());
}

#[test]
fn the_sender_is_told_when_its_own_connection_pays() {
    let limits = RouterLimits { max_output_bytes: 1000, ..RouterLimits::default() };
    let mut router = Router::new(limits);
    let id = ready(&mut router, NOW);
    assert_eq!(router.send(NOW, id, vec![0; 2000]), Err(SendError::Closed));
    assert_eq!(drain(&mut router).len(), 1);
}

#[test]
fn pongs_count_towards_the_output_of_all() {
    let mut router =
        Router::new(RouterLimits { max_output_bytes: 1000, ..RouterLimits::default() });
    let id = ready(&mut router, NOW);
    router.receive(NOW, id, &ping(0, &[1; 16]).repeat(100));
    let seen = drain(&mut router);
    assert!(matches!(seen.as_slice(), [(_, Event::Closed(CloseReason::OutputFull { .. }))]));
}

/// Who connects is greeted, whatever waits for others; who is silent is asked.
#[test]
fn greetings_and_pings_count_towards_the_output_of_all() {
    let limits = RouterLimits { max_output_bytes: 1000, ..RouterLimits::default() };
    let fill = |router: &mut Router, id, left: usize| {
        router.send(NOW, id, vec![0; 1000 - 11 - left]).expect("fits");
    };
    let paid = |router: &mut Router, by| {
        let closed = drain(router);
        let pays = |(id, event): &(_, _)| {
            *id == by && matches!(event, Event::Closed(CloseReason::OutputFull { .. }))
        };
        assert!(closed.iter().any(pays), "{closed:?}");
        assert!(router.queued_bytes() <= 1000);
    };
    let mut router = Router::new(limits.clone());
    let slow = ready(&mut router, NOW);
    fill(&mut router, slow, 63);
    router.accept(NOW).expect("a free place");
    paid(&mut router, slow);
    let mut router = Router::new(limits);
    let slow = ready(&mut router, NOW);
    fill(&mut router, slow, 0);
    router.handle_timeout(at_ms(2000));
    paid(&mut router, slow);
}

#[test]
fn every_connection_with_new_output_is_named_once() {
    let mut router = Router::new(RouterLimits::default());
    let a = router.accept(NOW).expect("a free place");
    let b = router.accept(NOW).expect("a free place");
    let named =
        |router: &mut Router| std::iter::from_fn(|| router.poll_output()).collect::<Vec<_>>();
    assert_eq!(named(&mut router), [a, b], "greetings");
    for id in [a, b] {
        router.receive(NOW, id, &opening("DEALER"));
        router.send(NOW, id, b"x".to_vec()).expect("fits");
    }
    assert_eq!(named(&mut router), [], "the owner knows that these wait");
    for id in [a, b] {
        write_all(&mut router, id, NOW);
    }
    assert_eq!(named(&mut router), []);
    router.handle_timeout(at_ms(2000));
    assert_eq!(named(&mut router), [a, b], "PINGs");
    write_all(&mut router, a, NOW);
    router.receive(NOW, a, &ping(0, b""));
    write_all(&mut router, a, NOW);
    assert_eq!(named(&mut router), [], "written meanwhile");
}

#[test]
fn the_timer_index_agrees_with_every_connection() {
    let mut router = Router::new(RouterLimits {
        connection: Limits { idle_timeout: Duration::from_secs(7), ..Limits::for_router() },
        ..RouterLimits::default()
    });
    let mut ids = BTreeSet::new();
    let mut ended = 0;
    for step in 0..200_u64 {
        let now = at_ms(step * 97);
        if step % 3 == 0 {
            ids.insert(router.accept(now).expect("a free place"));
        }
        for (nth, id) in (0_u64..).zip(&ids) {
            match (step + nth) % 11 {
                0 => router.receive(now, *id, &opening("DEALER")),
                1 => router.receive(now, *id, &ping(0, b"")),
                2 => drop(router.send(now, *id, b"x".to_vec())),
                _ => drop(write_all(&mut router, *id, now)),
            }
        }
        router.handle_timeout(now);
        for (id, event) in drain(&mut router) {
            if matches!(event, Event::Closed(_)) {
                ids.remove(&id);
                ended += 1;
            }
        }
        let timeouts =
            ids.iter().filter_map(|id| router.connection(*id)).map(Connection::poll_timeout);
        assert_eq!(router.poll_timeout(), timeouts.min().unwrap_or(Nanos::NEVER));
        assert!(router.poll_timeout() > now);
        let queued =
            ids.iter().filter_map(|id| router.connection(*id)).map(Connection::queued_bytes);
        assert_eq!(router.queued_bytes(), queued.sum::<usize>());
        assert_eq!(router.open(), ids.len());
    }
    assert!(ended > 10, "only {ended} connections ended");
}

#[test]
fn shutting_down_closes_everyone() {
    let mut router = Router::new(RouterLimits::default());
    ready(&mut router, NOW);
    router.accept(NOW).expect("a free place");
    router.close_all(&CloseReason::ShutDown);
    assert_eq!(drain(&mut router).len(), 2);
    assert_eq!((router.open(), router.poll_timeout()), (0, Nanos::NEVER));
}
