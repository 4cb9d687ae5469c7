"""Reads through a NIXL helper process, beside a bare NIXL read and upstream's transport.

One read at a time on one host, blocks of 7168 bytes, all four kinds in turn. Chiasm's entries are
contiguous and are one piece; a bare read is one descriptor between two Python agents without
progress threads, and without a notification: with one it would last until the other side looks,
every millisecond, and be no bound. Upstream's transport has one descriptor a block. Needs, in
CHIASM_NIXL_DRIVE, what `cargo build --release -p chiasm-nixl --example drive` makes.
"""

import random
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from bench.apart import processes
from bench.rows import Effort, parser, row
from bench.upstream.transport import serve
from tests.interop.nixl.processes import BLOCK, Helper, Lines, Peer, pattern

# 64 MiB at most: those of `transfers`, and some that are round.
SIZES = (1, 36, 256, 292, 1024, 2048, 4096, 9362)
# Sizes of `transfers`, in bytes, by their blocks: a bare read is a bound there.
BOUNDS = {36: 256 << 10, 292: 2 << 20, 2048: 14 << 20, 9362: 64 << 20}


class Upstream:
    """Upstream's transport in a process of its own."""

    def __init__(self, name: str, blocks: int) -> None:
        self.pipe, other = processes.Pipe()
        arguments = (other, name, blocks, BLOCK)
        self.process = processes.Process(target=serve, args=arguments, daemon=True)
        self.process.start()
        other.close()
        self.about: dict[str, str] = self.pipe.recv()

    def ask(self, operation: str, /, **arguments: object) -> Any:
        self.pipe.send((operation, arguments))
        return self.pipe.recv()

    def close(self) -> None:
        self.process.kill()
        self.process.join()


class Fleet:
    """All of the processes."""

    def __init__(self, folder: Path, blocks: int) -> None:
        self.running: list[Lines | Upstream] = []
        self.blocks = blocks
        try:
            self.source: Upstream = self.add(Upstream("source", blocks))
            self.sink: Upstream = self.add(Upstream("sink", blocks))
            self.helper: Helper = self.add(Helper("read", folder, blocks)).up()
            self.producer: Peer = self.add(Peer("producer", blocks))
            self.producer.fill(pattern(blocks))
            self.reader: Peer = self.add(Peer("reader", blocks))
            self.helper.load(self.producer)
            self.helper.event("Loaded")
            self.reader.ask("load", metadata=self.producer.metadata.hex())
            self.sink.ask("add", **self.source.about)
        except BaseException:
            self.close()
            raise

    def add(self, process: Any) -> Any:
        self.running.append(process)
        return process

    def close(self) -> None:
        for process in reversed(self.running):
            process.close()

    def reads(self, blocks: int, scattered: list[int]) -> dict[str, float]:
        """One read of each kind, in turn: seconds."""
        whole = [(self.producer.address, blocks * BLOCK)]
        read = {
            "read": 7,
            "peer": 1,
            "local": [(0, blocks * BLOCK)],
            "remote": whole,
            "span": self.producer.span,
            "notification": "session:hash",
        }
        self.helper.say({"read": read, "repeat": 1})
        (helper,) = self.helper.line()["took_s"]
        bare = self.reader.ask(
            "transfer",
            operation="READ",
            agent="producer",
            local=[(0, blocks * BLOCK)],
            remote=whole,
            note="",
        )
        order = list(range(blocks))
        took = {"chiasm nixl helper": helper, "bare NIXL read": bare["took_s"]}
        for what, indices in (("upstream", order), ("upstream, scattered", scattered)):
            (took[what],) = self.sink.ask("read", local=order, remote=indices[:blocks], repeat=1)
        return took


def main(arguments: list[str]) -> None:
    effort = Effort(parser(__doc__).parse_args(arguments).effort)
    sizes = SIZES[:2] if effort.is_smoke else SIZES
    scattered = list(range(sizes[-1]))
    random.Random(1).shuffle(scattered)
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="chiasm-bench-") as folder:
        fleet = Fleet(Path(folder), sizes[-1])
        try:
            for blocks in sizes:
                columns: dict[str, list[float]] = {}
                for _ in range(effort.choose(30, 8, 1)):
                    for what, seconds in fleet.reads(blocks, scattered).items():
                        columns.setdefault(what, []).append(seconds)
                say(blocks, columns)
            assert bytes(fleet.helper.blocks) == pattern(sizes[-1]), "wrong bytes"
        finally:
            fleet.close()


def say(blocks: int, columns: dict[str, list[float]]) -> None:
    for what, seconds in columns.items():
        case = {"blocks": blocks, "bytes": blocks * BLOCK}
        row("nixl", what, case, "minimum_ms", min(seconds) * 1e3)
        row("nixl", what, case, "median_ms", median(seconds) * 1e3)
    if blocks in BOUNDS:
        each = median(columns["bare NIXL read"])
        case = {"size_bytes": BOUNDS[blocks], "outstanding": 1}
        row("transfers", "bare NIXL read", case, "transfers_per_s", 1 / each)
        row("transfers", "bare NIXL read", case, "gb_per_s", blocks * BLOCK / each / 1e9)
