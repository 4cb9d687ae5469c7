"""Planes from outside: which are there, which one is used, and what makes shm fall away."""

import os
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer
from tests.cli.namespace import private

NOBODY = 65534


def test_what_is_available_is_said_with_its_reason(
    chiasm: Chiasm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    planes = {it["plane"]: it for it in chiasm.run("planes", "--json").json["planes"]}
    assert {name: it["available"] for name, it in planes.items()} == {
        "shm": True,
        "nixl": False,
        "tcp": True,
    }
    assert all(it["why"] for it in planes.values())
    details = planes["shm"]["details"]
    assert details["directory"] == "/dev/shm"
    assert details["user"] == str(os.geteuid())
    assert int(details["free_bytes"]) > 0
    assert details["huge_pages"]

    table = chiasm.run("planes").out
    assert "nixl" in table
    assert "no usable libnixl_capi.so" in table
    assert "no Python environment is active" in table

    nowhere = tmp_path / "nowhere"
    done = chiasm.run("planes", "--json", f"--region-dir={nowhere}")
    (shm,) = (it for it in done.json["planes"] if it["plane"] == "shm")
    assert not shm["available"]
    assert str(nowhere) in shm["why"]


def test_both_sides_have_a_say(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(100, 1024))
    both, only_tcp = chiasm.produce(store), chiasm.produce(store, "--planes=tcp")

    def plane(producer: Producer, *arguments: str) -> str | None:
        item = chiasm.fetch(producer.announced, producer.endpoint, *arguments).only()
        used: str | None = item["plane"] or item["reason"]
        return used

    assert plane(both) == "shm"
    assert plane(both, "--planes=tcp,shm") == "tcp"
    assert plane(both, "--planes=nixl,shm") == "shm"
    assert plane(only_tcp) == "tcp"
    assert plane(only_tcp, "--planes=shm") == "no_plane"


def test_nixl_that_is_not_there_is_one_warning_and_tcp_serves(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    store = stores.some(tmp_path / "store", a=(1, 64))
    nowhere = f"--nixl-library={tmp_path}/nowhere.so"
    producer = chiasm.produce(store, "--planes=nixl,tcp", nowhere, "--log=warn")
    producer.running.said("nothing is served over nixl")
    done = chiasm.fetch(producer.announced, producer.endpoint, "--planes=nixl,tcp", nowhere)
    assert done.only()["plane"] == "tcp"
    assert done.json["retries"] == 0, "what is not there is not offered"
    assert done.err.count("nixl is passed over") == 1
    assert len(done.err.splitlines()) == 1
    stopped = producer.stop()
    assert sum("nixl" in line for line in stopped.err.splitlines()) == 1


@pytest.mark.parametrize("command", ["produce", "fetch"])
def test_nixl_alone_that_is_not_there_is_told_at_once(
    chiasm: Chiasm, tmp_path: Path, command: str
) -> None:
    store = stores.some(tmp_path / "store", a=(1, 64))
    nowhere = f"--nixl-library={tmp_path}/nowhere.so"
    announced = {"a": {"peer_host": "127.0.0.1", "peer_port": 9}}
    arguments: dict[str, list[str | Path]] = {
        "produce": [store, "--announce", tmp_path / "announced.json"],
        "fetch": ["--params", chiasm.params(announced), "--out", tmp_path / "copy"],
    }
    error = chiasm.run(command, *arguments[command], "--planes=nixl", nowhere).one_error()
    assert error.startswith("--planes nixl: NIXL cannot be used here: no usable libnixl_capi.so")
    assert f"{tmp_path}/nowhere.so" in error
    assert "--nixl-library" in error
    assert "--planes nixl,tcp" in error
    for made in ("announced.json", "copy"):
        assert not (tmp_path / made).exists(), "it is found out before anything is made"


def test_a_fetch_without_a_plane_in_common_says_why_of_each(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(1, 64))
    nowhere = f"--nixl-library={tmp_path}/nowhere.so"
    producer = chiasm.produce(store, "--planes=tcp")
    done = chiasm.fetch(producer.announced, producer.endpoint, "--planes=nixl,shm", nowhere)
    assert done.verdicts() == {"a": ("unavailable", "no_plane")}
    (warning,) = done.err.splitlines()
    assert warning.startswith("warning: nixl is passed over: no usable libnixl_capi.so")
    detail = done.only()["detail"]
    assert "none of those offered, which are shm (shm reaches only" in detail
    assert "nixl was passed over: no usable libnixl_capi.so" in detail
    assert f"{tmp_path}/nowhere.so" in detail


def test_another_users_region_is_read_over_tcp_without_a_word(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    store = stores.some(tmp_path / "store", a=(100, 1024))
    producer = chiasm.produce(store)
    out = tmp_path / "theirs"
    out.mkdir()
    os.chown(out, NOBODY, NOBODY)
    params = tmp_path / "params.json"
    params.write_bytes(producer.announced.read_bytes())
    for path in [params, *tmp_path.parents, tmp_path]:
        path.chmod(path.stat().st_mode | 0o055)
    other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    done = chiasm.fetch(params, producer.endpoint, "--log=warn", out=out / "copy", prefix=other)
    assert done.code == 0, done
    assert done.only()["plane"] == "tcp"
    assert done.json["retries"] == 0, "the hint differs: it was not even tried"
    assert done.err == ""
    assert stores.sha256sums(out / "copy") == stores.sha256sums(store)


def test_another_dev_shm_is_read_over_tcp_without_a_word(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(100, 1024))
    producer = chiasm.produce(store)
    with private() as elsewhere:
        done = chiasm.fetch(
            producer.announced,
            producer.endpoint,
            "--log=warn",
            out=tmp_path / "copy",
            prefix=elsewhere.prefix,
        )
    assert done.code == 0, done
    assert (done.only()["plane"], done.json["retries"], done.err) == ("tcp", 0, "")
    assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(store)


@pytest.mark.parametrize("fault", ["wrong-region", "wrong-life", "wild-extents"])
def test_a_region_that_is_not_what_was_said_costs_one_attempt(
    chiasm: Chiasm, tmp_path: Path, fault: str
) -> None:
    store = stores.some(tmp_path / "store", a=(100, 1024))
    producer = chiasm.produce(store, f"--fault={fault}")
    done = chiasm.fetch(producer.announced, producer.endpoint, "--log=info", out=tmp_path / "copy")
    assert done.code == 0, done
    assert (done.only()["plane"], done.json["retries"]) == ("tcp", 1)
    (line,) = (line for line in done.err.splitlines() if "shm" in line)
    assert producer.endpoint in line
    assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(store)


def test_a_producer_killed_after_its_ack_costs_no_wrong_bytes(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    store = stores.some(tmp_path / "store", a=(2000, 1024), b=(2000, 1024), c=(2000, 1024))
    producer = chiasm.produce(store, "--fault=die-after-ack")
    done = chiasm.fetch(producer.announced, producer.endpoint, "--budget=2", out=tmp_path / "copy")
    fetched = {name for name, (verdict, _) in done.verdicts().items() if verdict == "fetched"}
    assert len(fetched) <= 1, "it granted one"
    if fetched:
        expected = stores.sha256sums(store)
        assert stores.sha256sums(tmp_path / "copy").items() <= expected.items()
    # What it leaves, the next node removes.
    assert chiasm.fetch({}, out=tmp_path / "nothing").code == 0
