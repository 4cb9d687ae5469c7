"""While upstream's consumers read, a third peer that was granted a read does harm.

It has what every peer gets: the agent's metadata and the address of every block. It forges
completions of all that it knows, reads what it was not granted, writes, and goes in the middle.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cli.chiasm import Chiasm
from tests.cli.chiasm import Producer as ChiasmProducer
from tests.interop.nixl.processes import Peer as Agent
from tests.interop.peers.zmtp import Peer as Dealer
from tests.interop.upstream.instances import BLOCK, COMPAT, Consumer, Start, produce
from tests.interop.upstream.test_their_consumer import write
from tests.interop.upstream.waits import at_rest, kept, seen


class Hostile:
    """An agent with a grant of its own."""

    def __init__(self, name: str, producer: ChiasmProducer, tls: str | None) -> None:
        self.agent = Agent(name, 1, tls=tls)
        request = {
            "type": "req",
            "mm_hash": "a",
            "compatibility_hash": COMPAT,
            "session_id": name,
        }
        with Dealer.dealer(producer.port) as dealer:
            ack = dealer.ask(request)
        assert ack["status"] == 0, ack
        self.rows = msgspec.msgpack.decode(ack["mem_descriptor"])
        self.node: str = self.agent.ask("load", metadata=ack["agent_metadata"].hex())

    def transfer(self, operation: str, row: int, note: str, limit_s: float = 5.0) -> str:
        done = self.agent.ask(
            "transfer",
            operation=operation,
            agent=self.node,
            local=[(0, BLOCK)],
            remote=[(self.rows[row][0], BLOCK)],
            note=note,
            limit_s=limit_s,
        )
        return str(done["state"])


@pytest.fixture
def hostile() -> Iterator[Start]:
    started: list[Hostile] = []

    def start(producer: ChiasmProducer, tls: str | None) -> Hostile:
        started.append(Hostile(f"hostile-{len(started)}", producer, tls))
        return started[-1]

    yield start
    for peer in started:
        peer.agent.close()


def completes(consumer: Consumer, producer: ChiasmProducer, name: str, first: int) -> None:
    """Reads it, as often as it takes, and compares."""
    blocks = list(range(first, first + 4))
    consumer.read(producer, name, blocks)
    word = consumer.result()[1]
    while word == "retryable":
        consumer.read(producer, name, blocks)
        word = consumer.result()[1]
    assert word == "completed"


NAMES = ["a", "b", "c", "d"]


def test_forged_completions_and_foreign_reads_cost_readers_nothing(
    chiasm: Chiasm, store: Path, upstream_consumer: Start, hostile: Start
) -> None:
    producer = produce(chiasm, write(store, **dict.fromkeys(NAMES, 4)), "--lease=4")
    pid = producer.running.pid
    consumers = [upstream_consumer(16), upstream_consumer(16)]
    enemy = hostile(producer, None)
    for number, name in enumerate(NAMES):
        for consumer in consumers:
            consumer.read(producer, name, list(range(4 * number, 4 * number + 4)))
        for text in (f"hostile-0:{name}", f"x:{name}", f":{name}", name, ":"):
            enemy.transfer("READ", 0, text)
        for consumer in consumers:
            assert consumer.result() == (name, "completed")
    for consumer in consumers:
        for number, name in enumerate(NAMES):
            assert consumer.holds(store, name, list(range(4 * number, 4 * number + 4)))
    node = at_rest(chiasm, pid)
    assert node["nixl"]["serve"]["deaths"] == 0
    counters = node["serving"]["counters"]
    assert counters["granted"] == 2 * len(NAMES) + 1
    assert counters["done"] + counters["expired"] == counters["granted"], "each has ended once"
    assert counters["done"] >= 2 * len(NAMES)
    assert counters["stray_completions"] > 0, "it has been heard"


@pytest.mark.parametrize("tls", [None, "tcp"], ids=["any", "tcp"])
def test_a_write_reaches_no_bytes_and_no_reader(
    tls: str | None,
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    hostile: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over tcp it ends the serve helper: readers ask again, and get what was saved."""
    if tls:
        monkeypatch.setenv("UCX_TLS", tls)
    producer = produce(chiasm, write(store, **dict.fromkeys(NAMES, 4)), "--lease=4")
    pid = producer.running.pid
    consumer = upstream_consumer(16)
    completes(consumer, producer, "a", 0)
    enemy = hostile(producer, tls)
    enemy.agent.fill(b"\xff" * BLOCK)
    assert enemy.transfer("WRITE", 0, "") != "DONE"
    if tls:
        producer.running.said("serving over nixl", times=2)
    for number, name in enumerate(NAMES[1:], start=1):
        completes(consumer, producer, name, 4 * number)
    completes(consumer, producer, "a", 0)
    for number, name in enumerate(NAMES):
        assert consumer.holds(store, name, list(range(4 * number, 4 * number + 4)))
    assert kept(chiasm, pid)["nixl"]["serve"]["deaths"] == (1 if tls else 0)
    at_rest(chiasm, pid)


def test_a_peer_that_dies_in_a_read_costs_the_others_a_retry_at_most(
    chiasm: Chiasm,
    store: Path,
    upstream_consumer: Start,
    hostile: Start,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UCX_TLS", "tcp")
    producer = produce(chiasm, write(store, **dict.fromkeys(NAMES, 4)), "--lease=4")
    pid = producer.running.pid
    consumer = upstream_consumer(16)
    completes(consumer, producer, "a", 0)
    for number, name in enumerate(NAMES[1:], start=1):
        enemy = hostile(producer, "tcp")
        enemy.transfer("READ", 0, "", limit_s=0)
        enemy.agent.signal(signal.SIGKILL)
        completes(consumer, producer, name, 4 * number)
    for number, name in enumerate(NAMES):
        assert consumer.holds(store, name, list(range(4 * number, 4 * number + 4)))
    seen(chiasm, pid, "a helper", lambda node: node["nixl"]["serve"]["state"] == "up")
    at_rest(chiasm, pid)
