//! Any bytes at all, and mutations of valid sessions: never a panic, never more memory than the
//! limits, never a different verdict for another cut (S7).

use chiasm_core::time::Nanos;
use chiasm_zmtp::{Connection, Event, Limits, Role};
use proptest::prelude::*;

use crate::wire::{events, frame, message, opening, ping, pong};

/// Bytes that one connection may hold besides what `limits` name: gathered output and its room for
/// commands, a command or greeting in part, the capacity of small queues.
const OVERHEAD_BYTES: usize = 64 << 10;

fn small_limits() -> Limits {
    Limits { max_message_bytes: 4096, max_output_bytes: 8192, ..Limits::for_router() }
}

/// Feeds `bytes` in pieces of the given sizes, reading nothing back, and checks the bounds on the
/// way. All events.
fn feed(role: Role, bytes: &[u8], cuts: &[usize]) -> Vec<Event> {
    let limits = small_limits();
    let bound = limits.max_message_bytes + limits.max_output_bytes + OVERHEAD_BYTES;
    let mut connection = Connection::new(role, &limits, Nanos::ZERO);
    let mut seen = Vec::new();
    let mut rest = bytes;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(rest.len().min(*cut));
        rest = after;
        connection.receive(Nanos::ZERO, piece);
        seen.extend(events(&mut connection));
        assert!(connection.memory_bytes() <= bound, "{} bytes held", connection.memory_bytes());
        assert!(!connection.is_closed() || connection.memory_bytes() == 0);
    }
    let closed = seen.iter().filter(|event| matches!(event, Event::Closed(_))).count();
    assert_eq!(closed, usize::from(connection.is_closed()), "Closed comes once");
    seen
}

/// A session that a peer may really have: all commands, messages of many sizes.
fn session() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000).prop_map(|payload| message(&payload)),
        prop::collection::vec(any::<u8>(), 0..16).prop_map(|context| ping(80, &context)),
        prop::collection::vec(any::<u8>(), 0..16).prop_map(|context| pong(&context)),
        (0..7_u8, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(flags, body)| frame(flags, &body)),
    ];
    (
        prop::sample::select(vec!["DEALER", "REQ", "ROUTER", "REP"]),
        prop::collection::vec(piece, 0..12),
    )
        .prop_map(|(socket_type, pieces)| [opening(socket_type), pieces.concat()].concat())
}

/// One damage to a session.
#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Insert(prop::sample::Index, u8),
    Cut(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        2 => index().prop_map(Mutation::Remove),
        2 => (index(), any::<u8>()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        1 => index().prop_map(Mutation::Cut),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    if bytes.is_empty() {
        return;
    }
    match mutation {
        Mutation::Set(at, byte) => *at.get_mut(bytes) = *byte,
        Mutation::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
        Mutation::Insert(at, byte) => bytes.insert(at.index(bytes.len()), *byte),
        Mutation::Cut(at) => bytes.truncate(at.index(bytes.len())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn garbage_is_closed_with_a_reason_or_waits(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        after_handshake in any::<bool>(),
    ) {
        let bytes = if after_handshake { [opening("DEALER"), bytes].concat() } else { bytes };
        for event in feed(Role::Router, &bytes, &[4096]) {
            if let Event::Closed(reason) = event {
                prop_assert!(reason.to_string().len() < 500);
                prop_assert!(reason.to_string().is_ascii());
            }
        }
    }

    #[test]
    fn a_damaged_session_gives_one_verdict_for_every_cut(
        mut bytes in session(),
        mutations in prop::collection::vec(mutation(), 0..4),
        cuts in prop::collection::vec(1..300_usize, 1..10),
        role in prop::sample::select(vec![Role::Router, Role::Dealer]),
    ) {
        for mutation in &mutations {
            mutate(&mut bytes, mutation);
        }
        let whole = feed(role, &bytes, &[usize::MAX]);
        prop_assert_eq!(&whole, &feed(role, &bytes, &cuts));
        prop_assert_eq!(&whole, &feed(role, &bytes, &[1]));
    }
}
