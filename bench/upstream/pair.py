"""Upstream's sessions in two processes, as its connector drives them: real ZMQ, real NIXL on DRAM.

The producer's engine polls its session once a step, and a step is as long as a batch takes; the
consumer's scheduler polls in steps of a millisecond. Bytes are compared apart from what is timed.
"""

import argparse
import logging
import multiprocessing
import random
import socket
import time
import uuid
from multiprocessing.connection import Connection
from typing import Any

from bench.upstream.common import BLOCK_BYTES, COMPAT, percentile_ms, region, row

TICK_S = 0.001
SIZES = (256 << 10, 2 << 20, 14 << 20, 64 << 20)
OUTSTANDING = (1, 16, 96)
STEPS_MS = (0, 50, 500, 2000)
# Region of a production instance of 1 GB; the descriptor of all its blocks travels in each ack.
LARGE_BLOCKS = 150_000
LEASE_S = 30


def data_transport(shared: Any, blocks: int) -> Any:
    """Upstream's NIXL transport over a region."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl import NixlDataTransport

    address = shared.blocks.data_ptr()
    name = f"bench-{uuid.uuid4()}"
    return NixlDataTransport(name, address, blocks, BLOCK_BYTES, blocks * BLOCK_BYTES)


def mark(name: str, block: int) -> int:
    """The byte that all bytes of this block of the entry have."""
    return (int(name) * 31 + block * 7) % 127


def serve(pipe: Connection, blocks: int, names: list[str], entry_blocks: int) -> None:
    """The producer: takes the length of its steps from the pipe until it is told to stop."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import ZmqServerTransport
    from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler import embedding_cache
    from vllm.distributed.ec_transfer.ec_connector.cpu.session import ProducerSession

    logging.disable(logging.WARNING)
    shared = region(blocks)
    cache = embedding_cache.EmbeddingCache(blocks)
    for name in names:
        entry = cache.alloc(name, entry_blocks)
        for at, block in enumerate(entry.block_ids):
            shared.blocks[block].fill_(mark(name, at))
        cache.mark_ready(name)
    data = data_transport(shared, blocks)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    session = ProducerSession(ZmqServerTransport("127.0.0.1", port), data, cache, COMPAT)
    pipe.send(port)
    step_s: float | None = 0.0
    while step_s is not None:
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


class Reader:
    """The consumer's side of one producer."""

    def __init__(self, port: int, blocks: int) -> None:
        from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import ZmqClientTransport
        from vllm.distributed.ec_transfer.ec_connector.cpu.session import ConsumerSession

        self.shared = region(blocks)
        self.data = data_transport(self.shared, blocks)
        self.control = ZmqClientTransport()
        self.address = ("127.0.0.1", port)
        connection = self.control.connect(self.address)
        self.session = ConsumerSession(self.address, connection, self.control, self.data, COMPAT)

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


class Pair:
    """A producer's process and its reader."""

    def __init__(self, blocks: int, names: list[str], entry_blocks: int, room: int) -> None:
        self.pipe, other = multiprocessing.Pipe()
        arguments = (other, blocks, names, entry_blocks)
        self.process = multiprocessing.Process(target=serve, args=arguments)
        self.process.start()
        self.reader = Reader(self.pipe.recv(), room)

    def step(self, seconds: float | None) -> None:
        self.pipe.send(seconds)
        self.pipe.recv()

    def close(self) -> None:
        self.step(None)
        self.reader.close()
        self.process.join(60)
        if self.process.is_alive():
            self.process.kill()


def ended(results: Any) -> list[str]:
    failed = [*results.tombstoned, *results.retryable, *results.quarantined]
    assert not failed, f"upstream gave up {failed}"
    return list(results.completed)


def fetch(
    reader: Reader,
    names: list[str],
    slots: list[list[int]],
    seconds: float,
    *,
    compared: bool = False,
) -> float:
    """Transfers a second, as many outstanding as there are slots."""
    free, waiting = list(range(len(slots))), list(names)
    running: dict[str, int] = {}
    done = 0
    start = time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or done < 3:
        for name in ended(reader.tick()):
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
        for name in ended(reader.tick()):
            del running[name]
        time.sleep(TICK_S)
    return done / elapsed


def transfers(quick: bool) -> None:
    seconds = 0.5 if quick else 3.0
    for size in SIZES[:3] if quick else SIZES:
        entry = size // BLOCK_BYTES + (size % BLOCK_BYTES > 0)
        sources = 24 if size >= 64 << 20 else 96
        names = [str(at) for at in range(sources)]
        small = entry * sources
        for blocks in {small, max(small, LARGE_BLOCKS)} if not quick else {small}:
            pair = Pair(blocks, names, entry, small)
            for outstanding in (many for many in OUTSTANDING if many <= sources):
                room = [list(range(at * entry, (at + 1) * entry)) for at in range(outstanding)]
                # The first meeting costs more: the peer's descriptor is registered.
                fetch(pair.reader, names[:1], room[:1], 0.0)
                fetch(pair.reader, names, room, 0.0, compared=True)
                rate = fetch(pair.reader, names, room, seconds)
                what = "large" if blocks > small else "small"
                case = {"size_bytes": size, "outstanding": outstanding, "region": what}
                row("transfers", case, "transfers_per_s", rate)
                row("transfers", case, "gb_per_s", rate * entry * BLOCK_BYTES / 1e9)
            pair.close()


def latency(quick: bool) -> None:
    pair = Pair(20_000, ["0"], 1, 16)
    for step_ms in STEPS_MS[:3] if quick else STEPS_MS:
        pair.step(step_ms / 1e3)
        times = []
        count = {0: 200, 50: 60, 500: 14, 2000: 6}[step_ms] // (4 if quick else 1)
        for at in range(count + 1):
            # A wish comes at any time of a step.
            time.sleep(random.random() * max(step_ms / 1e3, TICK_S))
            start = time.perf_counter()
            pair.reader.start("0", [0])
            while not ended(pair.reader.tick()):
                time.sleep(TICK_S)
            if at:
                times.append(time.perf_counter() - start)
        case = {"step_ms": step_ms, "busy_cores": False}
        for metric, percent in (("p50", 50), ("p99", 99), ("max", 100)):
            row("latency", case, f"to_ready_{metric}_ms", percentile_ms(times, percent))
    pair.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=["transfers", "latency"])
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    {"transfers": transfers, "latency": latency}[arguments.family](arguments.quick)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
