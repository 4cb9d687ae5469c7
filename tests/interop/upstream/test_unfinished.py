"""A Chiasm producer is killed after its ack, and an upstream consumer reads in its next step.

A read from a process that has just ended is the end of an upstream engine that knew it (hazard B3).
So a helper whose node is gone serves on what was granted. Nothing helps where the helper itself is
killed.
"""

from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm, Producer
from tests.interop.upstream.instances import Consumer, Start, produce
from tests.interop.upstream.killed import (
    Helper,
    completes,
    granted,
    kill,
    restarted,
    serve_helper,
)
from tests.interop.upstream.test_their_consumer import write
from tests.interop.upstream.waits import at_rest

ROWS = 32
BLOCKS = list(range(8, 8 + ROWS))
TLS = pytest.mark.parametrize("tls", [None, "tcp"], ids=["any", "tcp"])


def acked(
    chiasm: Chiasm, store: Path, upstream_consumer: Start, *flags: str, met: bool
) -> tuple[Producer, Helper, Consumer]:
    """An upstream engine is in the middle of a step, and the ack of its "b" waits in its socket.

    It has read from the producer, whose helper is the second of the three, before if they have met.
    """
    producer = produce(chiasm, write(store, a=3, b=ROWS), *flags)
    serving = serve_helper(chiasm, producer.running)
    consumer: Consumer = upstream_consumer(64)
    if met:
        consumer.read(producer, "a", [0, 1, 2])
        assert consumer.result() == ("a", "completed")
        at_rest(chiasm, producer.running.pid)
    consumer.ask("pause", on=True)
    consumer.read(producer, "b", BLOCKS)
    granted(chiasm, producer)
    return producer, serving, consumer


@TLS
@pytest.mark.parametrize("met", [False, True], ids=["first", "met"])
def test_hazard_b3_an_upstream_consumer_reads_what_a_producer_granted_that_is_killed(
    tls: str | None,
    met: bool,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if tls:
        monkeypatch.setenv("UCX_TLS", tls)
    producer, serving, consumer = acked(chiasm, store, upstream_consumer, met=met)
    left = kill(producer.running)
    consumer.ask("pause", on=False)
    name, word = consumer.result()
    # Quarantined, if it sees in that step that the connection is lost.
    assert word in ("completed", "quarantined")
    assert word == "quarantined" or consumer.holds(store, name, BLOCKS)
    again = restarted(chiasm, store, producer, left)
    serving.has_ended()
    completes(consumer, again, "a", [3, 4, 5])
    assert consumer.holds(store, "a", [3, 4, 5])
    at_rest(chiasm, again.running.pid)


def test_a_helper_of_a_killed_producer_ends_also_if_nobody_reads_and_none_is_started(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer, serving, _ = acked(chiasm, store, upstream_consumer, met=False)
    left = kill(producer.running)
    serving.has_ended()
    restarted(chiasm, store, producer, left)


@TLS
def test_a_first_read_from_a_serve_helper_that_is_killed_costs_no_engine(
    tls: str | None,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Upstream survives that it cannot get to know a producer."""
    if tls:
        monkeypatch.setenv("UCX_TLS", tls)
    producer, serving, consumer = acked(chiasm, store, upstream_consumer, met=False)
    serving.kill()
    serving.has_ended()
    producer.running.said("serving over nixl", times=2)
    consumer.ask("pause", on=False)
    assert consumer.result() == ("b", "tombstoned")
    completes(consumer, producer, "a", [0, 1, 2])
    assert consumer.holds(store, "a", [0, 1, 2])


@TLS
def test_hazard_b3_what_a_serve_helper_that_is_killed_does_to_an_engine_that_knows_it(
    tls: str | None,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the end of theirs; ours serves on."""
    if tls:
        monkeypatch.setenv("UCX_TLS", tls)
    other = upstream_consumer(64)
    producer, serving, consumer = acked(chiasm, store, upstream_consumer, "--lease=3", met=True)
    serving.kill()
    serving.has_ended()
    consumer.ask("pause", on=False)
    consumer.wait()
    producer.running.said("serving over nixl", times=2)
    completes(other, producer, "b", BLOCKS)
    assert other.holds(store, "b", BLOCKS)
    at_rest(chiasm, producer.running.pid)
