"""What a producer leaves behind when it ends: nothing, however it ends."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.namespace import private

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_ends_it_in_order(chiasm: Chiasm, number: signal.Signals) -> None:
    producer = chiasm.produce(stores.REAL)
    (region,) = producer.running.regions()
    assert region.exists()
    done = producer.stop(number)
    assert done.code == 0
    assert not region.exists()
    assert done.err.splitlines()[-1].startswith("stopped: 0 granted")


def test_several_signals_at_once_end_it_in_order(chiasm: Chiasm) -> None:
    # A terminal that closes and a service manager send more than one.
    producer = chiasm.produce(stores.REAL)
    (region,) = producer.running.regions()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        producer.running.signal(number)
    assert producer.running.wait().code == 0
    assert not region.exists()


def test_it_says_what_it_did(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(1, 1)))
    for planes in ("tcp", "shm", "shm,tcp"):
        fetched = chiasm.fetch(producer.announced, producer.endpoint, f"--planes={planes}")
        assert fetched.only()["plane"] == planes.split(",")[0]
    done = producer.stop()
    assert done.err == (
        f"ready {producer.endpoint}\n"
        "stopped: 3 granted, 1 read over tcp, 2 given back, 0 refused, 0 expired\n"
    )


def test_it_ends_by_itself_after_the_time_given(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL, "--for=0.2")
    assert producer.running.wait().code == 0
    assert chiasm.leftovers() == []


def test_a_signal_ends_it_before_the_time_given(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL, "--for=1e9")
    assert producer.stop().code == 0


@pytest.mark.parametrize("time", ["-1", "nan", "inf", "x", "", "1e30"])
def test_a_time_that_is_none_is_refused(chiasm: Chiasm, time: str) -> None:
    error = chiasm.run("produce", stores.REAL, f"--for={time}").one_error()
    assert "--for" in error
    assert chiasm.leftovers() == []


def test_nobody_has_to_listen_to_what_it_says(chiasm: Chiasm, tmp_path: Path) -> None:
    process = chiasm.start("produce", stores.REAL, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("ready ")
    process.stderr.close()
    process.terminate()
    assert process.wait(timeout=60) == 0, "its last words find no reader"
    assert chiasm.leftovers() == []


def test_nobody_has_to_read_its_announcement(chiasm: Chiasm, tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = chiasm.watch(chiasm.start("produce", stores.REAL, stdout=write)).wait()
    os.close(write)
    assert done.code == 1
    assert "Broken pipe" in done.error_text()
    assert chiasm.leftovers() == []


def test_the_next_start_removes_what_a_killed_one_left(chiasm: Chiasm) -> None:
    # In a /dev/shm of its own: any other start on this machine would remove it too.
    with private() as namespace:
        shm, prefix = namespace.path("/dev/shm"), namespace.prefix
        killed = chiasm.produce(stores.REAL, prefix=prefix)
        other = chiasm.produce(stores.REAL, prefix=prefix)
        (region,), (dead,) = other.running.regions(shm), killed.running.regions(shm)
        assert killed.stop(signal.SIGKILL).code == -signal.SIGKILL
        # Each has its region, and sockets beside it whose names begin with the region's.
        left = [name for name in stores.names(shm) if not name.startswith(region.name)]
        assert dead.name in left, "SIGKILL leaves no chance to remove anything"
        assert f"{dead.name}.status" in left
        assert chiasm.run("produce", stores.REAL, "--for=0", prefix=prefix).code == 0
        there = stores.names(shm)
        assert {region.name, f"{region.name}.status"} <= set(there)
        assert [name for name in there if not name.startswith(region.name)] == []
        assert other.stop().code == 0
        assert stores.names(shm) == []


def test_a_fetch_that_is_stopped_leaves_no_half_file(chiasm: Chiasm, tmp_path: Path) -> None:
    # A producer that accepts and says nothing: the fetch waits for it.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        announcement = {
            "peer_host": "127.0.0.1",
            "peer_port": port,
            "size_bytes": 4096,
            "shape": [1, 2048],
        }
        out = tmp_path / "copy"
        fetch = chiasm.start_fetch({"a": announcement}, f"127.0.0.1:{port}", out=out)
        peer, _ = listener.accept()
        with peer:
            fetch.signal(signal.SIGTERM)
            done = fetch.wait()
    assert done.code == 1
    assert done.error_text() == "stopped by a signal"
    assert stores.names(out) == []
    assert chiasm.leftovers() == []
