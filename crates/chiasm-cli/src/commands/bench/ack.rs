//! From the bytes of a request to the bytes of its ack, on the producer.

use std::time::{Duration, Instant};

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::{Plane, PlaneList};
use chiasm_core::producer::{PeerId, Producer, ProducerConfig, ProducerLimits};
use chiasm_core::time::Nanos;
use chiasm_core::wire::{ReqExtension, XferReq};
use serde_json::json;

use super::stats::number;
use super::{Effort, Rows};

const REGIONS: [u32; 3] = [10_000, 100_000, 1_000_000];
const ENTRY_BLOCKS: u32 = 256;
const REQUESTS: usize = 100_000;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let requests = effort.of(REQUESTS);
    for region_blocks in REGIONS {
        let mut cache = Cache::new(region_blocks, EvictionPolicy::Fifo);
        let meta = EntryMeta::new(ENTRY_BLOCKS, 3584, Dtype::Bfloat16).expect("a small tensor");
        let hash = MmHash::new(&"h".repeat(64))?;
        let key = cache.reserve(&hash, meta, ENTRY_BLOCKS)?;
        cache.mark_ready(key, None)?;
        let planes = PlaneList::from_iter([Plane::Tcp]);
        let config = ProducerConfig {
            compat_hash: "c".repeat(64),
            fingerprint: None,
            epoch: 1,
            block_size_bytes: 7168,
            lease: Duration::from_secs(30),
            planes,
            shm: None,
            limits: ProducerLimits::for_region(region_blocks),
        };
        let mut producer = Producer::new(config, [1; 32]);
        let extension = ReqExtension { planes, attempt: 1, ..ReqExtension::default() };
        let request = XferReq {
            mm_hash: hash.as_str(),
            compatibility_hash: &"c".repeat(64),
            session_id: "0123456789abcdef.1",
            connector_version: 2,
            chiasm: Some(extension),
        };
        let request = request.encode();
        let mut bytes = 0;
        let start = Instant::now();
        for at in 0..requests {
            let now = Nanos::from_nanos(u64::try_from(at)?);
            let ack = producer.handle_request(now, PeerId(1), &request, &mut cache);
            bytes = ack.map_or(0, |ack| ack.into_bytes().len());
        }
        let us = start.elapsed().as_secs_f64() * 1e6 / number(requests);
        let case = json!({ "region_blocks": region_blocks, "entry_blocks": ENTRY_BLOCKS });
        rows.add("chiasm", &case, "ack_bytes", number(bytes))?;
        rows.add("chiasm", &case, "request_to_ack_us", us)?;
    }
    Ok(())
}
