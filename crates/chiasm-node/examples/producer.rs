//! An encoder engine with one worker: it saves three encoder outputs and announces them.
//!
//! `cargo run -p chiasm-node --example producer` writes one line, the `ec_transfer_params` of its
//! entries, and serves until its standard input ends. The other side is the example `consumer`.

mod engine;

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chiasm_core::announcement::OutgoingAnnouncement;
use chiasm_core::dispatch::Rank;
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::ListenAddress;
use chiasm_core::entry::EntryMeta;
use chiasm_core::identity::Identity;
use chiasm_core::mm_hash::MmHash;
use chiasm_node::{Node, NodeConfig};
use serde_json::{Map, Value};

use crate::engine::{BLOCK_BYTES, BLOCKS, WorkerProcess};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, region, rank] = args.as_slice() {
        ensure!(role == "worker", "usage: producer");
        return engine::work(region, rank);
    }

    // One name for all processes of the instance; a deployment has an engine id for that.
    let region = format!("chiasm-example-producer-{}", std::process::id());
    let mut worker = WorkerProcess::start(&region, 0)?;

    let mut config = NodeConfig::new(u64::from(BLOCKS) * BLOCK_BYTES);
    config.region_name = Some(region);
    config.identity = Identity { block_size_bytes: BLOCK_BYTES, ..Identity::default() };
    config.listen = Some(ListenAddress::parse("127.0.0.1:0")?);
    let node = Node::start(&config)?;

    // The scheduler decides that these items are encoded in this step.
    let images = [("cat", 16), ("dog", 100), ("bird", 577)];
    for (name, rows) in images {
        let meta = EntryMeta::new(rows, 1024, Dtype::Bfloat16).context("a small tensor")?;
        // Room is taken now, and the order goes to the worker that will have the bytes. An error here
        // (no room, saved already) only means that nothing is offered: the engine goes on.
        let order = node.dispatch_save(&MmHash::new(name)?, meta, Rank::ZERO)?;
        if let Err(error) = worker.send(&order) {
            // It never left: nobody writes into its blocks.
            node.discard(order.dispatch);
            return Err(error);
        }
    }

    // Announcing needs no ready entry: a peer that is early is told NOT_READY and asks again.
    let mut params = Map::new();
    for ((name, _), index) in images.iter().zip(0..) {
        let entry = node.announce(name).context("it was just reserved")?;
        let announcement = OutgoingAnnouncement::new("image", index).with_entry(entry, Map::new());
        params.insert((*name).into(), announcement.to_json());
    }
    println!("{}", Value::Object(params));
    std::io::stdout().flush()?;

    // The engine steps on; the node's thread takes the worker's reports and serves. Nothing here is
    // needed for either: this only waits to say something.
    loop {
        let news = node.news();
        if node.outstanding().is_empty() {
            break;
        }
        node.wait(news, Duration::from_secs(1));
    }
    let counters = node.dispatch_counters();
    eprintln!("saved {}, failed {}", counters.saved, counters.failed_saves);

    std::io::stdin().read_to_end(&mut Vec::new())?;
    // Peers that are reading may finish; new ones are sent away.
    node.drain(Duration::from_secs(5), || true);
    Ok(())
}
