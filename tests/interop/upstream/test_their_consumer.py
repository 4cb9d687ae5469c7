"""Upstream's unmodified consumer reads from a Chiasm producer."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.interop.upstream.instances import IDENTITY, Start, produce, status


def write(store: Path, **rows: int) -> Path:
    """A store of encodings of so many rows of one block each."""
    for name, count in rows.items():
        stores.write(store, name, (count, 512))
    return store


@pytest.mark.parametrize("rows", [1, 2, 64, 4096])
def test_entries_of_any_size_arrive_byte_for_byte(
    rows: int, chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=rows))
    consumer = upstream_consumer(rows)
    blocks = list(range(rows))
    consumer.read(producer, "a", blocks)
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", blocks)
    counters = released(chiasm, producer.running.pid)
    assert counters["done"] == 1, "the completion has ended the grant"


def released(chiasm: Chiasm, pid: int) -> dict[str, int]:
    """Waits until no grant is live, and gives the counters."""
    while True:
        serving = status(chiasm, pid)["serving"]
        if serving["grants"] == 0:
            assert serving["pinned_blocks"] == 0
            return dict(serving["counters"])


def test_blocks_of_the_reader_may_lie_anywhere(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=16))
    consumer = upstream_consumer(64)
    blocks = list(range(60, 28, -2))
    consumer.read(producer, "a", blocks)
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", blocks)


def test_the_list_is_sent_until_a_read_is_complete_and_many_may_be_asked_for_at_once(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    names = {f"h{number}": 4 for number in range(8)}
    producer = produce(chiasm, write(store, **names))
    consumer = upstream_consumer(64)
    for number, name in enumerate(names):
        consumer.read(producer, name, list(range(4 * number, 4 * number + 4)))
    assert dict(consumer.result() for _ in names) == dict.fromkeys(names, "completed")
    for number, name in enumerate(names):
        assert consumer.holds(store, name, list(range(4 * number, 4 * number + 4)))
    first = released(chiasm, producer.running.pid)["full_lists"]
    assert 1 <= first <= 8
    consumer.read(producer, "h0", [40, 41, 42, 43])
    assert consumer.result() == ("h0", "completed")
    assert consumer.holds(store, "h0", [40, 41, 42, 43])
    assert released(chiasm, producer.running.pid)["full_lists"] == first, "it is known now"


@pytest.mark.parametrize("spoiled", ["lose", "damage", "late"])
def test_after_a_first_ack_that_came_to_nothing_reads_succeed(
    spoiled: str, chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    """Lost on its way, later than the consumer waits, or with a list that it cannot take."""
    producer = produce(chiasm, write(store, a=3, b=3))
    consumer = upstream_consumer(16)
    if spoiled == "late":
        consumer.read(producer, "a", [0, 1, 2], wait=0)
        assert consumer.result() == ("a", "retryable")
    else:
        consumer.ask("spoil_next", how=spoiled)
        consumer.read(producer, "a", [0, 1, 2], wait=3)
        expected = {"lose": "retryable", "damage": "tombstoned"}[spoiled]
        assert consumer.result() == ("a", expected)
    consumer.read(producer, "b", [3, 4, 5])
    assert consumer.result() == ("b", "completed")
    assert consumer.holds(store, "b", [3, 4, 5])
    consumer.read(producer, "a", [6, 7, 8])
    assert consumer.result() == ("a", "completed")
    assert consumer.holds(store, "a", [6, 7, 8])


def test_every_refusal_is_upstreams(chiasm: Chiasm, store: Path, upstream_consumer: Start) -> None:
    producer = produce(chiasm, write(store, a=3))
    consumer = upstream_consumer(16)
    consumer.read(producer, "nowhere", [0])
    assert consumer.result() == ("nowhere", "tombstoned")
    for fault, word in [("missing", "tombstoned"), ("not-ready:1", "retryable")]:
        other = produce(chiasm, store, f"--fault={fault}")
        consumer.read(other, "a", [0, 1, 2])
        assert consumer.result() == ("a", word)
        if word == "retryable":
            consumer.read(other, "a", [0, 1, 2])
            assert consumer.result() == ("a", "completed")
            assert consumer.holds(store, "a", [0, 1, 2])
    foreign = chiasm.produce(store, "--planes=nixl", "--block=1024")
    consumer.read(foreign, "a", [0, 1, 2])
    assert consumer.result() == ("a", "tombstoned"), "another compatibility hash"
    without = chiasm.produce(store, "--planes=tcp", *IDENTITY)
    consumer.read(without, "a", [0, 1, 2])
    assert consumer.result() == ("a", "tombstoned"), "no plane in common"


def test_two_consumers_read_one_entry(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=8))
    consumers = [upstream_consumer(16), upstream_consumer(16)]
    for consumer in consumers:
        consumer.read(producer, "a", list(range(8)))
    for consumer in consumers:
        assert consumer.result() == ("a", "completed")
        assert consumer.holds(store, "a", list(range(8)))
    assert released(chiasm, producer.running.pid)["done"] == 2


def test_hazard_c15_the_agents_of_two_ranks_are_read_by_one_consumer(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    write(store, a=4)
    ranks = [produce(chiasm, store, f"--nixl-agent=engine_dp{rank}") for rank in range(2)]
    consumer = upstream_consumer(16)
    for number, producer in enumerate(ranks):
        blocks = list(range(4 * number, 4 * number + 4))
        consumer.read(producer, "a", blocks)
        assert consumer.result() == ("a", "completed")
        assert consumer.holds(store, "a", blocks)


def test_a_serve_helper_that_dies_between_two_acks_costs_a_retry(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=4, b=4))
    consumer = upstream_consumer(16)
    consumer.read(producer, "a", [0, 1, 2, 3])
    assert consumer.result() == ("a", "completed")
    helper = status(chiasm, producer.running.pid)["nixl"]["serve"]["process"]
    os.kill(helper, signal.SIGKILL)
    producer.running.said("serving over nixl", times=2)
    consumer.read(producer, "b", [4, 5, 6, 7])
    assert consumer.result() == ("b", "completed")
    assert consumer.holds(store, "b", [4, 5, 6, 7])
    serve = status(chiasm, producer.running.pid)["nixl"]["serve"]
    assert (serve["state"], serve["deaths"]) == ("up", 1)
    assert serve["process"] != helper


def test_a_consumer_that_is_killed_leaves_a_grant_that_ends_and_others_are_served(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=4))
    killed, other = upstream_consumer(16), upstream_consumer(16)
    killed.read(producer, "a", [0, 1, 2, 3])
    killed.signal(signal.SIGKILL)
    other.read(producer, "a", [0, 1, 2, 3])
    assert other.result() == ("a", "completed")
    assert other.holds(store, "a", [0, 1, 2, 3])
    blocks = status(chiasm, producer.running.pid)["blocks"]
    assert blocks["free"] + blocks["live"] + blocks["quarantined"] == blocks["total"]


def test_a_producer_that_comes_back_is_read_again(
    chiasm: Chiasm, store: Path, upstream_consumer: Start
) -> None:
    producer = produce(chiasm, write(store, a=4))
    consumer = upstream_consumer(16)
    consumer.read(producer, "a", [0, 1, 2, 3])
    assert consumer.result() == ("a", "completed")
    producer.stop()
    again = produce(chiasm, store, f"--listen={producer.endpoint}")
    consumer.read(again, "a", [4, 5, 6, 7])
    name, word = consumer.result()
    if word == "retryable":
        consumer.read(again, "a", [4, 5, 6, 7])
        name, word = consumer.result()
    assert (name, word) == ("a", "completed")
    assert consumer.holds(store, "a", [4, 5, 6, 7])
