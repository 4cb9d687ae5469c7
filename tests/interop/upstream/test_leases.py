"""What a grant promises when nobody says that it is done, and how upstream hears refusals."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm
from tests.cli.stopping import stop
from tests.interop.upstream.instances import IDENTITY, Start, produce, status
from tests.interop.upstream.test_their_consumer import write
from tests.interop.upstream.test_their_producer import fetch
from tests.interop.upstream.waits import at_rest, reads


def test_a_grant_whose_ack_was_lost_ends_with_its_lease(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=3), "--lease=2")
    consumer = upstream_consumer(16)
    consumer.ask("spoil_next", how="lose")
    consumer.read(producer, "a", [0, 1, 2], wait=1)
    assert consumer.result() == ("a", "retryable")
    counters = at_rest(chiasm, producer.running.pid)["serving"]["counters"]
    assert (counters["granted"], counters["expired"], counters["done"]) == (1, 1, 0)
    consumer.read(producer, "a", [3, 4, 5])
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", [3, 4, 5])


def test_a_request_that_is_repeated_renews_the_lease_and_one_completion_leaves_the_other_answer(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    """S8: nobody knows whether the lost ack was read under, so the grant lasts to its lease."""
    producer = produce(chiasm, write(store, a=3), "--lease=6")
    pid = producer.running.pid
    consumer = upstream_consumer(16)
    consumer.ask("spoil_next", how="lose")
    consumer.read(producer, "a", [0, 1, 2], wait=1)
    assert consumer.result() == ("a", "retryable")
    consumer.read(producer, "a", [3, 4, 5])
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", [3, 4, 5])
    serving = status(chiasm, pid)["serving"]
    assert (serving["grants"], serving["pinned_blocks"]) == (1, 3), "one pin for both answers"
    counters = at_rest(chiasm, pid)["serving"]["counters"]
    assert (counters["expired"], counters["done"]) == (1, 0)


def test_a_read_that_ends_after_its_lease_is_counted_and_ends_nothing(
    chiasm: Chiasm, store: Path, upstream_consumer: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over tcp a stopped helper holds the read up until the grant is gone."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    producer = produce(chiasm, write(store, a=3), "--lease=2")
    pid = producer.running.pid
    consumer, other = upstream_consumer(16), upstream_consumer(16)
    consumer.read(producer, "a", [0, 1, 2])
    assert consumer.result() == ("a", "completed")
    helper = status(chiasm, pid)["nixl"]["serve"]["process"]
    stop(helper)
    consumer.read(producer, "a", [3, 4, 5])
    reads(consumer)
    expired = at_rest(chiasm, pid)["serving"]["counters"]
    assert (expired["granted"], expired["done"], expired["expired"]) == (2, 1, 1)
    os.kill(helper, signal.SIGCONT)
    # Without a grant the helper makes no progress: somebody else's makes it go on.
    other.ask("spoil_next", how="lose")
    other.read(producer, "a", [0, 1, 2])
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", [3, 4, 5])
    counters = at_rest(chiasm, pid)["serving"]["counters"]
    assert (counters["done"], counters["expired"], counters["stray_completions"]) == (1, 2, 1)


def test_their_consumer_takes_each_refusal_by_its_name(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    consumer = upstream_consumer(16)
    producer = produce(chiasm, write(store, a=3))
    consumer.ask("speak_version", port=producer.port, version=3)
    consumer.read(producer, "a", [0, 1, 2])
    assert consumer.result() == ("a", "tombstoned")
    assert consumer.ask("statuses") == ["NACK_VERSION"]
    without = chiasm.produce(store, "--planes=tcp", *IDENTITY)
    consumer.read(without, "a", [0, 1, 2])
    assert consumer.result() == ("a", "tombstoned")
    assert consumer.ask("statuses") == ["NACK_VERSION", "NACK_INTERNAL"]
    consumer.ask("speak_version", port=producer.port, version=2)
    consumer.read(producer, "a", [0, 1, 2])
    assert consumer.result() == ("a", "completed"), "the session goes on"
    assert consumer.holds(store, "a", [0, 1, 2])
    refused = at_rest(chiasm, producer.running.pid)["serving"]["counters"]
    assert refused["granted"] == 1, refused


@pytest.mark.parametrize("name", ["NACK_VERSION", "NACK_INTERNAL"])
def test_their_producers_refusals_are_taken_by_their_names(
    name: str, chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(16)
    producer.save("a", 3)
    producer.ask("refuse", status=name)
    params = {"a": producer.announcement(3)}
    done = fetch(chiasm, params, producer, out=tmp_path / "out")
    assert done.verdicts() == {"a": ("unavailable", name.lower())}, done.err
