//! A save into a full region: room is made by eviction, the entry becomes ready, is pinned and let go.

use std::time::Instant;

use chiasm_core::cache::{Cache, EvictionPolicy};
use chiasm_core::dtype::Dtype;
use chiasm_core::entry::EntryMeta;
use chiasm_core::mm_hash::MmHash;
use serde_json::json;

use super::stats::number;
use super::{Effort, Rows};

const REGIONS: [u32; 3] = [10_000, 100_000, 1_000_000];
const ENTRIES: [u32; 3] = [1, 256, 4096];
const CYCLES: usize = 200_000;

pub(super) fn measure(effort: Effort, rows: &mut Rows<'_>) -> anyhow::Result<()> {
    let cycles = effort.of(CYCLES);
    for region_blocks in effort.choose(&REGIONS[..], &REGIONS[..], &REGIONS[..1]) {
        for entry_blocks in ENTRIES {
            let region_blocks = *region_blocks;
            let mut cache = Cache::new(region_blocks, EvictionPolicy::Fifo);
            let meta = EntryMeta::new(entry_blocks, 3584, Dtype::Bfloat16);
            let meta = meta.expect("a small tensor");
            let names = |prefix: &str, count: usize| -> anyhow::Result<Vec<MmHash>> {
                (0..count).map(|at| Ok(MmHash::new(&format!("{prefix}{at}"))?)).collect()
            };
            // Full before anything is measured: every save evicts.
            for name in names("old", usize::try_from(region_blocks / entry_blocks)?)? {
                let key = cache.reserve(&name, meta, entry_blocks)?;
                cache.mark_ready(key, None)?;
            }
            let names = names("new", cycles)?;
            let start = Instant::now();
            for name in &names {
                let key = cache.reserve(name, meta, entry_blocks)?;
                cache.mark_ready(key, None)?;
                cache.pin(key)?;
                cache.unpin(key)?;
            }
            let us = start.elapsed().as_secs_f64() * 1e6 / number(cycles);
            let case = json!({ "region_blocks": region_blocks, "entry_blocks": entry_blocks });
            rows.add("chiasm", &case, "cycle_us", us)?;
        }
    }
    Ok(())
}
