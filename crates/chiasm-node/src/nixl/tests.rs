//! Read helpers that misbehave. Shell scripts stand in for them.

use std::fmt::Write as _;
use std::sync::Arc;

use chiasm_core::consumer::{FailureReason, ReadEnd, ReadOrder, RemoteAgent, TransferId};
use chiasm_core::endpoint::Endpoint;
use chiasm_core::extent::Extent;
use chiasm_core::plane::Plane;
use chiasm_nixl::{Event, FailureKind, Launch, PeerId, ReadId, Ready, Settings};
use chiasm_region::{Region, RegionOptions};

use super::{NixlConfig, ReadHelpers};
use crate::clock;
use crate::poller::Poller;
use crate::token::split;

const BLOCK_BYTES: u64 = 4096;
const ADDRESS: u64 = 0x7f00_0000_0000;

fn field(tag: &str, value: &[u8]) -> Vec<u8> {
    let head = [tag.as_bytes(), &(value.len() as u64).to_le_bytes()].concat();
    [&head, value, b"|"].concat()
}

/// What the agent of this name says of itself: one block.
fn metadata_for_test(name: &str) -> Arc<[u8]> {
    let numbers = |numbers: &[u64]| numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
    let one: Vec<u8> = numbers(&[1]);
    let range: Vec<u8> = numbers(&[ADDRESS, BLOCK_BYTES, 0]);
    let fields = [
        b"nixlSerDes|".to_vec(),
        field("Agent", name.as_bytes()),
        field("Conns", &one),
        field("t", b"UCX"),
        field("c", b"address"),
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
        let dir = tempfile::tempdir().unwrap();
        let options = RegionOptions::new("chiasm-nixl", 4, BLOCK_BYTES);
        let options = RegionOptions { dir: dir.path().to_owned(), ..options };
        let config = NixlConfig {
            launch: Launch::new("/bin/sh", ["-c", script]),
            settings: Settings::default(),
            agent_name: "reader".into(),
        };
        Self {
            helpers: ReadHelpers::new(Some(config), BLOCK_BYTES),
            region: Region::create(&options).unwrap(),
            poller: Poller::new().unwrap(),
            next: 0,
            ended: Vec::new(),
            _dir: dir,
        }
    }

    /// Reads one block from the agent of this name.
    fn read(&mut self, name: &str) {
        self.next += 1;
        let nixl = RemoteAgent {
            metadata: metadata_for_test(name),
            region: (ADDRESS, BLOCK_BYTES),
            runs: vec![(ADDRESS, BLOCK_BYTES)],
            completion: String::new(),
        };
        let order = ReadOrder {
            transfer: TransferId(self.next),
            source: Endpoint::parse(&format!("10.0.0.1:{}", 1000 + self.next)).unwrap(),
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
            let mut ready = Vec::new();
            self.poller.wait(None, &mut ready).unwrap();
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

/// A frame as `printf` takes it.
fn printed(event: &Event) -> String {
    let message = postcard::to_allocvec(event).unwrap();
    let head = u32::try_from(message.len()).unwrap().to_le_bytes();
    head.iter().chain(&message).fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:03o}").unwrap();
        text
    })
}

fn up() -> String {
    printed(&Event::Ready(Ready {
        agent_name: "reader".into(),
        agent_metadata: Vec::new(),
        base_address: 0,
        blocks_bytes: 4 * BLOCK_BYTES,
        read_only: false,
        backend: "UCX".into(),
        library: "none".into(),
    }))
}

#[test]
fn a_helper_that_cannot_use_nixl_says_so_before_it_is_up() {
    let refusal = printed(&Event::Refused { reason: "no library".into() });
    let mut world = World::new(&format!("printf '{refusal}' >&0"));
    world.read("a");
    let (reason, refused, _) = world.ended();
    assert!(refused && matches!(reason, FailureReason::PlaneAway { .. }), "{reason}");
}

/// It has loaded what peers sent, and may be theirs.
#[test]
fn a_helper_that_was_up_cannot_take_nixl_away_from_its_node() {
    let refusal = printed(&Event::Refused { reason: "no library".into() });
    let mut world = World::new(&format!("printf '{}{refusal}' >&0; exec sleep 1000", up()));
    world.read("a");
    let (reason, refused, _) = world.ended();
    assert!(!refused && matches!(reason, FailureReason::Plane(_)), "{reason}");
    assert_eq!(world.helpers.deaths(), (1, 0));
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
