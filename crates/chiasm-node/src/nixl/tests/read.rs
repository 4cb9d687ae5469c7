//! Read helpers.

use std::sync::Arc;
use std::time::Duration;

use chiasm_core::consumer::{
    FailureClass, FailureReason, ReadEnd, ReadOrder, RemoteAgent, TransferId,
};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;
use chiasm_nixl::{Event, FailureKind, PeerId, ReadId};
use chiasm_region::Region;

use super::super::{NixlConfig, ReadHelpers};
use super::{BLOCK_BYTES, config_for_test, heard_of, printed, refusal, region_for_test, up};
use crate::clock;
use crate::poller::Poller;
use crate::token::split;

const ADDRESS: u64 = 0x7f00_0000_0000;

fn field(tag: &str, value: &[u8]) -> Vec<u8> {
    let head = [tag.as_bytes(), &(value.len() as u64).to_le_bytes()].concat();
    [&head, value, b"|"].concat()
}

/// What the agent of this name says of itself: one block.
fn metadata_for_test(name: &str) -> Arc<[u8]> {
    metadata_of(name, b"address")
}

fn metadata_of(name: &str, address: &[u8]) -> Arc<[u8]> {
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    let one: Vec<u8> = numbers(&[1]);
    let range: Vec<u8> = numbers(&[ADDRESS, BLOCK_BYTES, 0]);
    let fields = [
        b"nixlSerDes|".to_vec(),
        field("Agent", name.as_bytes()),
        field("Conns", &one),
        field("t", b"UCX"),
        field("c", address),
        field("", b"MemSection"),
        field("nixlSecElms", &one),
        field("bknd", b"UCX"),
        field("nixlDList", b"nixlSDList"),
        field("t", &0_u32.to_le_bytes()),
        field("n", &one),
        field("", &range),
    ];
    fields.concat().into()
}

struct World {
    helpers: ReadHelpers,
    region: Region,
    poller: Poller,
    next: u64,
    ended: Vec<(TransferId, ReadEnd)>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(script: &str) -> Self {
        Self::of(config_for_test(script))
    }

    fn of(config: NixlConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            helpers: ReadHelpers::new(Some(config), BLOCK_BYTES),
            region: region_for_test(&dir),
            poller: Poller::new().unwrap(),
            next: 0,
            ended: Vec::new(),
            _dir: dir,
        }
    }

    /// Reads one block from the agent of this name, of another producer each time.
    fn read(&mut self, name: &str) {
        self.read_from(self.next + 1, &metadata_for_test(name));
    }

    fn read_from(&mut self, producer: u64, metadata: &Arc<[u8]>) {
        self.next += 1;
        let nixl = RemoteAgent {
            metadata: Arc::clone(metadata),
            region: (ADDRESS, BLOCK_BYTES),
            runs: vec![(ADDRESS, BLOCK_BYTES)],
            completion: String::new(),
        };
        let order = ReadOrder {
            transfer: TransferId(self.next),
            source: Endpoint::parse(&format!("10.0.0.1:{}", 1000 + producer)).unwrap(),
            plane: Plane::Nixl,
            token: None,
            shm: None,
            nixl: Some(nixl),
            local: vec![Extent::new(0, 1).unwrap()],
            bytes: BLOCK_BYTES,
            digest: false,
        };
        self.helpers.start(clock::now(), order, &self.region, &self.poller);
        self.ended.append(&mut self.helpers.take_ended());
    }

    /// Waits until a helper says something. Whether NIXL was found to be of no use, and whether a helper
    /// had more to say than is listened to at once.
    fn hear(&mut self) -> (bool, bool) {
        let (mut refused, mut more) = (false, false);
        let mut ids = self.helpers.unheard();
        if ids.is_empty() {
            let ready = heard_of(&self.poller);
            ids = ready.into_iter().filter_map(split).map(|(_, id)| id).collect();
        }
        for id in ids {
            refused |= self.helpers.ready(id);
            more |= self.helpers.has_work();
        }
        (refused, more)
    }

    /// Waits until a read has ended. How it ended, and what [`World::hear`] says.
    fn ended(&mut self) -> (FailureReason, bool, bool) {
        let (mut refused, mut more) = (false, false);
        let mut ended = std::mem::take(&mut self.ended);
        while ended.is_empty() {
            let heard = self.hear();
            (refused, more) = (refused | heard.0, more | heard.1);
            ended = self.helpers.take_ended();
        }
        let (_, end) = ended.remove(0);
        self.ended = ended;
        let ReadEnd::Failed(reason) = end else { panic!("no helper here reads") };
        (reason, refused, more)
    }
}

#[test]
fn a_helper_that_cannot_use_nixl_says_so_before_it_is_up() {
    let mut world = World::new(&format!("printf '{}' >&0", refusal()));
    world.read("a");
    let (reason, refused, _) = world.ended();
    assert!(refused && matches!(reason, FailureReason::PlaneAway { .. }), "{reason}");
}

/// It has loaded what peers sent, and may be theirs.
#[test]
fn a_helper_that_was_up_cannot_take_nixl_away_from_its_node() {
    let mut world = World::new(&format!("printf '{}{}' >&0; exec sleep 1000", up(), refusal()));
    world.read("a");
    let (reason, refused, _) = world.ended();
    assert!(!refused && matches!(reason, FailureReason::Plane(_)), "{reason}");
    assert_eq!(world.helpers.deaths(), (1, 0));
}

/// No peer has anything to do with it.
#[test]
fn a_read_helper_with_few_ports_is_tried_again_until_one_is_free() {
    let mut config = config_for_test(&format!("printf '{}' >&0; exit 1", refusal()));
    config.settings.ports = Some((42000, 42000));
    let mut world = World::of(config);
    let metadata = metadata_for_test("a");
    world.read_from(1, &metadata);
    let (reason, refused, _) = world.ended();
    assert!(!refused && matches!(reason, FailureReason::Plane(_)), "{reason}");
    assert_eq!(reason.class(), FailureClass::Retryable);
    assert_eq!(world.helpers.deaths(), (1, 0));
}

/// A starved machine, or a crash at the start. The peer's bytes wait for it to be up.
#[test]
fn a_read_helper_that_ends_before_it_is_up_is_nobodys_doing_and_tried_again() {
    for end in ["exit 3", "kill -SEGV $$"] {
        let mut world = World::new(&format!("printf '{}' >&2; {end}", "too slow"));
        let metadata = metadata_for_test("a");
        world.read_from(1, &metadata);
        let (reason, refused, _) = world.ended();
        assert!(!refused && matches!(reason, FailureReason::Plane(_)), "{reason}");
        assert_eq!(reason.class(), FailureClass::Retryable);
        assert!(reason.to_string().contains("too slow"), "{reason}");
        world.read_from(1, &metadata);
        let (reason, ..) = world.ended();
        assert!(!matches!(reason, FailureReason::SuspectAgent(_)), "{reason}");
    }
}

#[test]
fn a_helper_that_talks_without_end_is_heard_in_turns() {
    let talk = printed(&Event::Loaded { peer: PeerId(99) }).repeat(1000);
    let mut world = World::new(&format!("printf '{}{talk}' >&0", up()));
    world.read("a");
    let (_, _, more) = world.ended();
    assert!(more, "1000 events are not taken in one turn");
    assert!(!world.helpers.has_work(), "and nothing is left of it");
}

/// Seventeen producers of one agent name, each of which needs a helper of its own.
#[test]
fn an_idle_helper_makes_room_for_a_peer_that_needs_one() {
    // Each helper knows its one peer and then fails its one read, whichever they are.
    let loaded: String =
        (0..20).map(|peer| printed(&Event::Loaded { peer: PeerId(peer) })).collect();
    let failed = |read| {
        let (kind, reason) = (FailureKind::Peer, "no".into());
        printed(&Event::ReadFailed { read: ReadId(read), kind, settled: true, reason })
    };
    let failed: String = (0..20).map(failed).collect();
    let mut world = World::new(&format!("printf '{}{loaded}{failed}' >&0; exec sleep 1000", up()));
    let full = |reason: &FailureReason| reason.to_string().contains("run already");
    for _ in 0..16 {
        world.read("a");
    }
    for _ in 0..16 {
        assert!(!full(&world.ended().0));
    }
    assert_eq!(world.helpers.helpers().count(), 16);
    world.read("a");
    assert!(full(&world.ended().0));
    while world.helpers.helpers().count() == 16 {
        world.hear();
    }
    world.read("a");
    assert!(!full(&world.ended().0), "one that was idle has ended for it");
    assert_eq!(world.helpers.deaths(), (0, 0));
}

/// The first helper says one text, and the next when [`Told::go_on`] is called; later helpers come up and are
/// silent.
struct Told {
    dir: tempfile::TempDir,
    script: String,
}

impl Told {
    fn new(first: &str, then: &Event) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, mark) = (dir.path().join("pipe"), dir.path().join("mark"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let script = format!(
            "if mkdir '{}' 2>&-; then printf '{}{first}' >&0; read -r line <'{}'; printf '{}' >&0;
             else printf '{}' >&0; fi; exec sleep 1000",
            mark.display(),
            up(),
            pipe.display(),
            printed(then),
            up(),
        );
        Self { dir, script }
    }

    fn go_on(&self) {
        std::fs::write(self.dir.path().join("pipe"), "\n").unwrap();
    }
}

impl World {
    /// Waits until so many reads are in the first helper.
    fn reading(&mut self, reads: usize) {
        while self.helpers.helpers().next().is_none_or(|(_, _, here)| here != reads) {
            self.hear();
        }
    }

    /// One read that will hang and one of another producer, "b", are in the first helper. The time then.
    fn reading_both(&mut self) -> Nanos {
        self.read("hangs");
        self.read("b");
        self.reading(2);
        clock::now()
    }

    /// Waits until a read has ended.
    fn over(&mut self) -> (TransferId, ReadEnd) {
        while self.ended.is_empty() {
            self.hear();
            self.ended = self.helpers.take_ended();
        }
        self.ended.remove(0)
    }
}

fn loaded(peers: u64) -> String {
    (0..peers).map(|peer| printed(&Event::Loaded { peer: PeerId(peer) })).collect()
}

fn millis(now: Nanos, millis: u64) -> Nanos {
    now.after(Duration::from_millis(millis))
}

/// It is wrong once for a request that comes again, and may be right after all when the time is over.
#[test]
fn what_has_ended_a_helper_is_suspected_and_not_judged_again() {
    let mut world = World::new(&format!("printf '{}' >&0; exit 3", up()));
    let metadata = metadata_for_test("a");
    world.read_from(1, &metadata);
    let (reason, ..) = world.ended();
    assert!(matches!(reason, FailureReason::BadAgent(_)), "{reason}");
    world.read_from(1, &metadata);
    let (reason, ..) = world.ended();
    assert!(matches!(reason, FailureReason::SuspectAgent(_)), "{reason}");
    assert_eq!(reason.class(), FailureClass::Retryable);
    assert_eq!(world.helpers.deaths(), (1, 0));
    world.read_from(1, &metadata_of("a", b"another address"));
    let ended = world.helpers.take_ended();
    let suspected =
        |(_, end): &(_, ReadEnd)| matches!(end, ReadEnd::Failed(FailureReason::SuspectAgent(_)));
    assert!(
        !world.ended.iter().chain(&ended).any(suspected),
        "of another description nothing is known"
    );
}

#[test]
fn a_helper_with_a_read_that_hangs_is_ended_when_the_others_reads_are_through() {
    let told = Told::new(&loaded(2), &Event::ReadDone { read: ReadId(2) });
    let mut world = World::new(&told.script);
    let now = world.reading_both();
    world.helpers.abort(now, TransferId(1));
    world.helpers.handle_timeout(millis(now, 500));
    assert_eq!(world.helpers.deaths(), (0, 0), "b is still read through it");
    world.read("c");
    assert_eq!(world.helpers.helpers().count(), 2, "and nothing new");
    told.go_on();
    let (transfer, end) = world.over();
    assert!(matches!(end, ReadEnd::Landed { .. }), "{end:?}");
    assert_eq!(transfer, TransferId(2));
    world.helpers.handle_timeout(clock::now());
    assert_eq!(world.helpers.deaths(), (0, 1));
    assert_eq!(world.over().0, TransferId(1));
    assert_eq!(world.helpers.helpers().count(), 1, "that of c");
}

#[test]
fn the_others_have_five_seconds() {
    let mut world = World::new(&format!("printf '{}{}' >&0; exec sleep 1000", up(), loaded(2)));
    let now = world.reading_both();
    world.helpers.abort(now, TransferId(1));
    for (at, kills) in [(499, 0), (500, 0), (5499, 0), (5500, 1)] {
        world.helpers.handle_timeout(millis(now, at));
        assert_eq!(world.helpers.deaths(), (0, kills), "at {at} ms");
    }
    let ends = [world.over(), world.over()];
    assert_eq!(ends.map(|(transfer, _)| transfer), [TransferId(1), TransferId(2)]);
}

/// Neither ends what is read from others any sooner.
#[test]
fn the_others_have_their_five_seconds_whatever_else_is_given_up_or_fails() {
    let kind = FailureKind::Backend;
    let failed = Event::ReadFailed { read: ReadId(1), kind, settled: false, reason: "slow".into() };
    let told = Told::new(&loaded(2), &failed);
    let mut world = World::new(&told.script);
    let metadata = metadata_for_test("hangs");
    world.read_from(1, &metadata);
    world.read_from(1, &metadata);
    world.read("b");
    world.reading(3);
    let now = clock::now();
    world.helpers.abort(now, TransferId(1));
    world.helpers.handle_timeout(millis(now, 500));
    told.go_on();
    world.hear();
    world.helpers.abort(millis(now, 600), TransferId(2));
    for (at, kills) in [(600, 0), (1100, 0), (5499, 0), (5500, 1)] {
        world.helpers.handle_timeout(millis(now, at));
        assert_eq!(world.helpers.deaths(), (0, kills), "at {at} ms");
    }
}

#[test]
fn nobody_waits_for_other_reads_of_the_peer_that_hangs() {
    let mut world = World::new(&format!("printf '{}{}' >&0; exec sleep 1000", up(), loaded(1)));
    let metadata = metadata_for_test("hangs");
    world.read_from(1, &metadata);
    world.read_from(1, &metadata);
    world.reading(2);
    let now = clock::now();
    world.helpers.abort(now, TransferId(1));
    world.helpers.handle_timeout(millis(now, 500));
    assert_eq!(world.helpers.deaths(), (0, 1));
}

#[test]
fn a_helper_whose_stuck_read_has_ended_is_read_through_again() {
    let told = Told::new(&loaded(2), &Event::ReadDone { read: ReadId(1) });
    let mut world = World::new(&told.script);
    let now = world.reading_both();
    world.helpers.abort(now, TransferId(1));
    world.helpers.handle_timeout(millis(now, 500));
    told.go_on();
    let (transfer, end) = world.over();
    assert!(matches!(end, ReadEnd::Failed(_)), "nobody wants it: {end:?}");
    assert_eq!(transfer, TransferId(1));
    world.helpers.handle_timeout(millis(now, 60_000));
    assert_eq!(world.helpers.deaths(), (0, 0));
    world.read("c");
    assert_eq!(world.helpers.helpers().count(), 1);
}

/// Until it has been told to forget the producer's earlier life, the name is taken in it.
#[test]
fn a_peer_is_forgotten_when_its_helper_has_been_told() {
    let (kind, reason) = (FailureKind::Peer, "no".into());
    let read = ReadId(1);
    let failed = printed(&Event::ReadFailed { read, kind, settled: true, reason });
    let script = format!("printf '{}{}{failed}' >&0; exec sleep 1000", up(), loaded(1));
    let mut world = World::new(&script);
    world.read("a");
    world.ended();
    // It listens to nothing: at some point no more is taken for it.
    let full = |end: &(TransferId, ReadEnd)| format!("{:?}", end.1).contains("take its commands");
    for producer in 2.. {
        let metadata = metadata_of(&format!("agent {producer}"), &vec![7; 60_000]);
        world.read_from(producer, &metadata);
        if world.ended.iter().any(full) {
            break;
        }
        assert!(producer < 200, "a queue without end");
    }
    let peers = |world: &World| world.helpers.helpers().map(|(_, peers, _)| peers).next();
    let before = peers(&world);
    let another_life = metadata_of("a", b"another address");
    world.read_from(1, &another_life);
    assert_eq!(peers(&world), before);
    assert_eq!(world.helpers.helpers().count(), 2, "another one reads from it");
}
