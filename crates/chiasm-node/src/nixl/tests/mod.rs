//! Helpers that misbehave. Shell scripts stand in for them.

mod read;
mod serve;

use std::fmt::Write as _;
use std::time::Duration;

use chiasm_nixl::{Event, Launch, Ready, Settings};
use chiasm_region::{Region, RegionOptions};

use super::NixlConfig;
use crate::poller::Poller;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u32 = 4;

fn region_for_test(dir: &tempfile::TempDir) -> Region {
    let options = RegionOptions::new("chiasm-nixl", BLOCKS, BLOCK_BYTES);
    Region::create(&RegionOptions { dir: dir.path().to_owned(), ..options }).unwrap()
}

/// Waits until something happens in a helper. A hang is a failure.
fn heard_of(poller: &Poller) -> Vec<u64> {
    let mut ready = Vec::new();
    poller.wait(Some(Duration::from_mins(1)), &mut ready).unwrap();
    assert!(!ready.is_empty(), "nothing happens for a minute");
    ready
}

fn config_for_test(script: &str) -> NixlConfig {
    NixlConfig {
        launch: Launch::new("/bin/sh", ["-c", script]),
        settings: Settings::default(),
        agent_name: "agent".into(),
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
        agent_name: "agent".into(),
        agent_metadata: Vec::new(),
        base_address: 0x7f00_0000_0000,
        blocks_bytes: u64::from(BLOCKS) * BLOCK_BYTES,
        read_only: false,
        backend: "UCX".into(),
        library: "none".into(),
    }))
}

fn refusal() -> String {
    printed(&Event::Refused { reason: "no library".into() })
}
