"""Where a producer serves, and what it announces."""

import socket
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer


def moves(chiasm: Chiasm, producer: Producer, allow: str, copy: Path) -> bool:
    done = chiasm.fetch(producer.announced, allow, out=copy)
    return done.code == 0 and stores.sha256sums(copy) == stores.sha256sums(stores.REAL)


def test_producers_with_defaults_do_not_collide(chiasm: Chiasm, tmp_path: Path) -> None:
    producers = [chiasm.produce(stores.REAL) for _ in range(3)]
    assert len({producer.port for producer in producers}) == 3
    regions = [producer.running.regions() for producer in producers]
    assert len({region for (region,) in regions}) == 3
    for index, producer in enumerate(producers):
        assert moves(chiasm, producer, producer.endpoint, tmp_path / f"copy-{index}")


def test_encodings_of_several_producers_in_one_fetch(chiasm: Chiasm, tmp_path: Path) -> None:
    stores.some(tmp_path / "a", a=(9, 1000))
    stores.some(tmp_path / "b", b=(8, 1000))
    producers = [chiasm.produce(tmp_path / name) for name in "ab"]
    params = producers[0].params | producers[1].params
    endpoints = [producer.endpoint for producer in producers]
    done = chiasm.fetch(params, endpoints, out=tmp_path / "copy")
    assert done.code == 0
    assert sorted(done.json["connects"]) == sorted(endpoints)
    ports = sorted(producer.port for producer in producers)
    if ports[1] - ports[0] < 1024:
        ranged = f"127.0.0.1:{ports[0]}-{ports[1]}"
        assert chiasm.fetch(params, ranged, out=tmp_path / "again").code == 0


@pytest.mark.parametrize(
    ("listen", "host"),
    [
        ("[::1]:0", "[::1]"),
        ("[0:0:0:0:0:0:0:1]:0", "[::1]"),
        ("localhost:0", "localhost"),
        ("LOCALHOST.:0", "localhost"),
        ("[::ffff:127.0.0.1]:0", "127.0.0.1"),
        ("127.0.0.2:0", "127.0.0.2"),
    ],
)
def test_what_is_bound_is_announced(chiasm: Chiasm, tmp_path: Path, listen: str, host: str) -> None:
    producer = chiasm.produce(stores.REAL, f"--listen={listen}")
    assert producer.host == host
    for announcement in producer.params.values():
        assert announcement["peer_host"] == host.strip("[]")
        assert announcement["peer_port"] == producer.port
    assert moves(chiasm, producer, producer.endpoint, tmp_path / "copy")


def test_another_host_can_be_announced(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.REAL, "--advertise=LocalHost")
    assert producer.host == "localhost"
    assert moves(chiasm, producer, f"localhost:{producer.port}", tmp_path / "copy")
    done = chiasm.fetch(producer.announced, f"127.0.0.1:{producer.port}")
    assert set(done.verdicts().values()) == {("unavailable", "not_allowed")}


def test_a_fixed_port_is_the_one_that_is_announced(chiasm: Chiasm, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    producer = chiasm.produce(stores.REAL, f"--listen=127.0.0.1:{port}")
    assert producer.endpoint == f"127.0.0.1:{port}"
    assert moves(chiasm, producer, producer.endpoint, tmp_path / "copy")


def test_a_port_in_use_is_named(chiasm: Chiasm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        error = chiasm.run("produce", stores.REAL, f"--listen={endpoint}").one_error()
    assert error.startswith(f"cannot listen on {endpoint}: ")
    assert "another process listens there: choose another port, or port 0" in error
    assert chiasm.leftovers() == []


def test_the_port_of_a_producer_is_in_use(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL)
    error = chiasm.run("produce", stores.REAL, f"--listen={producer.endpoint}").one_error()
    assert producer.endpoint in error
    assert producer.running.is_alive()


@pytest.mark.parametrize(
    ("listen", "named"),
    [
        ("0.0.0.0:0", "wildcard"),
        ("[::]:0", "wildcard"),
        ("*:5601", "wildcard"),
        (":5601", "wildcard"),
        ("[::ffff:0.0.0.0]:5601", "wildcard"),
        ("127.0.0.1", "port is missing"),
        ("127.0.0.1:65536", "0 (chosen by the system) to 65535"),
        ("127.0.0.1:-1", "0 (chosen by the system) to 65535"),
        ("127.0.0.1:+5601", "0 (chosen by the system) to 65535"),
        ("127.1:5601", "reads like a number"),
        ("::1:5601", "brackets"),
        ("[fe80::1%eth0]:5601", "zone id"),
        ("tcp://127.0.0.1:5601", "scheme"),
        ("", "port is missing"),
    ],
)
def test_what_cannot_be_announced_is_not_listened_on(
    chiasm: Chiasm, listen: str, named: str
) -> None:
    error = chiasm.run("produce", stores.REAL, f"--listen={listen}").one_error()
    assert error.startswith("--listen: ")
    assert f'"{listen}"' in error
    assert named in error


def test_an_address_of_another_host_is_refused(chiasm: Chiasm) -> None:
    error = chiasm.run("produce", stores.REAL, "--listen=192.0.2.1:0").one_error()
    assert "192.0.2.1:0" in error
    assert "it is no address of this host" in error


def test_a_name_without_an_address_is_refused(chiasm: Chiasm) -> None:
    error = chiasm.run("produce", stores.REAL, "--listen=no-such-host.invalid:0").one_error()
    assert "no-such-host.invalid:0" in error
    assert "no address" in error


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "::", "", "a b", "127.1", "host:5601"])
def test_a_wildcard_is_not_announced(chiasm: Chiasm, host: str) -> None:
    error = chiasm.run("produce", stores.REAL, f"--advertise={host}").one_error()
    assert error.startswith("--advertise: ")
    assert f'"{host}"' in error


@pytest.mark.parametrize(("region", "code"), [("32KiB", 0), ("31KiB", 2), ("1", 2), ("0", 2)])
def test_a_region_that_is_too_small_is_refused(chiasm: Chiasm, region: str, code: int) -> None:
    # Four encodings of 8 KiB in blocks of 4 KiB.
    done = chiasm.run("produce", stores.REAL, f"--region={region}", "--for=0")
    assert done.code == code, done
    if code:
        error = done.one_error()
        assert error.startswith("--region ")
        assert "the 4 encodings need 32.00 KiB (32768 bytes)" in error


@pytest.mark.parametrize("region", ["", "x", "4G", "-1", "1.5GiB", "99999999999TiB"])
def test_a_size_that_is_none_is_refused(chiasm: Chiasm, region: str) -> None:
    error = chiasm.run("produce", stores.REAL, f"--region={region}").one_error()
    assert "--region" in error
