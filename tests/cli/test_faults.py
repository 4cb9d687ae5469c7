"""Producers that misbehave on command, and what an engine would have to do about each.

`chiasm produce --fault KIND` makes the fault, `chiasm fetch` shows the verdict for an item without
local input and for one with it (--local), and `chiasm status` that the producer keeps nothing.
"""

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.nodes import rests, socket_of

# Seconds. In the long one nothing here may end by its budget; in the short one some things must.
LONG = 60
SHORT = 1


@dataclass(frozen=True)
class Fault:
    """What comes of a fault."""

    kind: str
    reason: str | None
    # The item waits until its budget is spent, unless it can fall back before.
    waits: bool = False
    # Retries: none, exactly so many, or at least so many.
    retries: int = 0
    at_least: bool = False
    # The producer is taken for dead or broken, so that whoever can encode does not wait.
    gives_up_early: bool = False
    dies: bool = False


FAULTS = [
    Fault("missing", "nack_missing"),
    Fault("incompat", "nack_incompat"),
    Fault("wrong-extents", "ack_mismatch"),
    Fault("not-ready:2", None, retries=2),
    Fault("late-ack:0.05", None, at_least=True),
    Fault("wrong-bytes", "digest", retries=1),
    Fault("not-ready:1000000", "not_ready", waits=True, retries=2, at_least=True),
    Fault("silent", "timeout", waits=True, retries=1, at_least=True),
    Fault("late-ack:30", "timeout", waits=True, retries=1, at_least=True),
    Fault("slow-bytes", "timeout", waits=True, at_least=True),
    Fault("garbage", "garbage", waits=True, retries=1, at_least=True, gives_up_early=True),
    Fault(
        "die-before-ack",
        "refused",
        waits=True,
        retries=1,
        at_least=True,
        gives_up_early=True,
        dies=True,
    ),
    Fault(
        "die-after-ack",
        "refused",
        waits=True,
        retries=1,
        at_least=True,
        gives_up_early=True,
        dies=True,
    ),
]


@pytest.mark.parametrize("local", [False, True], ids=["remote only", "local input"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
def test_every_fault_ends_as_it_should(
    chiasm: Chiasm, tmp_path: Path, fault: Fault, local: bool
) -> None:
    store = stores.some(tmp_path / "store", a=(512, 64))
    producer = chiasm.produce(store, f"--fault={fault.kind}")
    (region,) = producer.running.regions()
    # With local input some faults end early, and then it must not be the budget that ended them.
    short = fault.waits and not (local and fault.gives_up_early)
    budget = SHORT if short else LONG
    out = tmp_path / "copy"
    arguments = [f"--budget={budget}", "--ack-timeout=0.3"] if short else [f"--budget={budget}"]
    arguments += ["--local=a"] if local else []
    # Over shm a grant of which the consumer never hears lives until its lease, whatever becomes of
    # the connection; and the bytes of a producer that dies can still be had, if somebody is quick.
    arguments += ["--planes=tcp"]
    done = chiasm.fetch(producer.announced, producer.endpoint, *arguments, out=out)

    item = done.only()
    failed = "fallback" if local else "unavailable"
    assert item["verdict"] == ("fetched" if fault.reason is None else failed), done
    assert item["reason"] == fault.reason, done
    assert done.code == (0 if fault.reason is None else 1)
    if fault.reason is None:
        assert stores.sha256sums(out) == stores.sha256sums(store)
    else:
        assert stores.names(out) == [], "nothing of it was published"
    if short and not local:
        assert item["ms"] > SHORT * 1000, "the budget was used"
    if not short:
        assert item["ms"] < LONG * 1000 / 2, "nobody waited for the budget"
    retries = done.json["retries"]
    assert retries >= fault.retries if fault.at_least else retries == fault.retries, done

    assert chiasm.leftovers() in ([], [region]), "the consumer has left nothing"
    if fault.dies:
        assert producer.running.wait().code == -signal.SIGKILL
        # What a killed producer leaves is removed by the next start, if none has come before.
        assert chiasm.run("produce", stores.REAL, "--for=0").code == 0
        assert not region.exists()
        assert not socket_of(region).exists()
    else:
        rests(chiasm, producer.endpoint, evictable=16)


@pytest.mark.parametrize("kind", ["die-before-ack", "die-after-ack"])
def test_a_producer_that_comes_back_on_its_port_is_read_after_all(
    chiasm: Chiasm, tmp_path: Path, kind: str
) -> None:
    # Killed before its ack, or between ack and read: what it had granted is void, and its successor
    # has another epoch.
    store, copy = stores.some(tmp_path / "store", a=(512, 64)), tmp_path / "copy"
    first = chiasm.produce(store, f"--fault={kind}")
    fetch = chiasm.start_fetch(first.announced, first.endpoint, "--planes=tcp", out=copy)
    assert first.running.wait().code == -signal.SIGKILL
    second = chiasm.produce(store, f"--listen={first.endpoint}")
    assert second.endpoint == first.endpoint

    done = fetch.wait()
    assert done.code == 0, done
    assert done.json["retries"] >= 1
    assert stores.sha256sums(copy) == stores.sha256sums(store)
    rests(chiasm, second.endpoint, evictable=16)


def test_a_producer_that_is_down_costs_local_input_no_budget(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    # How little it costs is for a benchmark to say, not for a test.
    store = stores.some(tmp_path / "store", a=(2, 8), b=(2, 8))
    producer = chiasm.produce(store)
    assert producer.stop().code == 0
    done = chiasm.fetch(producer.announced, producer.endpoint, "--local=a", "--budget=2")
    assert done.verdicts() == {"a": ("fallback", "refused"), "b": ("unavailable", "refused")}
    assert done.items()["a"]["ms"] < done.items()["b"]["ms"]


def test_a_fault_that_is_none_is_refused(chiasm: Chiasm) -> None:
    done = chiasm.run("produce", stores.REAL, "--fault=explode")
    assert done.code == 2
    assert "die-after-ack" in done.err
    assert chiasm.leftovers() == []
