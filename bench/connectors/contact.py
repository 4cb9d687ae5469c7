"""What a consumer pays for its first contact with an upstream producer of very many blocks.

The first ack of such a producer lists every block of its region: 14 MB for a million, and
upstream's consumer takes it apart in its scheduler. Both read the same 16 blocks from the same
producer, and are polled once in half a millisecond.
"""

import ctypes
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.apart import apart
from bench.connectors.config import (
    BLOCK_BYTES,
    EXTRA,
    WHO,
    WIDTH,
    chiasm_worker,
    scheduler_side,
    vllm_config,
)
from bench.connectors.memory import status_kib
from bench.connectors.requests import announced, feature, request
from bench.rows import Effort, parser, row

REGIONS = (10_000, 100_000, 1_000_000)
ROWS = 16
NAMES = ("1", "2")
TICK_S = 0.0005
LIMIT_S = 120.0


class Calls:
    """What the calls of the engine's thread took."""

    def __init__(self) -> None:
        self.cpu_s = 0.0
        self.longest_s = 0.0

    def call(self, what: Callable[[], Any]) -> Any:
        start, start_cpu = time.perf_counter(), time.thread_time()
        answer = what()
        self.cpu_s += time.thread_time() - start_cpu
        self.longest_s = max(self.longest_s, time.perf_counter() - start)
        return answer


def read(calls: Calls, begin: Callable[[], bool], done: Callable[[], bool]) -> float:
    """One entry, from the wish to the end, in milliseconds."""
    start = time.perf_counter()
    ready = calls.call(begin)
    while not ready:
        assert time.perf_counter() - start < LIMIT_S, "it did not come"
        time.sleep(TICK_S)
        ready = calls.call(done)
    return (time.perf_counter() - start) * 1e3


def upstream(blocks: int) -> Callable[[Calls, str], float]:
    from bench.upstream.pair import Reader, Served, ended

    producer = Served(blocks, list(NAMES), ROWS, BLOCK_BYTES)
    reader = Reader(producer.port, 1024, BLOCK_BYTES)
    room = list(range(ROWS))

    def fetch(calls: Calls, name: str) -> float:
        def begin() -> bool:
            reader.start(name, room)
            return False

        return read(calls, begin, lambda: bool(ended(reader.tick())))

    return fetch


def chiasm(blocks: int) -> Callable[[Calls, str], float]:
    from bench.upstream.pair import Served

    config = vllm_config("chiasm", "ec_consumer", 1024, **EXTRA["chiasm"])
    worker = chiasm_worker(config)
    connector = scheduler_side(config)
    from chiasm.vllm import instance

    compat = instance.model_of(config).compat_hash
    producer = Served(blocks, list(NAMES), ROWS, BLOCK_BYTES, compat)
    connector.scheduler_side._node.set_allowed_peers([f"127.0.0.1:{producer.port}"])

    def fetch(calls: Calls, name: str) -> float:
        params = {name: announced(producer.port, ROWS, WIDTH)}
        asked = request(f"of-{name}", [feature(name, ROWS, 1, False)], params)

        def ready() -> bool:
            assert worker.rank == 0
            assert not connector.take_unavailable_requests(), "it is unavailable"
            return bool(connector.ensure_cache_available(asked, 0))

        return read(calls, ready, ready)

    return fetch


def measure(who: str, blocks: int) -> dict[str, float]:
    logging.disable(logging.CRITICAL)
    fetch = {"chiasm": chiasm, "upstream": upstream}[who](blocks)
    first, second = Calls(), Calls()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, before_all = status_kib("RssAnon"), status_kib("VmRSS")
    found = {"first_ms": fetch(first, NAMES[0])}
    found["more_memory_at_most_mib"] = (status_kib("VmHWM") - before_all) / 1024
    # What the allocator only holds on to is not kept.
    ctypes.CDLL(None).malloc_trim(0)
    found["kept_mib"] = (status_kib("RssAnon") - before) / 1024
    found["second_ms"] = fetch(second, NAMES[1])
    found["scheduler_cpu_ms"] = first.cpu_s * 1e3
    found["longest_call_ms"] = first.longest_s * 1e3
    return found


def main(arguments: list[str]) -> None:
    made = parser(__doc__)
    made.add_argument("who", choices=WHO)
    chosen = made.parse_args(arguments)
    what = {"chiasm": "chiasm nixl", "upstream": "upstream"}[chosen.who]
    for blocks in REGIONS[: Effort(chosen.effort).choose(3, 3, 1)]:
        for metric, value in apart(measure, chosen.who, blocks).items():
            row("contact", what, {"region_blocks": blocks}, metric, value)
