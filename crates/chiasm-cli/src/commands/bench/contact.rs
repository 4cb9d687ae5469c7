//! The first entry that two nodes move, and the next one, by size of the producer's region: the connection,
//! what each is told of the other, and the mapping of a region are in the first.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_node::Node;
use serde_json::json;

use super::entries::{End, Pattern, Requests, Wanted, consumer_config, producer_config};
use super::stats::{median, percentile_ms};
use super::{Effort, Rows};

const REGIONS: [u64; 3] = [10_000, 100_000, 1_000_000];
const ROUNDS: usize = 10;
const READER_BYTES: u64 = 16 << 20;
/// A region's memory is all there from the start: what counts is how many blocks there are.
const BLOCK_BYTES: u64 = 64;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    for blocks in REGIONS {
        for (plane, what) in [(Plane::Shm, "chiasm shm"), (Plane::Tcp, "chiasm tcp")] {
            let (mut first, mut second, mut calls) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..effort.of(ROUNDS) {
                let [one, other] = one(blocks, plane)?;
                first.push(one.0);
                second.push(other.0);
                calls.push(one.1.as_secs_f64() * 1e3);
            }
            let case = json!({ "region_blocks": blocks });
            rows.add(what, &case, "first_ms", percentile_ms(&first, 50))?;
            rows.add(what, &case, "second_ms", percentile_ms(&second, 50))?;
            rows.add(what, &case, "longest_call_cpu_ms", median(&calls))?;
        }
    }
    Ok(())
}

/// How long the first and the second entry took, and the longest call of either.
fn one(blocks: u64, plane: Plane) -> anyhow::Result<[(Duration, Duration); 2]> {
    let mut config = producer_config(blocks * BLOCK_BYTES)?;
    config.identity.block_size_bytes = BLOCK_BYTES;
    let producer = Node::start(&config)?;
    let endpoint = producer.endpoint().context("no endpoint")?.clone();
    let pattern = Pattern::new();
    let planes = PlaneList::from_iter([plane]);
    let mut config = consumer_config(READER_BYTES, &[endpoint], planes)?;
    config.identity.block_size_bytes = BLOCK_BYTES;
    let reader = Node::start(&config)?;
    let fetch = |name: &str| -> anyhow::Result<(Duration, Duration)> {
        pattern.save(&producer, name, 16)?;
        let offer = producer.announce(name).context("evicted")?;
        let mut requests = Requests::watched(&reader);
        let mut all = Duration::ZERO;
        requests.start(Wanted { name: name.into(), offer, local_input: false })?;
        requests.wait(|node, wanted, end, took| {
            ensure!(end == End::Ready, "{}: {end:?}", wanted.name);
            pattern.check(node, &wanted.name)?;
            all = took;
            Ok(())
        })?;
        Ok((all, requests.longest_call().unwrap_or_default()))
    };
    Ok([fetch("first")?, fetch("second")?])
}
