//! Messages and commands on a connection in use: the envelope, its limits, PING, output.

use chiasm_core::time::Nanos;
use chiasm_zmtp::{CloseReason, Connection, EnvelopeProblem, Event, Limits, Role, SendError};
use proptest::prelude::*;

use crate::wire::{
    close_reason, drain_output, events, frame, message, opening, ping, pong, ready_connection,
};

const NOW: Nanos = Nanos::ZERO;

fn router() -> Connection {
    ready_connection(Role::Router, &Limits::for_router())
}

/// Why a router in use closes when it is sent `bytes`.
fn refusal(bytes: &[u8]) -> CloseReason {
    let mut connection = router();
    connection.receive(NOW, bytes);
    close_reason(&mut connection)
}

/// The header of a last frame that announces `size` bytes.
fn announced(size: u64) -> Vec<u8> {
    [vec![1, 0, 2], size.to_be_bytes().to_vec()].concat()
}

#[test]
fn a_message_is_its_payload_without_the_envelope() {
    let mut connection = router();
    connection.receive(NOW, &[message(b"one"), message(b""), message(&[9; 300])].concat());
    let payloads = [b"one".to_vec(), vec![], vec![9; 300]];
    assert_eq!(events(&mut connection), payloads.map(Event::Message));
}

#[test]
fn a_long_length_is_accepted_for_a_short_frame() {
    let mut connection = router();
    connection.receive(NOW, &[frame(3, b""), frame(2, b"x")].concat());
    assert_eq!(events(&mut connection), [Event::Message(b"x".to_vec())]);
}

#[test]
fn a_payload_goes_out_as_two_frames() {
    let mut connection = router();
    connection.send(NOW, vec![5; 255]).expect("fits");
    connection.send(NOW, vec![6; 256]).expect("fits");
    let expected = [
        [&b"\x01\x00\x00\xff"[..], &[5; 255]].concat(),
        [&b"\x01\x00\x02\0\0\0\0\0\0\x01\0"[..], &[6; 256]].concat(),
    ];
    assert_eq!(drain_output(&mut connection, NOW), expected.concat());
}

#[test]
fn a_large_payload_is_moved_and_small_ones_share_a_write() {
    let mut connection = router();
    let large = vec![1; 100_000];
    let address = large.as_ptr();
    connection.send(NOW, b"small".to_vec()).expect("fits");
    connection.send(NOW, large).expect("fits");
    assert_eq!(connection.output().len(), 9 + 11, "one message and the next one's header");
    connection.consume_output(NOW, 20);
    assert_eq!(connection.output().as_ptr(), address);
}

#[test]
fn output_is_consumed_in_any_pieces() {
    for step in [1, 2, 7, 64, 100_000] {
        let mut connection = router();
        let mut expected = Vec::new();
        for size in [0, 3, 9000, 20, 4, 70_000, 1] {
            let payload = vec![u8::try_from(size % 251).expect("small"); size];
            expected.extend(message(&payload));
            connection.send(NOW, payload).expect("fits");
        }
        assert_eq!(connection.queued_bytes(), expected.len());
        let mut seen: Vec<u8> = Vec::new();
        while !connection.output().is_empty() {
            let piece = &connection.output()[..connection.output().len().min(step)];
            seen.extend(piece);
            let written = piece.len();
            connection.consume_output(NOW, written);
        }
        assert!(seen == expected, "pieces of {step}");
        assert_eq!(connection.queued_bytes(), 0);
    }
}

#[test]
fn consuming_more_than_there_is_consumes_what_there_is() {
    let mut connection = router();
    connection.send(NOW, b"x".to_vec()).expect("fits");
    connection.consume_output(NOW, usize::MAX);
    assert_eq!((connection.output(), connection.queued_bytes()), (&b""[..], 0));
}

#[test]
fn hazard_d3_a_wrong_envelope_closes_its_connection() {
    let problem = |bytes: &[u8]| match refusal(bytes) {
        CloseReason::Envelope(problem) => problem,
        other => panic!("{other:?}"),
    };
    assert_eq!(problem(&[0, 0]), EnvelopeProblem::NoPayload);
    assert_eq!(problem(&[0, 5]), EnvelopeProblem::FirstFrame { bytes: 5 });
    assert_eq!(problem(&[1, 5]), EnvelopeProblem::FirstFrame { bytes: 5 });
    assert_eq!(problem(&[1, 0, 1, 3]), EnvelopeProblem::MoreFrames);
    assert_eq!(problem(&[1, 0, 1, 0]), EnvelopeProblem::MoreFrames);
    let mut dealer = ready_connection(Role::Dealer, &Limits::for_dealer());
    dealer.receive(NOW, &[0, 5]);
    assert_eq!(close_reason(&mut dealer).kind(), "envelope");
}

#[test]
fn messages_before_a_wrong_one_are_delivered_and_none_after_it() {
    let mut connection = router();
    connection.receive(NOW, &[message(b"good"), vec![0, 0], message(b"late")].concat());
    let reason = CloseReason::Envelope(EnvelopeProblem::NoPayload);
    let expected = [Event::Message(b"good".to_vec()), Event::Closed(reason)];
    assert_eq!(events(&mut connection), expected);
    connection.receive(NOW, &message(b"later"));
    assert_eq!(events(&mut connection), []);
    assert_eq!(connection.send(NOW, b"x".to_vec()), Err(SendError::Closed));
}

#[test]
fn a_router_takes_messages_of_64_kib_and_not_one_byte_more() {
    let mut connection = router();
    connection.receive(NOW, &message(&vec![1; 65_536]));
    assert_eq!(events(&mut connection), [Event::Message(vec![1; 65_536])]);
    assert_eq!(
        refusal(&announced(65_537)),
        CloseReason::MessageTooLarge { announced: 65_537, limit: 65_536 }
    );
}

#[test]
fn a_dealer_takes_messages_of_20_mib_and_not_one_byte_more() {
    let limit = 20 << 20;
    let mut dealer = ready_connection(Role::Dealer, &Limits::for_dealer());
    let payload = vec![3; limit];
    for chunk in message(&payload).chunks(1 << 20) {
        dealer.receive(NOW, chunk);
    }
    assert!(events(&mut dealer) == [Event::Message(payload)]);
    dealer.receive(NOW, &announced(limit as u64 + 1));
    assert_eq!(close_reason(&mut dealer).kind(), "message_too_large");
}

#[test]
fn giant_lengths_close_at_once_and_allocate_nothing() {
    for size in [1 << 20, u64::from(u32::MAX) + 1, 1 << 62, 1 << 63, u64::MAX] {
        for bytes in [announced(size), [vec![3], size.to_be_bytes().to_vec()].concat()] {
            let mut connection = router();
            connection.receive(NOW, &bytes);
            assert!(connection.memory_bytes() < 1024);
            let reason = close_reason(&mut connection);
            assert_eq!(reason, CloseReason::MessageTooLarge { announced: size, limit: 65_536 });
        }
    }
}

#[test]
fn a_large_but_allowed_length_allocates_nothing_before_its_bytes_come() {
    let mut dealer = ready_connection(Role::Dealer, &Limits::for_dealer());
    dealer.receive(NOW, &announced(20 << 20));
    assert!(dealer.memory_bytes() < 1024);
    dealer.receive(NOW, &[0; 1000]);
    assert!(dealer.memory_bytes() < 2048 + 1024);
}

#[test]
fn a_hundred_frames_of_900_kb_pass_no_limit() {
    // libzmq's MAXMSGSIZE is per frame, so that its limit of 1 MiB lets these 90 MB through.
    let mut limits = Limits::for_router();
    limits.max_message_bytes = 1 << 20;
    let mut connection = ready_connection(Role::Router, &limits);
    let body = vec![0; 900_000];
    connection.receive(NOW, &frame(3, b""));
    for _ in 0..100 {
        connection.receive(NOW, &frame(3, &body));
        assert!(connection.memory_bytes() < 1024);
    }
    let reason = close_reason(&mut connection);
    assert_eq!(reason, CloseReason::Envelope(EnvelopeProblem::MoreFrames));
}

#[test]
fn flags_that_do_not_exist_close() {
    for flags in 0..=u8::MAX {
        let mut connection = router();
        connection.receive(NOW, &[flags]);
        assert_eq!(connection.is_closed(), !matches!(flags, 0..=4 | 6), "{flags}");
    }
    assert_eq!(refusal(&[5]), CloseReason::BadFlags { flags: 5 });
}

#[test]
fn a_ping_is_answered_with_its_context() {
    let mut connection = router();
    for context in [&b""[..], b"c", &[7; 16]] {
        connection.receive(NOW, &ping(80, context));
        assert_eq!(drain_output(&mut connection, NOW), pong(context));
    }
    let problem = "its context is longer than 16 bytes";
    let expected = CloseReason::BadCommand { name: "PING".into(), problem };
    assert_eq!(refusal(&ping(80, &[7; 17])), expected);
    let problem = "it has no time to live";
    let expected = CloseReason::BadCommand { name: "PING".into(), problem };
    assert_eq!(refusal(&frame(4, b"\x04PING\0")), expected);
}

#[test]
fn commands_may_come_between_the_frames_of_a_message() {
    let mut connection = router();
    connection.receive(NOW, &[vec![1, 0], ping(0, b"x"), vec![0, 2], b"ok".to_vec()].concat());
    assert_eq!(events(&mut connection), [Event::Message(b"ok".to_vec())]);
    assert_eq!(drain_output(&mut connection, NOW), pong(b"x"));
}

#[test]
fn other_commands_close() {
    for name in ["SUBSCRIBE", "CANCEL", "HELLO", "ping"] {
        let body = [&[u8::try_from(name.len()).expect("short")], name.as_bytes()].concat();
        let problem = "not a command between a ROUTER and a DEALER";
        let expected = CloseReason::BadCommand { name: name.into(), problem };
        assert_eq!(refusal(&frame(4, &body)), expected);
    }
    assert_eq!(refusal(&frame(4, b"")).kind(), "bad_command");
    assert_eq!(refusal(&frame(4, b"\x09PI")).kind(), "bad_command");
    let error = frame(4, b"\x05ERROR\x04busy");
    assert_eq!(refusal(&error), CloseReason::PeerError { reason: "busy".into() });
}

#[test]
fn a_command_has_at_most_4_kib() {
    let mut body = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x01X\0\0".to_vec();
    let value = 4096 - body.len() - 2;
    body.extend(u16::try_from(value).expect("below 4096").to_be_bytes());
    body.resize(4096, 0);
    let mut connection = Connection::new(Role::Router, &Limits::for_router(), NOW);
    connection.receive(NOW, &opening("DEALER")[..64]);
    connection.receive(NOW, &frame(6, &body));
    assert!(connection.is_ready());

    let expected = CloseReason::CommandTooLarge { announced: 4097, limit: 4096 };
    assert_eq!(refusal(&[vec![6], 4097_u64.to_be_bytes().to_vec()].concat()), expected);
}

#[test]
fn the_output_queue_takes_1_mib_and_an_error_changes_nothing() {
    let limit = 1 << 20;
    let mut connection = router();
    let full = SendError::OutputFull { needed: limit + 1, queued: 0, limit };
    assert_eq!(connection.send(NOW, vec![0; limit - 10]), Err(full));
    assert_eq!(connection.queued_bytes(), 0);
    connection.send(NOW, vec![0; limit - 11]).expect("fits exactly");
    let full = SendError::OutputFull { needed: 4, queued: limit, limit };
    assert_eq!(connection.send(NOW, vec![]), Err(full));
    assert!(connection.is_ready());
    // What is written makes room, long before the payload is through.
    connection.consume_output(NOW, 4);
    assert_eq!(connection.send(NOW, vec![]), Ok(()));
    assert_eq!(drain_output(&mut connection, NOW).len(), limit);
}

#[test]
fn a_slow_reader_still_gets_its_pongs() {
    let mut connection = router();
    connection.send(NOW, vec![0; (1 << 20) - 11]).expect("fits exactly");
    for _ in 0..150 {
        connection.receive(NOW, &ping(0, &[1; 16]));
    }
    assert!(connection.is_ready());
}

#[test]
fn hazard_d1_a_ping_flood_without_reading_is_closed_within_the_output_cap() {
    let mut connection = router();
    let flood = ping(0, &[1; 16]).repeat(20);
    let mut most = 0;
    // Twice as many as can fit.
    for _ in 0..2 * (1 << 20) / flood.len() {
        connection.receive(NOW, &flood);
        most = most.max(connection.memory_bytes());
    }
    assert!(most < (1 << 20) + 64 * 1024, "{most} bytes held");
    assert!(most > 1 << 20, "the flood was cut before the limit");
    let limit = 1 << 20;
    match close_reason(&mut connection) {
        CloseReason::OutputFull { queued, limit: named } => {
            assert_eq!(named, limit);
            assert!(queued > limit && queued <= limit + 4096, "{queued}");
        }
        other => panic!("{other:?}"),
    }
    assert!(connection.memory_bytes() < 1024, "a closed connection holds nothing");
}

#[test]
fn a_burst_of_small_messages_leaves_no_queue_behind() {
    let mut connection = router();
    connection.receive(NOW, &message(b"").repeat(10_000));
    assert_eq!(events(&mut connection).len(), 10_000);
    assert!(connection.memory_bytes() < 1024);
}

#[test]
fn a_local_close_counts_once() {
    let mut connection = router();
    connection.send(NOW, b"dropped".to_vec()).expect("fits");
    connection.close(CloseReason::ShutDown);
    connection.close(CloseReason::PeerClosed);
    assert_eq!(connection.output(), b"");
    assert_eq!(connection.poll_timeout(), Nanos::NEVER);
    assert_eq!(events(&mut connection), [Event::Closed(CloseReason::ShutDown)]);
}

/// Moves at most `size` bytes of output from one end to the other; whether there were any.
fn carry(from: &mut Connection, to: &mut Connection, size: usize) -> bool {
    let piece = from.output()[..from.output().len().min(size)].to_vec();
    from.consume_output(NOW, piece.len());
    to.receive(NOW, &piece);
    !piece.is_empty()
}

/// What a router and a dealer see that send each other `payloads` over pipes which hand over
/// `cuts` bytes at a time.
fn exchange(payloads: &[Vec<u8>], cuts: &[usize]) -> (Vec<Event>, Vec<Event>) {
    let mut router = Connection::new(Role::Router, &Limits::for_dealer(), NOW);
    let mut dealer = Connection::new(Role::Dealer, &Limits::for_dealer(), NOW);
    let (mut router_saw, mut dealer_saw) = (Vec::new(), Vec::new());
    let mut cuts = cuts.iter().copied().cycle();
    let mut cut = || cuts.next().expect("endless");
    let mut sent = false;
    loop {
        let mut moved = carry(&mut router, &mut dealer, cut());
        dealer_saw.extend(events(&mut dealer));
        moved |= carry(&mut dealer, &mut router, cut());
        router_saw.extend(events(&mut router));
        if !sent && router.is_ready() && dealer.is_ready() {
            sent = true;
            for payload in payloads {
                router.send(NOW, payload.clone()).expect("fits");
                dealer.send(NOW, payload.clone()).expect("fits");
            }
        } else if !moved {
            return (router_saw, dealer_saw);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_cut_of_the_stream_gives_the_same_events(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..8),
        cuts in prop::collection::vec(1..200_usize, 1..20),
    ) {
        let (router, dealer) = exchange(&payloads, &cuts);
        let expected: Vec<_> = payloads.into_iter().map(Event::Message).collect();
        for seen in [&router, &dealer] {
            prop_assert!(matches!(seen.first(), Some(Event::Ready(_))));
            prop_assert_eq!(&seen[1..], &expected[..]);
        }
    }
}
