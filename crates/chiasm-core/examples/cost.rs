//! What single operations of the core cost.
//!
//! ```text
//! cargo run --release -p chiasm-core --example cost
//! ```
//! Times are medians of batches; they say something on a quiet machine only.

use std::time::{Duration, Instant};

use chiasm_core::admission::{Admission, AdmissionConfig, Decision, Item};
use chiasm_core::allowlist::Allowlist;
use chiasm_core::announcement::{Announcement, Expectation, RemoteAnnouncement};
use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::consumer::{Consumer, ConsumerConfig};
use chiasm_core::dtype::Dtype;
use chiasm_core::endpoint::Endpoint;
use chiasm_core::entry::EntryMeta;
use chiasm_core::limits;
use chiasm_core::mm_hash::MmHash;
use chiasm_core::plane::Plane;
use chiasm_core::time::Nanos;

type Anything<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anything<()> {
    for region in [10_000, 1_000_000] {
        for blocks in [1, 256, 4096] {
            println!(
                "cache: reserve, which evicts one, and mark_ready; {blocks:4} blocks, region of \
                 {region:7}: {:6.0} ns",
                nanos(cache(region, blocks)?)
            );
        }
    }
    for requests in [1_000, 10_000] {
        println!(
            "admission: ensure of a request that waits; {requests:5} waiting x 8 items in flight: {:6.0} ns",
            nanos(admission(requests)?)
        );
    }
    Ok(())
}

fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// The middle one of 101 batches of `count` operations each, by operation.
fn median(count: u32, mut operation: impl FnMut() -> Anything<()>) -> Anything<Duration> {
    let mut batches = Vec::new();
    for _ in 0..101 {
        let start = Instant::now();
        for _ in 0..count {
            operation()?;
        }
        batches.push(start.elapsed() / count);
    }
    batches.sort_unstable();
    Ok(batches[batches.len() / 2])
}

fn cache(region: u32, blocks: u32) -> Anything<Duration> {
    let mut cache = Cache::new(region, EvictionPolicy::Fifo);
    let meta = EntryMeta::new(blocks, 2048, Dtype::Bfloat16).ok_or("too large")?;
    let mut name = 0_u64;
    let mut save = || -> Anything<()> {
        name += 1;
        let key = cache.reserve(&MmHash::new(&format!("{name:064}"))?, meta, blocks)?;
        cache.mark_ready(key, None)?;
        Ok(())
    };
    for _ in 0..=region / blocks {
        save()?;
    }
    median(1000, save)
}

fn admission(requests: u32) -> Anything<Duration> {
    let source: Endpoint = "10.0.0.5:5601".parse()?;
    let allowed = Allowlist::parse(["10.0.0.5:5601"]).map_err(|mut errors| errors.remove(0))?;
    let mut cache = Cache::new(1_000_000, EvictionPolicy::Fifo);
    let mut consumer = Consumer::new(ConsumerConfig {
        compat_hash: "c".into(),
        fingerprint: None,
        epoch: 1,
        session: "s".into(),
        block_size_bytes: 4096,
        host: None,
        region: None,
        planes: [Plane::Tcp].into_iter().collect(),
        ack_timeout: limits::ACK_TIMEOUT,
        read_timeout: limits::READ_TIMEOUT,
        lease_margin: limits::LEASE_MARGIN,
        verify: true,
    });
    let mut admission = Admission::new(AdmissionConfig::default(), allowed, [7; 32]);
    let expected = Expectation {
        rows: None,
        width: None,
        dtype: None,
        block_size_bytes: 4096,
        region_blocks: u32::MAX,
    };
    let now = Nanos::from_nanos(1);
    let ids: Vec<String> = (0..requests).map(|request| format!("request-{request}")).collect();
    for id in &ids {
        let items = (0..8).map(|item| -> Anything<Item> {
            let remote = RemoteAnnouncement {
                source: source.clone(),
                size_bytes: 4096,
                rows: 1,
                width: 2048,
            };
            let hash = MmHash::new(&format!("{id}-{item}"))?;
            let announcement = Ok(Announcement::Remote(remote));
            Ok(Item::new(hash, 1, false, Some(&announcement), &expected))
        });
        let items = items.collect::<Anything<Vec<Item>>>()?;
        admission.track(now, id, items, &mut cache, &mut consumer)?;
        admission.ensure(now, id, 8, 0, &mut cache, &mut consumer);
    }
    let mut next = ids.iter().cycle();
    median(1000, || {
        let id = next.next().ok_or("no request")?;
        match admission.ensure(now, id, 8, 0, &mut cache, &mut consumer) {
            Some(Decision::Wait) => Ok(()),
            other => Err(format!("{other:?}, not waiting").into()),
        }
    })
}
