"""Measures reads through a NIXL helper process beside a bare NIXL read and upstream's transport.

All in one run, on one host, one read at a time, blocks of 7168 bytes. Chiasm's entries are
contiguous and are one piece; a bare read is one descriptor between two Python agents without
progress threads; upstream's transport has one descriptor a block. Needs `make vllm` and, in
CHIASM_NIXL_DRIVE, what `cargo build --release -p chiasm-nixl --example drive` makes.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.interop.nixl.processes import BLOCK, HERE, Helper, Lines, Peer, environment, pattern

BLOCKS = 9363  # 64 MiB
SIZES = [1, 256, 1024, 4096, BLOCKS]
REPEAT = int(os.environ.get("REPEAT", "30"))


class Upstream(Lines):
    def __init__(self, name: str) -> None:
        super().__init__([environment() / "bin/python", HERE / "upstream.py"], None)
        self.say({"op": "start", "name": name, "blocks": BLOCKS, "block_bytes": BLOCK})
        self.about = self.line()["answer"]

    def ask(self, operation: str, /, **arguments: object) -> object:
        self.say({"op": operation, **arguments})
        return self.line()["answer"]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown(took: list[float]) -> str:
    return f"{min(took) * 1e3:9.3f} {statistics.median(took) * 1e3:9.3f}"


def main() -> None:
    running: list[Lines] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="chiasm-measure-") as folder:
        try:
            helper = Helper("read", Path(folder), BLOCKS).up()
            running.append(helper)
            producer = Peer("producer", BLOCKS)
            running.append(producer)
            producer.fill(pattern(BLOCKS))
            reader = Peer("reader", BLOCKS)
            running.append(reader)
            helper.load(producer)
            helper.event("Loaded")
            reader.ask("load", metadata=producer.metadata.hex())
            source, sink = Upstream("source"), Upstream("sink")
            running += [source, sink]
            sink.ask("add", **source.about)
            measure(helper, producer, reader, sink)
            assert bytes(helper.blocks) == pattern(BLOCKS), "wrong bytes"
            serving = Helper("serve:idle_dp0", Path(folder), BLOCKS, name="chiasm-idle").up()
            running.append(serving)
            idle(helper, serving)
        finally:
            for process in reversed(running):
                process.close()


def measure(helper: Helper, producer: Peer, reader: Peer, sink: Upstream) -> None:
    print(f"minimum and median of {REPEAT} reads, ms")
    print(f"{'blocks':>7}{'helper':>20}{'bare':>20}{'upstream, in order':>20}{'scattered':>20}")
    scattered = list(range(BLOCKS))
    random.Random(1).shuffle(scattered)
    for blocks in SIZES:
        order = list(range(blocks))
        read = {
            "read": 7,
            "peer": 1,
            "local": [(0, blocks * BLOCK)],
            "remote": [(producer.address, blocks * BLOCK)],
            "span": producer.span,
            "notification": "session:hash",
        }
        columns: list[list[float]] = [[], [], [], []]
        # In turn, so that whatever else the machine does hits all of them.
        for _ in range(REPEAT):
            helper.say({"read": read, "repeat": 1})
            columns[0] += helper.line()["took_s"]
            bare = reader.ask(
                "transfer",
                operation="READ",
                agent="producer",
                local=[(0, blocks * BLOCK)],
                remote=[(producer.address, blocks * BLOCK)],
                note="session:hash",
            )
            columns[1].append(bare["took_s"])
            for column, indices in ((2, order), (3, scattered[:blocks])):
                took = sink.ask("read", local=order, remote=indices, repeat=1)
                columns[column] += took
        print(f"{blocks:7}" + "".join(f" {shown(column)}" for column in columns))


def idle(*helpers: Helper) -> None:
    """CPU of helpers that nobody asks for anything, over ten seconds."""
    before = [cpu_s(helper.id) for helper in helpers]
    time.sleep(10)
    used = [cpu_s(helper.id) - was for helper, was in zip(helpers, before, strict=True)]
    print("idle for 10 s: CPU seconds of read, serve:", *(f"{it:.2f}" for it in used))
    helpers[1].say({"Live": True})
    before_s = cpu_s(helpers[1].id)
    time.sleep(10)
    print(f"serve with a live grant for 10 s: {cpu_s(helpers[1].id) - before_s:.2f} CPU seconds")


if __name__ == "__main__":
    main()
