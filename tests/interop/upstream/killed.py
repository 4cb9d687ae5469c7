"""What is left of a Chiasm node after SIGKILL: nothing, as soon as another one starts (S9)."""

import os
import select
import signal
from pathlib import Path
from typing import Any, Self

from tests.cli.chiasm import Chiasm, Producer, Running
from tests.cli.nodes import until
from tests.cli.stopping import stands_still
from tests.interop.nixl.processes import LIMIT_S
from tests.interop.upstream.instances import (
    IDENTITY,
    Start,
    Upstream,
    content,
    produce,
    status,
    stored,
)
from tests.interop.upstream.waits import seen

BEFORE_REQUEST = "before the request"
BEFORE_ACK = "between request and ack"
BEFORE_READ = "between ack and read"
DURING_READ = "during the read"
AFTER_READ = "between read and completion"
STAGES = [BEFORE_REQUEST, BEFORE_ACK, BEFORE_READ, DURING_READ, AFTER_READ]


class Helper:
    """One helper process of a node."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)

    def stop(self) -> Self:
        signal.pidfd_send_signal(self.pidfd, signal.SIGSTOP)
        stands_still(self.pid)
        return self

    def go_on(self) -> None:
        signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)

    def kill(self) -> None:
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def has_ended(self) -> None:
        """Waits for its end: it or its node is dead."""
        ready, _, _ = select.select([self.pidfd], [], [], LIMIT_S)
        os.close(self.pidfd)
        assert ready, "a helper process has outlived its node"


def serve_helper(chiasm: Chiasm, node: Running) -> Helper:
    return Helper(status(chiasm, node.pid)["nixl"]["serve"]["process"])


def read_helper(chiasm: Chiasm, node: Running) -> Helper:
    (helper,) = status(chiasm, node.pid)["nixl"]["read"]
    return Helper(helper["process"])


def kill(node: Running) -> list[Path]:
    """SIGKILL, to a node that may be stopped; the region that is left."""
    regions = node.regions()
    node.signal(signal.SIGKILL)
    node.process.wait()
    assert len(regions) == 1
    return regions


def granted(chiasm: Chiasm, producer: Producer) -> dict[str, Any]:
    what = "a grant"
    return dict(
        seen(chiasm, producer.running.pid, what, lambda node: node["serving"]["grants"] == 1)
    )


class Fetching:
    """A Chiasm consumer on its way to "b", whose Chiasm producer is stopped.

    It has read "first" of an upstream producer, so that its helper is up; "late" of the same one,
    which is not ready, keeps it until the test is through.
    """

    def __init__(
        self, chiasm: Chiasm, store: Path, out: Path, keeper: Start, producer: Producer
    ) -> None:
        self.chiasm, self.store, self.out = chiasm, store, out
        self.keeper: Any = keeper(16)
        self.keeper.save("first", 3)
        self.keeper.save("late", 3, ready=False)
        params = {name: self.keeper.announcement(3) for name in ("first", "late")} | producer.params
        producer.running.signal(signal.SIGSTOP)
        self.running = chiasm.start_fetch(
            params,
            [producer.endpoint, self.keeper.endpoint],
            "--planes=nixl",
            "--read-timeout=5",
            "--log=debug",
            *IDENTITY,
            out=out,
        )
        try:
            until(lambda: self.arrived(1) or None, "the first entry")
        except AssertionError as error:
            error.add_note("\n".join(self.running.errors))
            raise
        self.helper = read_helper(chiasm, self.running)

    def node(self) -> dict[str, Any] | None:
        nodes = self.chiasm.run("status", "--json").json["nodes"]
        mine = [node for node in nodes if node["node"]["process"] == self.running.pid]
        return dict(mine[0]) if mine else None

    def arrived(self, entries: int) -> bool:
        """Whether so many have arrived; false before the node is up."""
        node = self.node()
        return bool(node and node["reading"]["counters"]["arrived"] == entries)

    def reads(self, stopped: bool) -> None:
        """Waits until the helper has been told to read; one that is stopped still has to load."""

        def told() -> bool | None:
            node = self.node()
            (helper,) = node["nixl"]["read"] if node else [{}]
            return helper.get("peers" if stopped else "reads") == (2 if stopped else 1) or None

        until(told, "a read")

    def landed(self) -> None:
        """Waits until the bytes of "b" are in the region."""
        (region,) = self.running.regions()
        data = stored(self.store, "b")
        until(lambda: data in region.read_bytes() or None, "the bytes")

    def ends(self) -> None:
        """All arrives, and nothing of the dead is kept (S4)."""

        def rests(node: dict[str, Any]) -> bool:
            reads = sum(it["reads"] for it in node["nixl"]["read"])
            done: bool = node["reading"]["counters"]["arrived"] == 2
            return done and node["blocks"]["quarantined"] + reads == 0

        seen(self.chiasm, self.running.pid, "two entries, no read, no quarantine", rests)
        self.keeper.ask("ready", hash="late")
        done = self.running.wait()
        assert done.verdicts() == dict.fromkeys(("first", "b", "late"), ("fetched", None)), done.err
        assert stored(self.out, "b") == stored(self.store, "b")
        for name in ("first", "late"):
            assert stored(self.out, name) == content(name, 3)


def restarted(chiasm: Chiasm, store: Path, killed: Producer, left: list[Path]) -> Producer:
    """The next life of a producer that was killed, which clears away what the last one left."""
    again = produce(chiasm, store, f"--listen={killed.endpoint}")
    assert [path for path in left if path.exists()] == []
    return again


def completes(consumer: Upstream, producer: Producer, name: str, blocks: list[int]) -> None:
    """An upstream consumer reads, as often as it takes."""
    word = ""
    while word != "completed":
        assert word in ("", "retryable", "tombstoned"), word
        consumer.ask("read", port=producer.port, hash=name, blocks=blocks)
        ((_, _, word),) = consumer.ask("result")
