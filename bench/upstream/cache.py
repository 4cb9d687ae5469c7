"""Upstream's EmbeddingCache: a save into a full region, eviction included."""

import time

from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache import EmbeddingCache

from bench.rows import Effort, parser
from bench.upstream.common import row

REGIONS = (10_000, 100_000, 1_000_000)
ENTRIES = (1, 256, 4096)
BLOCKS_MOVED = 4_000_000


def main(arguments: list[str]) -> None:
    effort = Effort(parser(__doc__).parse_args(arguments).effort)
    for blocks in REGIONS[: effort.choose(3, 3, 1)]:
        for entry in ENTRIES:
            cache = EmbeddingCache(blocks)
            for at in range(blocks // entry):
                cache.alloc(f"old{at}", entry)
                cache.mark_ready(f"old{at}")
            moved = BLOCKS_MOVED // effort.choose(1, 10, 100)
            cycles = max(20, min(200_000, moved // entry))
            names = [f"new{at}" for at in range(cycles)]
            start = time.perf_counter()
            for name in names:
                cache.alloc(name, entry)
                cache.mark_ready(name)
                cache.pin(name)
                cache.unpin(name)
            us = (time.perf_counter() - start) / cycles * 1e6
            row("cache", {"region_blocks": blocks, "entry_blocks": entry}, "cycle_us", us)
