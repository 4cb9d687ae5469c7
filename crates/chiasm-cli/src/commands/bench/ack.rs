//! From the bytes of a request to the bytes of its ack, on the producer.
//!
//! Each request is a grant of its own: what ends one before the next is not timed. An upstream peer gets the
//! list of all blocks until it has read through it once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{NixlAgent, PeerId, Producer, ProducerConfig, ProducerLimits};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{Progression, ReqExtension, XferDone, XferReq};
use serde_json::json;

use super::stats::number;
use super::{Effort, Rows};

const REGIONS: [u32; 3] = [10_000, 100_000, 1_000_000];
const ENTRY_BLOCKS: u32 = 256;
const BLOCK_BYTES: u64 = 7168;
const REQUESTS: usize = 100_000;
/// Of those whose answer has the list of all blocks.
const REQUESTS_WITH_LIST: usize = 40;
const SESSION: &str = "6f1ed002-ab59-40cb-8f1c-27a1d3dd0a3e";
const AGENT: u64 = 1;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Chiasm,
    /// For the first time.
    Upstream,
    /// One that has read before.
    UpstreamProven,
}

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    for region_blocks in REGIONS {
        for asker in [Asker::Chiasm, Asker::Upstream, Asker::UpstreamProven] {
            one(effort, region_blocks, asker, rows)?;
        }
    }
    Ok(())
}

fn one(
    effort: Effort,
    region_blocks: u32,
    asker: Asker,
    rows: &mut Rows<'_>,
) -> anyhow::Result<()> {
    let hash = MmHash::new(&"h".repeat(64))?;
    let mut cache = Cache::new(region_blocks, EvictionPolicy::Fifo);
    let meta = EntryMeta::new(ENTRY_BLOCKS, 3584, Dtype::Bfloat16).expect("a small tensor");
    let key = cache.reserve(&hash, meta, ENTRY_BLOCKS)?;
    cache.mark_ready(key, None)?;
    let mut producer = producer(region_blocks)?;
    let compat_hash = "c".repeat(64);
    let extension = ReqExtension {
        planes: PlaneList::from_iter([Plane::Tcp]),
        attempt: 1,
        ..ReqExtension::default()
    };
    let request = XferReq {
        mm_hash: hash.as_str(),
        compatibility_hash: &compat_hash,
        session_id: SESSION,
        connector_version: 2,
        chiasm: (asker == Asker::Chiasm).then_some(extension),
    };
    let request = request.encode();
    let done = XferDone { mm_hash: hash.as_str(), session_id: SESSION, attempt: 1 }.encode();
    let completion = format!("{SESSION}:{}", hash.as_str());

    let count = if asker == Asker::Upstream { REQUESTS_WITH_LIST } else { REQUESTS };
    let count = effort.of(count);
    let (mut bytes, mut took) = (0, Duration::ZERO);
    // The first one proves an upstream peer, and warms up.
    for at in 0..=count {
        let now = Nanos::from_nanos(u64::try_from(at)?);
        let start = Instant::now();
        let ack = producer.handle_request(now, PeerId(1), &request, &mut cache);
        bytes = ack.map_or(0, |ack| ack.into_bytes().len());
        if at > 0 {
            took += start.elapsed();
        }
        if asker == Asker::Chiasm {
            let _ = producer.handle_request(now, PeerId(1), &done, &mut cache);
        } else {
            producer.completed(AGENT, completion.as_bytes(), &mut cache);
        }
        if asker == Asker::Upstream {
            producer.peer_gone(PeerId(1), &mut cache);
        }
    }
    let what = match asker {
        Asker::Chiasm => "chiasm",
        Asker::Upstream => "chiasm, to upstream at first",
        Asker::UpstreamProven => "chiasm, to upstream later",
    };
    let us = took.as_secs_f64() * 1e6 / number(count);
    let case = json!({ "region_blocks": region_blocks, "entry_blocks": ENTRY_BLOCKS });
    rows.add(what, &case, "ack_bytes", number(bytes))?;
    rows.add(what, &case, "request_to_ack_us", us)
}

fn producer(region_blocks: u32) -> anyhow::Result<Producer> {
    let config = ProducerConfig {
        compat_hash: "c".repeat(64),
        fingerprint: None,
        epoch: 1,
        block_size_bytes: BLOCK_BYTES,
        lease: Duration::from_secs(30),
        upstream_lease: Duration::from_secs(30),
        planes: PlaneList::from_iter([Plane::Nixl, Plane::Tcp]),
        shm: None,
        limits: ProducerLimits::for_region(region_blocks),
    };
    let mut producer = Producer::new(config, [1; 32]);
    producer.agent_up(NixlAgent {
        life: AGENT,
        // As much as an agent's over UCX.
        metadata: Arc::from([b'm'; 451]),
        region: Progression::new(0x7f00_0000_0000, BLOCK_BYTES, BLOCK_BYTES, region_blocks, 0)?,
    });
    Ok(producer)
}
