"""Upstream's EmbeddingCache: a save into a full region, eviction included."""

import argparse
import time

from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache import EmbeddingCache

from bench.upstream.common import row

REGIONS = (10_000, 100_000, 1_000_000)
ENTRIES = (1, 256, 4096)
BLOCKS_MOVED = 4_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    for blocks in REGIONS:
        for entry in ENTRIES:
            cache = EmbeddingCache(blocks)
            for at in range(blocks // entry):
                cache.alloc(f"old{at}", entry)
                cache.mark_ready(f"old{at}")
            cycles = max(200, min(200_000, BLOCKS_MOVED // entry)) // (10 if quick else 1)
            names = [f"new{at}" for at in range(cycles)]
            start = time.perf_counter()
            for name in names:
                cache.alloc(name, entry)
                cache.mark_ready(name)
                cache.pin(name)
                cache.unpin(name)
            us = (time.perf_counter() - start) / cycles * 1e6
            row("cache", {"region_blocks": blocks, "entry_blocks": entry}, "cycle_us", us)


main()
