"""Upstream's sessions in two processes, as its connector drives them: real ZMQ, real NIXL on DRAM.

The producer's engine polls its session once a step, and a step is as long as a batch takes; the
consumer's scheduler polls in steps of a millisecond. Bytes are compared apart from what is timed.
"""

import logging
import os
import random
import socket
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from bench import rows
from bench.apart import apart, processes
from bench.rows import Effort, percentile_ms
from bench.upstream.common import BLOCK_BYTES, COMPAT, fresh_name, region

TICK_S = 0.001
SIZES = (256 << 10, 2 << 20, 14 << 20, 64 << 20)
OUTSTANDING = (1, 16, 96)
# What all sources together may be, as in `chiasm bench transfers`: in full and quickly.
MOST_BYTES = (1400 << 20, 256 << 20, 8 << 20)
STEPS_MS = (0, 50, 500, 2000)
# Region of a production instance of 1 GB; the descriptor of all its blocks travels in each ack.
LARGE_BLOCKS = 150_000
LEASE_S = 30


def data_transport(shared: Any, blocks: int, block_bytes: int) -> Any:
    """Upstream's NIXL transport over a region."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl import NixlDataTransport

    address = shared.blocks.data_ptr()
    name = fresh_name()
    return NixlDataTransport(name, address, blocks, block_bytes, blocks * block_bytes)


def mark(name: str, block: int) -> int:
    """The byte that all bytes of this block of the entry have."""
    return (int(name) * 31 + block * 7) % 127


def serve(
    pipe: Connection,
    blocks: int,
    names: list[str],
    entry_blocks: int,
    block_bytes: int = BLOCK_BYTES,
    compat: str = COMPAT,
) -> None:
    """The producer: takes the length of its steps from the pipe until it is told to stop."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import ZmqServerTransport
    from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler import embedding_cache
    from vllm.distributed.ec_transfer.ec_connector.cpu.session import ProducerSession

    logging.disable(logging.CRITICAL)
    shared = region(blocks, block_bytes)
    cache = embedding_cache.EmbeddingCache(blocks)
    for name in names:
        entry = cache.alloc(name, entry_blocks)
        for at, block in enumerate(entry.block_ids):
            shared.blocks[block].fill_(mark(name, at))
        cache.mark_ready(name)
    data = data_transport(shared, blocks, block_bytes)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    session = ProducerSession(ZmqServerTransport("127.0.0.1", port), data, cache, compat)
    pipe.send(port)
    step_s: float | None = 0.0
    parent = os.getppid()
    while step_s is not None and os.getppid() == parent:
        if pipe.poll(0):
            step_s = pipe.recv()
            pipe.send("ok")
        if step_s:
            time.sleep(step_s)
        session.poll_step()
        time.sleep(TICK_S)
    session.close()
    data.deregister()
    shared.cleanup()
    os._exit(0)


class Reader:
    """The consumer's side of one producer."""

    def __init__(
        self, port: int, blocks: int, block_bytes: int = BLOCK_BYTES, compat: str = COMPAT
    ) -> None:
        from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import ZmqClientTransport
        from vllm.distributed.ec_transfer.ec_connector.cpu.session import ConsumerSession

        self.shared = region(blocks, block_bytes)
        self.data = data_transport(self.shared, blocks, block_bytes)
        self.control = ZmqClientTransport()
        self.address = ("127.0.0.1", port)
        connection = self.control.connect(self.address)
        self.session = ConsumerSession(self.address, connection, self.control, self.data, compat)

    def start(self, name: str, blocks: list[int]) -> None:
        self.session.start_xfer(name, blocks, time.monotonic() + LEASE_S)

    def tick(self) -> Any:
        messages = self.control.poll().get(self.address, [])
        self.session.poll(messages, time.monotonic())
        self.control.poll_dead()
        return self.session.take_results()

    def check(self, name: str, blocks: list[int]) -> None:
        for at in (0, len(blocks) // 2, len(blocks) - 1):
            block = self.shared.blocks[blocks[at]]
            assert bool((block == mark(name, at)).all()), f"{name}: wrong bytes in block {at}"

    def close(self) -> None:
        self.session.close()
        self.control.close()
        self.data.deregister()
        self.shared.cleanup()


class Served:
    """A producer in a process of its own."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.pipe, other = processes.Pipe()
        self.process = processes.Process(
            target=serve, args=(other, *arguments), kwargs=named, daemon=True
        )
        self.process.start()
        other.close()
        self.port: int = self.pipe.recv()

    def step(self, seconds: float | None) -> None:
        self.pipe.send(seconds)
        self.pipe.recv()

    def close(self) -> None:
        self.step(None)
        self.process.join(60)
        if self.process.is_alive():
            self.process.kill()


class Pair:
    """A producer and its reader."""

    def __init__(self, blocks: int, names: list[str], entry_blocks: int, room: int) -> None:
        self.producer = Served(blocks, names, entry_blocks)
        self.reader = Reader(self.producer.port, room)

    def close(self) -> None:
        self.reader.close()
        self.producer.close()


# What upstream gives up is asked for again, so often; then something is wrong.
MOST_GIVEN_UP = 100


def given_up(results: Any) -> list[str]:
    """What was not read, and can be asked for again."""
    assert not results.quarantined, f"upstream still reads {results.quarantined}"
    words = {"tombstoned": results.tombstoned, "retryable": results.retryable}
    for word, names in words.items():
        if names:
            print(f"upstream: {sorted(names)} {word}", file=sys.stderr, flush=True)
    return [*results.tombstoned, *results.retryable]


def ended(results: Any) -> list[str]:
    """What was read; nothing may have failed."""
    assert not given_up(results), "upstream gave up"
    return list(results.completed)


class Watch:
    """What one step of the consumer's scheduler takes at most."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0
        self.given_up = 0

    def step(self, reader: Reader) -> Any:
        start, start_cpu = time.perf_counter(), time.thread_time()
        results = reader.tick()
        self.longest_s = max(self.longest_s, time.perf_counter() - start)
        self.longest_cpu_s = max(self.longest_cpu_s, time.thread_time() - start_cpu)
        return results


def fetch(
    reader: Reader,
    names: list[str],
    slots: list[list[int]],
    seconds: float,
    *,
    compared: bool = False,
    watch: Watch | None = None,
) -> float:
    """Transfers a second, as many outstanding as there are slots."""
    watch = watch or Watch()
    free, waiting = list(range(len(slots))), list(names)
    running: dict[str, int] = {}
    done = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or done < 3:
        results = watch.step(reader)
        for name in given_up(results):
            watch.given_up += 1
            assert watch.given_up <= MOST_GIVEN_UP, "upstream gives up again and again"
            free.append(running.pop(name))
            waiting.append(name)
        for name in results.completed:
            slot = running.pop(name)
            if compared:
                reader.check(name, slots[slot])
            free.append(slot)
            waiting.append(name)
            done += 1
        while free and waiting:
            name, slot = waiting.pop(0), free.pop()
            running[name] = slot
            reader.start(name, slots[slot])
        time.sleep(TICK_S)
    while running:
        results = reader.tick()
        for name in (*results.completed, *given_up(results)):
            del running[name]
        time.sleep(TICK_S)
    return done / elapsed


def transfers(effort: Effort) -> None:
    for size in SIZES[: effort.choose(4, 4, 1)]:
        entry = size // BLOCK_BYTES
        sources = max(1, min(96, effort.choose(*MOST_BYTES) // size))
        room = entry * sources
        # Those of the entries alone, and one as large as a production instance's. Each in a process
        # that has had nothing to do with NIXL, which does not outlive a fork.
        apart(transfers_of, effort, "upstream", size, sources, room)
        if room < LARGE_BLOCKS and not effort.is_smoke:
            apart(transfers_of, effort, "upstream, 1 GB region", size, sources, LARGE_BLOCKS)


def transfers_of(effort: Effort, what: str, size: int, sources: int, blocks: int) -> None:
    """Entries of one size, out of a region of so many blocks."""
    entry = size // BLOCK_BYTES
    names = [str(at) for at in range(sources)]
    pair = Pair(blocks, names, entry, entry * sources)
    many = OUTSTANDING[: effort.choose(3, 2, 1)]
    for outstanding in (it for it in many if it <= sources):
        slots = [list(range(at * entry, (at + 1) * entry)) for at in range(outstanding)]
        # The first meeting costs more: the peer's descriptor is registered.
        fetch(pair.reader, names[:1], slots[:1], 0.0)
        fetch(pair.reader, names, slots, 0.0, compared=True)
        watch = Watch()
        rate = fetch(pair.reader, names, slots, effort.choose(1.5, 0.3, 0.01), watch=watch)
        case = {"size_bytes": size, "outstanding": outstanding}
        for metric, value in (
            ("transfers_per_s", rate),
            ("gb_per_s", rate * entry * BLOCK_BYTES / 1e9),
            ("longest_call_cpu_ms", watch.longest_cpu_s * 1e3),
            ("given_up", watch.given_up),
        ):
            rows.row("transfers", what, case, metric, value)
    pair.close()


def spin() -> None:
    """Keeps a core busy until its parent is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(100_000):
            pass


def latency(effort: Effort) -> None:
    pair = Pair(20_000, ["0"], 1, 16)
    for busy in (False, True):
        spinning = [processes.Process(target=spin, daemon=True) for _ in range(cores() * busy)]
        for process in spinning:
            process.start()
        for step_ms in STEPS_MS[: effort.choose(4, 3, 1)]:
            times = wishes(pair, step_ms, effort)
            case = {"step_ms": step_ms, "busy_cores": busy}
            for metric, percent in (("p50", 50), ("p99", 99), ("max", 100)):
                value = percentile_ms(times, percent)
                rows.row("latency", "upstream", case, f"to_ready_{metric}_ms", value)
        for process in spinning:
            process.kill()
            process.join()
    pair.close()


def cores() -> int:
    return len(os.sched_getaffinity(0))


def wishes(pair: Pair, step_ms: int, effort: Effort) -> list[float]:
    """How long each took, in seconds: the producer is in steps of this length."""
    pair.producer.step(step_ms / 1e3)
    count = {0: 200, 50: 60, 500: 14, 2000: 6}[step_ms] // effort.choose(1, 4, 100) + 1
    times = []
    for at in range(count + 1):
        # A wish comes at any time of a step.
        time.sleep(random.random() * max(step_ms / 1e3, TICK_S))
        start = time.perf_counter()
        pair.reader.start("0", [0])
        while not ended(pair.reader.tick()):
            time.sleep(TICK_S)
        if at:
            times.append(time.perf_counter() - start)
    return times


def main(arguments: list[str]) -> None:
    parser = rows.parser(__doc__)
    parser.add_argument("family", choices=["transfers", "latency"])
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    {"transfers": transfers, "latency": latency}[chosen.family](Effort(chosen.effort))
