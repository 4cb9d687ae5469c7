"""Producers that are down, come back, or deny: what becomes of an encoding, and how soon."""

import signal
import socket
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return stores.some(tmp_path / "store", a=(5, 1000), b=(6, 1000))


def test_a_producer_that_is_down_costs_local_input_little(chiasm: Chiasm, store: Path) -> None:
    producer = chiasm.produce(store)
    params = producer.params
    producer.stop()
    done = chiasm.fetch(params, producer.endpoint, "--budget=60", "--local=a", "--local=b")
    assert done.code == 1
    assert set(done.verdicts().values()) == {("fallback", "refused")}
    # The budget is a minute; the breaker is open after a few attempts.
    assert all(item["ms"] < 10_000 for item in done.items().values())
    assert done.json["retries"] > 0
    assert done.json["connects"] == [producer.endpoint]


def test_without_local_input_the_budget_is_waited_for(chiasm: Chiasm, store: Path) -> None:
    producer = chiasm.produce(store)
    params = producer.params
    producer.stop()
    done = chiasm.fetch(params, producer.endpoint, "--budget=0.5", "--local=a")
    assert done.code == 1
    assert done.verdicts() == {"a": ("fallback", "refused"), "b": ("unavailable", "refused")}
    assert done.items()["b"]["ms"] >= 500
    assert "not there within wait_budget_s = 0.5" in done.items()["b"]["detail"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda it: it.name)
def test_a_fetch_waits_for_a_producer_that_comes_back(
    chiasm: Chiasm, store: Path, tmp_path: Path, number: signal.Signals
) -> None:
    producer = chiasm.produce(store)
    params = producer.params
    producer.stop(number)
    # While it is away something else is there: the fetch has been seen to try.
    with socket.create_server(("127.0.0.1", producer.port)) as listener:
        fetch = chiasm.start_fetch(params, producer.endpoint, out=tmp_path / "copy")
        peer, _ = listener.accept()
        peer.close()
    back = chiasm.produce(store, f"--listen={producer.endpoint}")
    done = fetch.wait()
    assert done.code == 0, done
    assert done.json["retries"] > 0
    assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(store)
    assert back.endpoint == producer.endpoint
    assert len(chiasm.leftovers()) == 1


def test_an_encoding_that_was_not_announced_is_for_the_engine(chiasm: Chiasm, store: Path) -> None:
    done = chiasm.fetch({"a": {}, "b": {}}, "127.0.0.1:5601", "--local=a")
    assert done.code == 1
    assert done.items()["b"]["verdict"] == "unavailable"
    assert done.items()["a"]["reason"] == "not_announced"
    assert done.json["connects"] == []


def test_a_name_without_an_address_is_told(chiasm: Chiasm) -> None:
    params = {
        "a": {
            "peer_host": "no-such-host.invalid",
            "peer_port": 5601,
            "size_bytes": 4096,
            "shape": [1, 2048],
        }
    }
    done = chiasm.fetch(params, "no-such-host.invalid:5601", "--budget=30", "--local=a")
    assert done.verdicts() == {"a": ("fallback", "unresolved")}
    assert "the name could not be resolved" in done.only()["detail"]


def black_hole(address: str, port: int, stack: list[socket.socket]) -> None:
    """A listener whose queue is full: whoever connects hears nothing at all."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen(0)
    stack.append(listener)
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex((address, port))
        stack.append(filler)


def test_a_black_hole_costs_connect_timeout_and_no_more(chiasm: Chiasm, store: Path) -> None:
    producer = chiasm.produce(store)
    params = producer.params
    producer.stop()
    stack: list[socket.socket] = []
    try:
        black_hole("127.0.0.1", producer.port, stack)
        done = chiasm.fetch(
            params, producer.endpoint, "--connect-timeout=0.2", "--local=a", "--local=b"
        )
    finally:
        for one in stack:
            one.close()
    assert set(done.verdicts().values()) == {("fallback", "unreachable")}
    # Far below the minute of the budget and the half minute of an ack.
    assert all(200 <= item["ms"] < 10_000 for item in done.items().values())
