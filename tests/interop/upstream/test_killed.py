"""A Chiasm node is killed at each stage of a read over NIXL.

The other side lives, keeps nothing of it, and goes on with its next life.

Over tcp both ends have to work for a read, so that a helper that is stopped holds it in the middle.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm
from tests.interop.upstream.instances import IDENTITY, Start, content, produce, stored
from tests.interop.upstream.killed import (
    AFTER_READ,
    BEFORE_ACK,
    BEFORE_READ,
    BEFORE_REQUEST,
    DURING_READ,
    STAGES,
    Fetching,
    Helper,
    completes,
    granted,
    kill,
    restarted,
    serve_helper,
)
from tests.interop.upstream.sockets import asked
from tests.interop.upstream.test_stages import Reading
from tests.interop.upstream.test_their_consumer import write
from tests.interop.upstream.waits import at_rest, reads, seen

ROWS = 32


@pytest.fixture(autouse=True)
def over_tcp(monkeypatch: pytest.MonkeyPatch, nixl_is_there: None) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")


@pytest.mark.parametrize("stage", STAGES)
def test_a_producer_is_killed_and_its_chiasm_consumer_reads_from_its_next_life(
    stage: str, chiasm: Chiasm, store: Path, tmp_path: Path, upstream_producer: Start
) -> None:
    fault = ["--fault=late-ack:1000"] if stage == BEFORE_ACK else []
    producer = produce(chiasm, write(store, b=ROWS), *fault)
    serving = serve_helper(chiasm, producer.running)
    reading = Fetching(chiasm, store, tmp_path / "out", upstream_producer, producer)
    if stage in (BEFORE_READ, AFTER_READ):
        reading.helper.stop()
    if stage == DURING_READ:
        serving.stop()
    if stage != BEFORE_REQUEST:
        producer.running.signal(signal.SIGCONT)
        granted(chiasm, producer)
    if stage in (BEFORE_READ, DURING_READ, AFTER_READ):
        reading.reads(stopped=stage != DURING_READ)
    if stage == AFTER_READ:
        producer.running.signal(signal.SIGSTOP)
        reading.helper.go_on()
        reading.landed()
    left = kill(producer.running)
    if stage == BEFORE_READ:
        reading.helper.go_on()
    serving.go_on()
    if stage in (BEFORE_READ, DURING_READ):
        reading.landed()
    again = restarted(chiasm, store, producer, left)
    serving.has_ended()
    reading.ends()
    reading.helper.has_ended()
    counters = at_rest(chiasm, again.running.pid)["serving"]["counters"]
    # What was granted is read of the helper that the dead one has left.
    once_more = stage in (BEFORE_REQUEST, BEFORE_ACK)
    assert counters["done"] == counters["granted"] == (1 if once_more else 0)


@pytest.mark.parametrize("stage", STAGES)
def test_a_consumer_is_killed_and_its_chiasm_producer_serves_its_next_life(
    stage: str, chiasm: Chiasm, store: Path, tmp_path: Path, upstream_producer: Start
) -> None:
    slow = ["--fault=late-ack:8", "--lease=12"]
    more = slow if stage == BEFORE_ACK else ["--lease=3"]
    producer = produce(chiasm, write(store, b=ROWS), *more)
    pid = producer.running.pid
    serving = serve_helper(chiasm, producer.running)
    reading = Fetching(chiasm, store, tmp_path / "killed", upstream_producer, producer)
    if stage == BEFORE_READ:
        reading.helper.stop()
    if stage in (DURING_READ, AFTER_READ):
        serving.stop()
    if stage != BEFORE_REQUEST:
        producer.running.signal(signal.SIGCONT)
    if stage == BEFORE_ACK:
        granted(chiasm, producer)
    if stage in (BEFORE_READ, DURING_READ, AFTER_READ):
        reading.reads(stopped=stage == BEFORE_READ)
    if stage == AFTER_READ:
        reading.running.signal(signal.SIGSTOP)
        serving.go_on()
        reading.landed()
    left = kill(reading.running)
    reading.helper.go_on()
    producer.running.signal(signal.SIGCONT)
    serving.go_on()
    reading.helper.has_ended()
    node = at_rest(chiasm, pid)
    assert node["blocks"]["evictable"] == ROWS, "the entry is still there"
    counters = node["serving"]["counters"]
    asked = 0 if stage == BEFORE_REQUEST else 1
    assert (counters["granted"], counters["expired"], counters["done"]) == (asked, asked, 0)
    # Where UCX could not bear the death, the helper has died, and another is up or soon will be.
    seen(chiasm, pid, "a helper", lambda node: node["nixl"]["serve"]["state"] == "up")
    out = tmp_path / "out"
    done = chiasm.fetch(producer.params, producer.endpoint, "--planes=nixl", *IDENTITY, out=out)
    assert done.verdicts() == {"b": ("fetched", None)}, done.err
    assert stored(out, "b") == stored(store, "b")
    assert [path for path in left if path.exists()] == []
    at_rest(chiasm, pid)


@pytest.mark.parametrize("stage", [BEFORE_REQUEST, BEFORE_ACK, DURING_READ, AFTER_READ])
def test_a_producer_is_killed_and_an_upstream_consumer_reads_from_its_next_life(
    stage: str, chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    """Between ack and read: see test_unfinished.py."""
    fault = ["--fault=late-ack:1000"] if stage == BEFORE_ACK else []
    producer = produce(chiasm, write(store, b=ROWS), *fault)
    serving = serve_helper(chiasm, producer.running)
    consumer = upstream_consumer(2 * ROWS)
    blocks = list(range(ROWS))
    if stage in (DURING_READ, AFTER_READ):
        serving.stop()
    if stage != BEFORE_REQUEST:
        consumer.read(producer, "b", blocks, wait=3)
        granted(chiasm, producer)
    if stage in (DURING_READ, AFTER_READ):
        reads(consumer)
    if stage == AFTER_READ:
        producer.running.signal(signal.SIGSTOP)
        serving.go_on()
        assert consumer.result() == ("b", "completed")
    left = kill(producer.running)
    serving.go_on()
    if stage == BEFORE_REQUEST:
        consumer.read(producer, "b", blocks, wait=1)
    if stage == DURING_READ:
        # Quarantined, if it sees first that the connection is lost.
        assert consumer.result()[1] in ("completed", "quarantined")
    elif stage != AFTER_READ:
        assert consumer.result()[1] in ("retryable", "tombstoned")
    again = restarted(chiasm, store, producer, left)
    serving.has_ended()
    # Not the same ones: what was lost may still be written to.
    other = list(range(ROWS, 2 * ROWS))
    completes(consumer, again, "b", other)
    assert consumer.holds(store, "b", other)
    if stage == AFTER_READ:
        assert consumer.holds(store, "b", blocks)
    at_rest(chiasm, again.running.pid)


@pytest.mark.parametrize("stage", [BEFORE_ACK, BEFORE_READ, DURING_READ, AFTER_READ])
def test_a_consumer_is_killed_and_its_upstream_producer_serves_its_next_life(
    stage: str,
    chiasm: Chiasm,
    tmp_path: Path,
    upstream_producer: Start,
) -> None:
    reading = Reading(chiasm, tmp_path / "killed", upstream_producer)
    helper = Helper(reading.helper)
    if stage == BEFORE_ACK:
        reading.producer.ask("pause", on=True)
    elif stage == BEFORE_READ:
        reading.granted()
    elif stage == DURING_READ:
        reading.begun()
        asked(reading.producer.pid, by=reading.helper)
    else:
        assert stage == AFTER_READ
        reading.granted()
        reading.running.signal(signal.SIGSTOP)
        helper.go_on()
        reading.landed()
    left = kill(reading.running)
    helper.go_on()
    # The helper goes on with it: over tcp its end would be that of the upstream engine, too.
    reading.producer.signal(signal.SIGCONT)
    helper.has_ended()
    reading.producer.ask("pause", on=False)
    if stage in (BEFORE_READ, DURING_READ, AFTER_READ):
        assert reading.producer.ask("grants") == 0, "it was told that it has been read"
    if stage == BEFORE_ACK:
        reading.producer.ask("ready", hash="b")
    out = tmp_path / "out"
    params = {"b": reading.producer.announcement(ROWS)}
    allow = reading.producer.endpoint
    done = chiasm.fetch(params, allow, "--planes=nixl", *IDENTITY, out=out)
    assert done.verdicts() == {"b": ("fetched", None)}, done.err
    assert stored(out, "b") == content("b", ROWS)
    assert [path for path in left if path.exists()] == []


def test_a_read_helper_is_killed_in_the_middle_and_its_node_goes_on_whatever_upstream_does(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    """UCX ends the upstream producer then, more often than not: nobody else could help it."""
    reading = Reading(chiasm, tmp_path / "out", upstream_producer)
    helper = Helper(reading.helper)
    reading.begun()
    asked(reading.producer.pid, by=reading.helper)
    helper.kill()
    helper.has_ended()
    reading.producer.signal(signal.SIGCONT)
    verdict, _ = reading.ends()["b"]
    assert verdict in ("fetched", "unavailable")


@pytest.mark.parametrize("whom", ["serve helper", "read helper"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_helper_is_killed_and_the_read_goes_through_the_next_one(
    stage: str, whom: str, chiasm: Chiasm, store: Path, tmp_path: Path, upstream_producer: Start
) -> None:
    """Both nodes live, keep nothing of it, and the entry arrives."""
    fault = ["--fault=late-ack:2"] if stage == BEFORE_ACK else []
    producer = produce(chiasm, write(store, b=ROWS), "--lease=5", *fault)
    serving = serve_helper(chiasm, producer.running)
    reading = Fetching(chiasm, store, tmp_path / "out", upstream_producer, producer)
    victim = {"serve helper": serving, "read helper": reading.helper}[whom]
    if stage == BEFORE_READ:
        reading.helper.stop()
    if stage in (DURING_READ, AFTER_READ):
        serving.stop()
    if stage != BEFORE_REQUEST:
        producer.running.signal(signal.SIGCONT)
        granted(chiasm, producer)
    if stage in (BEFORE_READ, DURING_READ, AFTER_READ):
        reading.reads(stopped=stage == BEFORE_READ)
    # Whose helper it is has the bytes, or has sent them, and does not know it yet.
    owner = producer.running if whom == "serve helper" else reading.running
    if stage == AFTER_READ:
        owner.signal(signal.SIGSTOP)
        serving.go_on()
        reading.landed()
    victim.kill()
    for other in (serving, reading.helper):
        if other is not victim:
            other.go_on()
            os.close(other.pidfd)
    owner.signal(signal.SIGCONT)
    producer.running.signal(signal.SIGCONT)
    victim.has_ended()
    reading.ends()
    node = at_rest(chiasm, producer.running.pid)
    assert node["blocks"]["evictable"] == ROWS, "the entry is still there"
    assert node["nixl"]["serve"]["deaths"] >= (whom == "serve helper")
    seen(chiasm, producer.running.pid, "a helper", lambda it: it["nixl"]["serve"]["state"] == "up")


@pytest.mark.parametrize("whom", ["producer", "consumer", "serve helper", "read helper"])
def test_whoever_is_stopped_in_a_read_between_chiasm_nodes_and_goes_on_costs_nothing(
    whom: str, chiasm: Chiasm, store: Path, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = produce(chiasm, write(store, b=ROWS))
    serving = serve_helper(chiasm, producer.running)
    reading = Fetching(chiasm, store, tmp_path / "out", upstream_producer, producer)
    serving.stop()
    producer.running.signal(signal.SIGCONT)
    reading.reads(stopped=False)
    match whom:
        case "producer":
            producer.running.signal(signal.SIGSTOP)
            serving.go_on()
            reading.landed()
            producer.running.signal(signal.SIGCONT)
        case "consumer":
            reading.running.signal(signal.SIGSTOP)
            serving.go_on()
            reading.landed()
            reading.running.signal(signal.SIGCONT)
        case "serve helper":
            serving.go_on()
        case "read helper":
            reading.helper.stop()
            serving.go_on()
            granted(chiasm, producer)
            reading.helper.go_on()
        case _:
            raise AssertionError(whom)
    reading.ends()
    reading.helper.has_ended()
    node = at_rest(chiasm, producer.running.pid)
    counters = node["serving"]["counters"]
    assert (counters["granted"], counters["done"], counters["expired"]) == (1, 1, 0)
    assert node["nixl"]["serve"]["deaths"] == 0


def test_a_serve_helper_that_hangs_costs_its_chiasm_reader_a_retry(
    chiasm: Chiasm, store: Path, tmp_path: Path, upstream_producer: Start
) -> None:
    """Both sides act: the reader gives the read up, the producer ends the helper."""
    producer = produce(chiasm, write(store, b=ROWS))
    serving = serve_helper(chiasm, producer.running)
    reading = Fetching(chiasm, store, tmp_path / "out", upstream_producer, producer)
    serving.stop()
    producer.running.signal(signal.SIGCONT)
    reading.reads(stopped=False)
    producer.running.said("the NIXL serve helper hangs")
    serving.has_ended()
    producer.running.said("serving over nixl", times=2)
    reading.ends()
    reading.helper.has_ended()
    assert at_rest(chiasm, producer.running.pid)["nixl"]["serve"]["deaths"] == 1
