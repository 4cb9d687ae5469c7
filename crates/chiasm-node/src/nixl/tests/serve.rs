//! The serve helper.

use std::sync::Arc;
use std::time::Duration;

use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::identity::Identity;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::PeerId;
use chiasm_core::time::Nanos;
use chiasm_core::wire::{AckLimits, CONNECTOR_VERSION, XferAck, XferReq};
use chiasm_nixl::{Event, PeerId as Peer};

use super::super::serve::ServeState;
use super::super::{NixlConfig, ServeHelper};
use super::{
    BLOCK_BYTES, BLOCKS, config_for_test, heard_of, printed, refusal, region_for_test, up,
};
use crate::clock;
use crate::config::NodeConfig;
use crate::node::instance_for_test;
use crate::poller::{Poller, Waker};
use crate::shared::Shared;

const COMPAT: &str = "same";

struct World {
    helper: ServeHelper,
    shared: Shared,
    poller: Poller,
    /// When the helper was started. What follows is said in seconds from then.
    start: Nanos,
    dirs: Vec<tempfile::TempDir>,
}

impl World {
    /// A node's serve helper that is this script, which has just been started.
    fn new(script: &str) -> Self {
        Self::of(config_for_test(script))
    }

    fn of(helper: NixlConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = NodeConfig {
            identity: Identity { compat_hash: COMPAT.into(), ..Identity::default() },
            planes: PlaneList::from_iter([Plane::Nixl]),
            ..NodeConfig::new(u64::from(BLOCKS) * BLOCK_BYTES)
        };
        let instance = instance_for_test(&config, BLOCKS);
        let waker = Arc::new(Waker::new().unwrap());
        let mut world = Self {
            helper: ServeHelper::new(Some(helper)),
            shared: Shared::new(instance, region_for_test(&dir), waker),
            poller: Poller::new().unwrap(),
            start: clock::now(),
            dirs: vec![dir],
        };
        world.settle(0);
        assert_eq!(world.helper.state(), ServeState::Starting);
        world
    }

    /// The first helper is this script; those after it come up and are silent.
    fn with_first_life(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let mut world = Self::new(&format!(
            "if mkdir '{}' 2>&-; then {script}; else printf '{}' >&0; exec sleep 1000; fi",
            mark.display(),
            up()
        ));
        world.dirs.push(dir);
        world
    }

    fn settle(&mut self, seconds: u64) {
        let now = self.start.after(Duration::from_secs(seconds));
        self.helper.settle(now, &self.shared, &self.poller);
    }

    /// Waits until it is in this state.
    fn until(&mut self, state: ServeState) {
        while self.helper.state() != state {
            heard_of(&self.poller);
            self.helper.ready(&self.shared);
        }
    }

    /// What an upstream consumer is answered; whether it has been granted a read.
    fn grant(&self) -> bool {
        let mut core = self.shared.core();
        if core.cache().find("h").is_none() {
            let meta = EntryMeta::new(1, 512, Dtype::Float32).unwrap();
            let key = core.reserve(&MmHash::new("h").unwrap(), meta, 1).unwrap();
            core.mark_ready(self.start, key, None).unwrap();
        }
        let request = XferReq {
            mm_hash: "h",
            compatibility_hash: COMPAT,
            session_id: "s",
            connector_version: i128::from(CONNECTOR_VERSION),
            chiasm: None,
        };
        let answer = core.handle_request(self.start, PeerId(1), &request.encode()).unwrap();
        let bytes = answer.into_bytes();
        XferAck::decode(&bytes, &AckLimits::default()).unwrap().status.is_ok()
    }
}

#[test]
fn a_serve_helper_that_cannot_use_nixl_says_so_before_it_is_up() {
    let mut world = World::new(&format!("printf '{}' >&0", refusal()));
    world.until(ServeState::Refused);
    assert!(!world.grant());
    world.settle(100);
    assert_eq!((world.helper.state(), world.helper.deaths()), (ServeState::Refused, 0));
}

/// Peers speak with it, and it may be theirs.
#[test]
fn a_serve_helper_that_was_up_cannot_take_nixl_away_from_its_node() {
    let first = format!("printf '{}{}' >&0; exec sleep 1000", up(), refusal());
    let mut world = World::with_first_life(&first);
    world.until(ServeState::Resting);
    assert_eq!(world.helper.deaths(), 1);
    world.settle(100);
    world.until(ServeState::Up);
    assert!(world.grant(), "nixl is still served");
}

/// The ports of the first may be taken for a while.
#[test]
fn a_serve_helper_that_follows_one_that_was_up_cannot_take_nixl_away_either() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let mut world = World::new(&format!(
        "if mkdir '{}' 2>&-; then printf '{up}' >&0; exit 1; fi
         if mkdir '{}' 2>&-; then printf '{}' >&0; else printf '{up}' >&0; fi; exec sleep 1000",
        at("first"),
        at("second"),
        refusal(),
        up = up(),
    ));
    world.until(ServeState::Resting);
    world.settle(100);
    world.until(ServeState::Resting);
    assert_eq!(world.helper.deaths(), 2);
    world.settle(200);
    world.until(ServeState::Up);
    assert!(world.grant());
}

#[test]
fn a_serve_helper_with_few_ports_is_tried_again_until_one_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "if mkdir '{}' 2>&-; then printf '{}' >&0; else printf '{}' >&0; fi; exec sleep 1000",
        dir.path().join("mark").display(),
        refusal(),
        up()
    );
    let mut config = config_for_test(&script);
    config.settings.ports = Some((42000, 42000));
    let mut world = World::of(config);
    world.until(ServeState::Resting);
    world.settle(100);
    world.until(ServeState::Up);
    assert!(world.grant());
}

/// NIXL has failed in it: another life may fare better.
#[test]
fn a_serve_helper_that_ends_with_a_code_is_started_again() {
    let script = format!("printf '{}' >&0; echo NIXL has failed >&2; exit 3", up());
    let mut world = World::with_first_life(&script);
    world.until(ServeState::Resting);
    assert_eq!(world.helper.deaths(), 1);
    assert!(!world.grant(), "nobody can read through it");
    world.settle(100);
    world.until(ServeState::Up);
    assert!(world.grant());
}

#[test]
fn a_serve_helper_that_does_not_answer_while_something_is_granted_is_ended_after_two_periods() {
    let mut world = World::new(&format!("printf '{}' >&0; exec sleep 1000", up()));
    world.until(ServeState::Up);
    world.settle(100);
    assert_eq!(world.helper.poll_timeout(), Nanos::NEVER, "it has nothing to do, and is not asked");
    assert!(world.grant());
    let process = world.helper.process();
    world.settle(100);
    world.settle(105);
    assert_eq!(world.helper.poll_timeout(), world.start.after(Duration::from_secs(110)));
    world.settle(109);
    assert_eq!((world.helper.state(), world.helper.process()), (ServeState::Up, process));
    world.settle(110);
    world.until(ServeState::Resting);
    assert_eq!(world.helper.deaths(), 1);
    assert_eq!(world.shared.core().producer().nixl_grants(), 1, "S8: it ends with its lease");
    world.settle(200);
    world.until(ServeState::Up);
    assert_ne!(world.helper.process(), process);
}

#[test]
fn a_serve_helper_that_does_not_come_up_is_ended() {
    let mut world = World::new("exec sleep 1000");
    world.settle(29);
    assert_eq!(world.helper.state(), ServeState::Starting);
    world.settle(30);
    world.until(ServeState::Resting);
    assert_eq!(world.helper.deaths(), 1);
}

/// The node's thread has others to listen to.
#[test]
fn a_serve_helper_that_talks_without_end_is_heard_in_turns() {
    let talk = printed(&Event::Loaded { peer: Peer(99) }).repeat(1000);
    let mut world = World::new(&format!("printf '{}{talk}' >&0; exec sleep 1000", up()));
    let mut turns = 0;
    world.until(ServeState::Up);
    while world.helper.poll_timeout() == Nanos::ZERO {
        turns += 1;
        world.settle(0);
    }
    assert!(turns >= 3, "1000 events are not taken in one turn: {turns}");
}
