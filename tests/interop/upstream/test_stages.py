"""Who is stopped or killed at which stage of a read over NIXL, and what the other side makes of it.

S4: every block is in one state at every look. S8: what was granted stays until its lease ends.
Over tcp both ends have to work for a read, so that one that is stopped holds it in the middle.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chiasm import Chiasm, Running
from tests.cli.nodes import until
from tests.cli.stopping import stop
from tests.interop.upstream.instances import IDENTITY, Producer, Start, content, produce, stored
from tests.interop.upstream.killed import completes
from tests.interop.upstream.test_their_consumer import write
from tests.interop.upstream.waits import at_rest, kept, reads, seen

STAGES = ["before the ack", "between ack and read", "during the read", "after the read"]


@pytest.mark.parametrize("stage", STAGES)
def test_an_upstream_consumer_is_killed(
    stage: str,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    producer = produce(chiasm, write(store, a=3), "--lease=3")
    pid = producer.running.pid
    killed, other = upstream_consumer(16), upstream_consumer(16)
    helper = kept(chiasm, pid)["nixl"]["serve"]["process"]
    match stage:
        case "before the ack":
            producer.running.signal(signal.SIGSTOP)
            killed.read(producer, "a", [0, 1, 2])
        case "between ack and read":
            killed.ask("spoil_next", how="lose")
            killed.read(producer, "a", [0, 1, 2])
            seen(chiasm, pid, "a grant", lambda node: node["serving"]["grants"] == 1)
        case "during the read":
            stop(helper)
            killed.read(producer, "a", [0, 1, 2])
            reads(killed)
        case "after the read":
            killed.read(producer, "a", [0, 1, 2])
            assert killed.result() == ("a", "completed")
        case _:
            raise AssertionError(stage)
    killed.signal(signal.SIGKILL)
    killed.wait()
    if stage == "before the ack":
        producer.running.signal(signal.SIGCONT)
    serving = kept(chiasm, pid)["serving"]
    if stage in STAGES[1:3]:
        assert (serving["grants"], serving["pinned_blocks"]) == (1, 3), "its lease has not ended"
    if stage == "during the read":
        os.kill(helper, signal.SIGCONT)
    node = at_rest(chiasm, pid)
    assert node["blocks"]["evictable"] == 3, "the entry is still there"
    counters = node["serving"]["counters"]
    assert counters["done"] == (1 if stage == "after the read" else 0)
    # Where UCX could not bear the death, the helper has died, and another is up or soon will be.
    seen(chiasm, pid, "a helper", lambda node: node["nixl"]["serve"]["state"] == "up")
    other.read(producer, "a", [4, 5, 6])
    name, word = other.result()
    while word == "retryable":
        other.read(producer, "a", [4, 5, 6])
        name, word = other.result()
    assert (name, word) == ("a", "completed")
    assert other.holds(store, "a", [4, 5, 6])
    at_rest(chiasm, pid)


@pytest.mark.parametrize("whom", ["producer", "consumer", "serve helper"])
def test_what_is_stopped_and_goes_on_costs_nothing(
    whom: str,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    producer = produce(chiasm, write(store, a=3, b=3))
    pid = producer.running.pid
    consumer = upstream_consumer(16)
    helper = kept(chiasm, pid)["nixl"]["serve"]["process"]
    stopped = {"producer": pid, "consumer": consumer.pid, "serve helper": helper}[whom]
    if whom == "consumer":
        stop(helper)
        consumer.read(producer, "a", [0, 1, 2])
        reads(consumer)
        stop(consumer.pid)
        os.kill(helper, signal.SIGCONT)
        node = kept(chiasm, pid)
        assert node["serving"]["grants"] == 1, "nobody can have said that it is done"
    else:
        stop(stopped)
        consumer.read(producer, "a", [0, 1, 2])
        if whom == "serve helper":
            reads(consumer)
    os.kill(stopped, signal.SIGCONT)
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", [0, 1, 2])
    node = at_rest(chiasm, pid)
    assert node["nixl"]["serve"]["deaths"] == 0
    assert node["serving"]["counters"]["done"] == 1


@pytest.mark.parametrize("tls", [None, "tcp"], ids=["any", "tcp"])
def test_a_serve_helper_that_hangs_is_ended_and_another_serves(
    tls: str | None,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tls:
        monkeypatch.setenv("UCX_TLS", tls)
    producer = produce(chiasm, write(store, a=3, b=3))
    pid = producer.running.pid
    consumer, later = upstream_consumer(16), upstream_consumer(16)
    consumer.read(producer, "a", [0, 1, 2])
    assert consumer.result() == ("a", "completed")
    at_rest(chiasm, pid)
    helper = kept(chiasm, pid)["nixl"]["serve"]["process"]
    stop(helper)
    consumer.ask("spoil_next", how="lose")
    consumer.read(producer, "b", [3, 4, 5], wait=1)
    producer.running.said("the NIXL serve helper hangs")
    producer.running.said("serving over nixl", times=2)
    node = kept(chiasm, pid)
    assert node["nixl"]["serve"]["process"] != helper
    assert node["nixl"]["serve"]["deaths"] == 1
    assert node["serving"]["grants"] == 1, "S8: what it was granted through ends with the lease"
    for reader, blocks in ((later, [0, 1, 2]), (consumer, [6, 7, 8])):
        reader.read(producer, "a", blocks)
        result = reader.result()
        while result[1] == "retryable":
            if result[0] == "a":
                reader.read(producer, "a", blocks)
            result = reader.result()
        assert result == ("a", "completed")
        assert reader.holds(store, "a", blocks)


def test_a_serve_helper_that_hangs_is_ended_in_the_middle_of_an_upstream_read(
    chiasm: Chiasm, store: Path, upstream_consumer: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    producer = produce(chiasm, write(store, a=3, b=32))
    pid = producer.running.pid
    consumer = upstream_consumer(80)
    consumer.read(producer, "a", [0, 1, 2])
    assert consumer.result() == ("a", "completed")
    at_rest(chiasm, pid)
    helper = kept(chiasm, pid)["nixl"]["serve"]["process"]
    stop(helper)
    consumer.read(producer, "b", list(range(8, 40)))
    reads(consumer)
    producer.running.said("the NIXL serve helper hangs")
    producer.running.said("serving over nixl", times=2)
    assert consumer.result() in [("b", "retryable"), ("b", "tombstoned"), ("b", "quarantined")]
    serve = kept(chiasm, pid)["nixl"]["serve"]
    assert (serve["process"] != helper, serve["deaths"]) == (True, 1)
    # Not into the same blocks: what was lost may still be written.
    for name, blocks in (("b", list(range(48, 80))), ("a", [3, 4, 5])):
        completes(consumer, producer, name, blocks)
        assert consumer.holds(store, name, blocks)
    assert kept(chiasm, pid)["nixl"]["serve"]["deaths"] == 1


class Reading:
    """A Chiasm consumer whose second read, of "b", is where a test wants it to be.

    "late" is of another producer, and not ready: it keeps the consumer until the test is through.
    """

    def __init__(self, chiasm: Chiasm, out: Path, upstream_producer: Start) -> None:
        self.chiasm, self.out = chiasm, out
        self.producer: Producer = upstream_producer(64)
        self.keeper: Producer = upstream_producer(16)
        self.producer.save("a", 3)
        self.producer.save("b", 32, ready=False)
        self.keeper.save("late", 3, ready=False)
        params = {
            "a": self.producer.announcement(3),
            "b": self.producer.announcement(32),
            "late": self.keeper.announcement(3),
        }
        allow = [self.producer.endpoint, self.keeper.endpoint]
        more = ["--planes=nixl", "--budget=30", "--read-timeout=10", "--log=debug", *IDENTITY]
        self.running: Running = chiasm.start_fetch(params, allow, *more, out=out)
        self.running.said("reading over nixl")
        node = self.sees("one entry", lambda node: node["reading"]["counters"]["arrived"] == 1)
        self.helper = node["nixl"]["read"][0]["process"]

    def granted(self) -> None:
        """The ack of "b" is here, and no read has begun: the helper is stopped."""
        stop(self.helper)
        self.producer.ask("ready", hash="b")
        self.sees("a read", lambda node: [it["reads"] for it in node["nixl"]["read"]] == [1])

    def landed(self) -> None:
        """Waits until the bytes of "b" are in the region."""
        (region,) = self.running.regions()
        data = content("b", 32)
        until(lambda: data in region.read_bytes() or None, "the bytes")

    def sees(self, what: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        return dict(seen(self.chiasm, self.running.pid, what, holds))

    def begun(self) -> None:
        """The read of "b" is in the middle: its producer is stopped."""
        self.granted()
        self.producer.signal(signal.SIGSTOP)
        os.kill(self.helper, signal.SIGCONT)

    def ends(self) -> dict[str, tuple[str, str | None]]:
        """All is over but "late", which arrives; nothing of the dead is kept (S4)."""
        self.sees(
            "no read and no quarantine",
            lambda node: (
                node["blocks"]["quarantined"] + sum(it["reads"] for it in node["nixl"]["read"]) == 0
            ),
        )
        self.keeper.ask("ready", hash="late")
        done = self.running.wait()
        verdicts = done.verdicts()
        assert verdicts["a"] == verdicts["late"] == ("fetched", None), done.err
        assert stored(self.out, "a") == content("a", 3)
        assert stored(self.out, "late") == content("late", 3)
        if verdicts["b"][0] == "fetched":
            assert stored(self.out, "b") == content("b", 32)
        return verdicts


@pytest.mark.parametrize("stage", STAGES)
def test_an_upstream_producer_is_killed(
    stage: str,
    chiasm: Chiasm,
    tmp_path: Path,
    upstream_producer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    reading = Reading(chiasm, tmp_path / "out", upstream_producer)
    match stage:
        case "before the ack":
            reading.producer.ask("pause", on=True)
        case "between ack and read":
            reading.granted()
        case "during the read":
            reading.begun()
        case "after the read":
            reading.producer.ask("ready", hash="b")
            reading.sees("two entries", lambda node: node["reading"]["counters"]["arrived"] == 2)
        case _:
            raise AssertionError(stage)
    reading.producer.signal(signal.SIGKILL)
    reading.producer.wait()
    kept(chiasm, reading.running.pid)
    if stage == "between ack and read":
        os.kill(reading.helper, signal.SIGCONT)
    verdict, _ = reading.ends()["b"]
    assert verdict == ("fetched" if stage == "after the read" else "unavailable")


@pytest.mark.parametrize("whom", ["producer", "consumer", "read helper"])
def test_a_read_goes_on_with_who_was_stopped(
    whom: str,
    chiasm: Chiasm,
    tmp_path: Path,
    upstream_producer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    reading = Reading(chiasm, tmp_path / "out", upstream_producer)
    if whom == "read helper":
        reading.granted()
        kept(chiasm, reading.running.pid)
        os.kill(reading.helper, signal.SIGCONT)
    else:
        reading.begun()
        kept(chiasm, reading.running.pid)
        if whom == "consumer":
            reading.running.signal(signal.SIGSTOP)
        reading.producer.signal(signal.SIGCONT)
        if whom == "consumer":
            reading.running.signal(signal.SIGCONT)
    assert reading.ends()["b"] == ("fetched", None)
