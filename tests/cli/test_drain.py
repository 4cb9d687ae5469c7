"""The orderly end of a producer: what it has granted is read to its end, in bounded time."""

import signal
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.nodes import granted, socket_of, status

# A producer with this fault sends 1 KiB every fifth of a second.
SLOW = "--fault=slow-bytes"


def test_a_read_under_way_is_finished_and_new_requests_are_refused(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    # 32 KiB: some six seconds. Three have been too few on a busy machine.
    store, copy = stores.some(tmp_path / "store", a=(32, 512), b=(1, 512)), tmp_path / "copy"
    producer = chiasm.produce(store, SLOW, "--drain=100", "--region=1MiB")
    params = producer.params
    fetch = chiasm.start_fetch({"a": params["a"]}, producer.endpoint, out=copy)
    assert not granted(chiasm, producer.endpoint)["node"]["draining"]
    (region,) = producer.running.regions()
    producer.running.signal(signal.SIGTERM)
    assert producer.running.line("draining: ") == "waiting for 1 granted reads, at most 100 s"

    # Both answers come while it drains, or this has taken more than six seconds.
    assert status(chiasm, producer.endpoint)["node"]["draining"]
    refused = chiasm.fetch({"b": params["b"]}, producer.endpoint)
    assert refused.verdicts() == {"b": ("unavailable", "nack_internal")}
    assert "draining" in refused.only()["detail"]

    fetched = fetch.wait()
    assert fetched.code == 0, fetched
    assert stores.sha256sums(copy).items() <= stores.sha256sums(store).items()
    done = producer.running.wait()
    assert done.code == 0
    last = done.err.splitlines()[-1]
    assert last == "stopped: 1 granted, 1 read over tcp, 0 given back, 1 refused, 0 expired"
    assert not region.exists()
    assert not socket_of(region).exists()


def test_the_wait_is_bounded(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(512, 512))
    producer = chiasm.produce(store, SLOW, "--drain=0.2")
    fetch = chiasm.start_fetch(producer.announced, producer.endpoint, "--local=a")
    granted(chiasm, producer.endpoint)
    done = producer.stop()
    assert done.code == 0
    assert "draining: 1 granted reads were cut off\n" in done.err
    assert fetch.wait().verdicts()["a"][0] == "fallback"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_second_signal_ends_the_wait_in_order(
    chiasm: Chiasm, tmp_path: Path, number: signal.Signals
) -> None:
    store = stores.some(tmp_path / "store", a=(512, 512))
    producer = chiasm.produce(store, SLOW, "--drain=3600")
    fetch = chiasm.start_fetch(producer.announced, producer.endpoint, "--local=a")
    granted(chiasm, producer.endpoint)
    (region,) = producer.running.regions()
    producer.running.signal(number)
    producer.running.line("draining: waiting")
    done = producer.stop(number)
    assert done.code == 0, "in order, not where it stood"
    assert not region.exists()
    assert not socket_of(region).exists()
    assert fetch.wait().verdicts()["a"][0] == "fallback"


def test_a_consumer_does_not_wait_for_its_reads(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(512, 512))
    producer = chiasm.produce(store, SLOW)
    fetch = chiasm.start_fetch(producer.announced, producer.endpoint)
    granted(chiasm, producer.endpoint)
    fetch.signal(signal.SIGTERM)
    done = fetch.wait()
    assert done.code == 1
    assert done.error_text() == "stopped by a signal"


@pytest.mark.parametrize("seconds", ["-1", "nan", "soon"])
def test_a_time_that_is_none_is_refused(chiasm: Chiasm, seconds: str) -> None:
    assert "--drain" in chiasm.run("produce", stores.REAL, f"--drain={seconds}").one_error()
