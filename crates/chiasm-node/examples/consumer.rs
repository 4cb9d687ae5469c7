//! A decoder engine with two workers: one request whose images a producer has encoded.
//!
//! `producer | consumer HOST:PORT`, or with the announcements in a file:
//! `cargo run -p chiasm-node --example consumer -- 127.0.0.1:5601 < params.json`. The endpoint is the one
//! that this operator approves, whatever the announcements say. One line of JSON on standard input: the
//! `ec_transfer_params` of the request.

mod engine;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use chiasm_core::admission::{Decision, Item, ItemReport};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Expectation, ParamsLimits, parse_params_text};
use chiasm_core::dispatch::RankSet;
use chiasm_core::dtype::Dtype;
use chiasm_core::identity::Identity;
use chiasm_node::{Node, NodeConfig};

use crate::engine::{BLOCK_BYTES, BLOCKS, WorkerProcess};

/// Tensor-parallel ranks.
const RANKS: u16 = 2;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, region, rank] = args.as_slice() {
        ensure!(role == "worker", "usage: consumer HOST:PORT");
        return engine::work(region, rank);
    }
    let [approved] = args.as_slice() else { anyhow::bail!("usage: consumer HOST:PORT") };

    // Here the node is first and makes the region; its workers attach.
    let region = format!("chiasm-example-consumer-{}", std::process::id());
    let mut config = NodeConfig::new(u64::from(BLOCKS) * BLOCK_BYTES);
    config.region_name = Some(region.clone());
    config.identity = Identity { block_size_bytes: BLOCK_BYTES, ..Identity::default() };
    config.allowed = Allowlist::parse([approved.as_str()])
        .map_err(|problems| anyhow::anyhow!("the endpoint to approve: {problems:?}"))?;
    let node = Node::start(&config)?;
    let workers: Result<Vec<_>> =
        (0..RANKS).map(|rank| WorkerProcess::start(&region, rank)).collect();
    let mut workers = workers?;

    let mut text = String::new();
    std::io::stdin().read_line(&mut text)?;
    // Whatever a client sends is a value here, not an error: a bad announcement fails its item.
    let params = parse_params_text(&text, &ParamsLimits::default())?;
    let expected = Expectation {
        rows: None,
        width: Some(1024),
        dtype: Some(Dtype::Bfloat16),
        block_size_bytes: BLOCK_BYTES,
        region_blocks: BLOCKS,
    };
    let items: Vec<Item> = (1..)
        .zip(&params.items)
        // `end`: the item is computed once so many tokens are. `false`: there are no pixels here.
        .map(|(end, (hash, said))| Item::new(hash.clone(), end, false, Some(said), &expected))
        .collect();
    let hashes: Vec<String> = items.iter().map(|item| item.hash.as_str().to_owned()).collect();

    let id = "request-1";
    if let Err(refused) = node.track(id, items) {
        eprintln!("{id}: {refused}");
    }
    loop {
        let news = node.news();
        // In each step, for each waiting request. `None`: not tracked, as after a refusal.
        match node.ensure(id, hashes.len(), 0) {
            Some(Decision::Wait) => node.wait(news, Duration::from_millis(100)),
            Some(Decision::Ready) => break,
            // With pixels, `Fallback` would mean to encode the items that the report names.
            Some(Decision::Fallback | Decision::Unavailable) | None => {
                let why = |item: ItemReport<'_>| match item.reason {
                    Some(reason) => format!("{}: {reason}", item.hash),
                    None => format!("{}: {:?}", item.hash, item.verdict),
                };
                eprintln!("{}", node.report(id, why).join("\n"));
                // Each failed request comes out of here once; the engine ends it.
                for failed in node.take_unavailable_requests() {
                    println!("{failed} failed");
                }
                node.finish(id);
                return Ok(());
            }
        }
    }

    // All items are in the region and pinned for this request. Every rank needs its own copy.
    let ranks = RankSet::first(RANKS).context("two ranks")?;
    for hash in &hashes {
        let order = node.dispatch_load(hash, ranks)?;
        for worker in &mut workers {
            // If this failed half way, the order would have to be waited for: a rank has it.
            worker.send(&order)?;
        }
        // The engine will not ask for this item again: from here on the load alone keeps it.
        node.release(id, hash);
    }
    loop {
        let news = node.news();
        if node.outstanding().is_empty() {
            break;
        }
        node.wait(news, Duration::from_secs(1));
    }
    println!("{id} loaded {} items on {RANKS} ranks", node.dispatch_counters().loaded);
    node.finish(id);
    Ok(())
}
