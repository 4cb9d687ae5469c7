"""Between two hosts: which plane is taken, and what a broken network costs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.hosts import Host, two
from tests.cli.nodes import until

SHAPES = {"small": (5, 1000), "large": (3000, 2048)}


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two() as pair:
        yield pair


def nodes(chiasm: Chiasm, host: Host) -> list[Any]:
    """The live nodes of a host."""
    return list(chiasm.run("status", "--json", prefix=host.prefix).json["nodes"])


def test_the_main_job_goes_over_tcp_and_shm_is_not_even_tried(
    chiasm: Chiasm, hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    here, there = hosts
    store, copy = stores.some(tmp_path / "store", **SHAPES), tmp_path / "copy"
    listen = f"--listen={there.address}:5601"
    producer = chiasm.produce(store, listen, "--log=info", prefix=there.prefix)
    assert producer.endpoint == f"{there.address}:5601"
    done = chiasm.fetch(
        producer.announced, producer.endpoint, "--log=info", out=copy, prefix=here.prefix
    )
    assert done.code == 0, done
    assert stores.sha256sums(copy) == stores.sha256sums(store)
    assert {item["plane"] for item in done.items().values()} == {"tcp"}
    # One attempt each: nothing had to fall away first, and nobody says a word about it.
    assert done.json["retries"] == 0
    assert "shm" not in done.err
    end = producer.stop()
    assert "2 granted, 2 read over tcp" in end.err
    for host in hosts:
        assert stores.names(host.path("/dev/shm")) == [], "each has its own, and leaves nothing"


def test_shm_alone_does_not_reach_another_host(
    chiasm: Chiasm, hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    here, there = hosts
    store = stores.some(tmp_path / "store", a=(5, 1000))
    producer = chiasm.produce(store, f"--listen={there.address}:5601", prefix=there.prefix)
    done = chiasm.fetch(
        producer.announced, producer.endpoint, "--planes=shm", "--local=a", prefix=here.prefix
    )
    assert done.verdicts() == {"a": ("fallback", "no_plane")}


def test_a_peer_behind_a_black_hole_costs_connect_timeout(
    chiasm: Chiasm, hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    here, there = hosts
    store = stores.some(tmp_path / "store", a=(5, 1000))
    producer = chiasm.produce(store, f"--listen={there.address}:5601", prefix=there.prefix)
    there.swallow(here.address)
    done = chiasm.fetch(
        producer.announced,
        producer.endpoint,
        "--connect-timeout=0.5",
        "--local=a",
        prefix=here.prefix,
    )
    assert done.verdicts() == {"a": ("fallback", "unreachable")}
    # Far below the minute of the budget and the half minute of an ack.
    assert 500 <= done.only()["ms"] < 10_000


@pytest.mark.slow
def test_a_link_that_goes_down_in_the_middle_of_a_read_costs_one_request_a_retry(
    chiasm: Chiasm, hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    here, there = hosts
    store, copy = stores.some(tmp_path / "store", far=(20, 512), near=(5, 1000)), tmp_path / "copy"
    far = chiasm.produce(
        store, f"--listen={there.address}:5601", "--fault=slow-bytes", prefix=there.prefix
    )
    near = chiasm.produce(store, "--listen=127.0.0.1:5602", prefix=here.prefix)
    params = {"far": far.params["far"], "near": near.params["near"]}
    allow = [far.endpoint, near.endpoint]
    fetch = chiasm.start_fetch(params, allow, "--log=warn", out=copy, prefix=here.prefix)

    def reading() -> Any | None:
        seen = [node for node in nodes(chiasm, there) if node["serving"]["streams"]]
        return seen or None

    until(reading, "a data stream")
    here.link("down")

    def lost() -> Any | None:
        mine = [node for node in nodes(chiasm, here) if node["node"]["process"] == fetch.pid]
        failed = mine[0]["reading"]["counters"]["failed"] if mine else {}
        return failed or None

    failed = until(lost, "a lost read")
    assert set(failed) <= {"lost", "unreachable", "timeout", "plane"}, failed
    here.link("up")
    done = fetch.wait()
    assert done.code == 0, done
    assert done.json["retries"] >= 1
    assert done.verdicts() == {"far": ("fetched", None), "near": ("fetched", None)}
    assert done.items()["near"]["ms"] < done.items()["far"]["ms"]
    assert stores.sha256sums(copy) == stores.sha256sums(store)
