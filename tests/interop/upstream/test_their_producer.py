"""A Chiasm consumer reads from upstream's unmodified producer."""

import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chiasm import Chiasm, Done
from tests.cli.stopping import stop
from tests.interop.upstream.instances import IDENTITY, Producer, Start, content, status, stored
from tests.interop.upstream.waits import seen


def fetch(
    chiasm: Chiasm,
    params: dict[str, Any],
    *producers: Producer,
    out: Path,
    more: tuple[str, ...] = (),
) -> Done:
    allow = [producer.endpoint for producer in producers]
    return chiasm.fetch(params, allow, "--planes=nixl,tcp", *IDENTITY, *more, out=out)


def no_grants(producer: Producer) -> None:
    """The completions have come: the producer's entries are not pinned any more."""
    while producer.ask("grants") > 0:
        pass


def has_failed(chiasm: Chiasm, pid: int, reason: str) -> bool:
    """Whether a transfer of the fetching node has failed for this reason; false before it is up."""
    nodes = chiasm.run("status", "--json").json["nodes"]
    mine = [node for node in nodes if node["node"]["process"] == pid]
    return any(node["reading"]["counters"]["failed"].get(reason) for node in mine)


def has_arrived(node: dict[str, Any], entries: int) -> bool:
    return bool(node["reading"]["counters"]["arrived"] == entries)


@pytest.mark.parametrize("blocks", [1, 2, 64, 4096])
def test_entries_of_any_size_arrive_byte_for_byte(
    blocks: int, chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(max(blocks, 16))
    producer.save("a", blocks)
    params = {"a": producer.announcement(blocks)}
    done = fetch(chiasm, params, producer, out=tmp_path / "out")
    assert done.verdicts() == {"a": ("fetched", None)}, done.err
    assert done.only()["plane"] == "nixl"
    assert stored(tmp_path / "out", "a") == content("a", blocks)
    no_grants(producer)


def test_entries_without_adjacent_blocks_arrive(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(600)
    producer.ask("scatter", blocks=300)
    indices = producer.save("a", 300)
    assert all(right - left != 1 for left, right in itertools.pairwise(indices))
    done = fetch(chiasm, {"a": producer.announcement(300)}, producer, out=tmp_path / "out")
    assert done.verdicts() == {"a": ("fetched", None)}, done.err
    assert stored(tmp_path / "out", "a") == content("a", 300)
    no_grants(producer)


def test_many_at_once_arrive(chiasm: Chiasm, tmp_path: Path, upstream_producer: Start) -> None:
    producer = upstream_producer(200)
    names = [f"h{number}" for number in range(24)]
    for name in names:
        producer.save(name, 5)
    params = {name: producer.announcement(5) for name in names}
    done = fetch(chiasm, params, producer, out=tmp_path / "out")
    assert done.verdicts() == dict.fromkeys(names, ("fetched", None)), done.err
    for name in names:
        assert stored(tmp_path / "out", name) == content(name, 5)
    no_grants(producer)


def test_not_ready_is_asked_again_until_it_is(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(16)
    producer.save("a", 3, ready=False)
    params = {"a": producer.announcement(3)}
    running = chiasm.start_fetch(
        params, producer.endpoint, "--planes=nixl", *IDENTITY, out=tmp_path / "out"
    )
    while not has_failed(chiasm, running.pid, "not_ready"):
        pass
    producer.ask("ready", hash="a")
    done = running.wait()
    assert done.verdicts() == {"a": ("fetched", None)}, done.err
    assert stored(tmp_path / "out", "a") == content("a", 3)


def test_refusals_have_their_reasons(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(16)
    producer.save("a", 3)
    params = {"missing": producer.announcement(3)}
    done = fetch(chiasm, params, producer, out=tmp_path / "missing")
    assert done.verdicts() == {"missing": ("unavailable", "nack_missing")}
    params = {"a": producer.announcement(3)}
    allow, other = producer.endpoint, "--compat-hash=" + "d" * 64
    arguments = ["--planes=nixl", other, *IDENTITY[1:]]
    done = chiasm.fetch(params, allow, *arguments, out=tmp_path / "incompat")
    assert done.verdicts() == {"a": ("unavailable", "nack_incompat")}
    done = chiasm.fetch(params, allow, "--planes=tcp", *IDENTITY, out=tmp_path / "tcp")
    assert done.verdicts() == {"a": ("unavailable", "no_plane")}
    done = chiasm.fetch(params, allow, "--planes=nixl", *IDENTITY[:2], out=tmp_path / "untyped")
    assert done.verdicts() == {"a": ("unavailable", "ack_mismatch")}
    assert producer.ask("grants") <= 2, "what was not read ends with its lease"


def test_hazard_b1_an_announcement_of_another_size_fails_alone(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(16)
    producer.save("a", 3)
    producer.save("b", 3)
    params = {"a": producer.announcement(2), "b": producer.announcement(3)}
    done = fetch(chiasm, params, producer, out=tmp_path / "out")
    assert done.verdicts() == {"a": ("unavailable", "ack_mismatch"), "b": ("fetched", None)}
    assert stored(tmp_path / "out", "b") == content("b", 3)


def test_hazard_c15_two_producers_with_one_agent_name_are_read_at_once(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    ranks = [upstream_producer(64, agent="one-engine-id") for _ in range(2)]
    params = {}
    for number, producer in enumerate(ranks):
        for name in (f"a{number}", f"b{number}"):
            producer.save(name, 7)
            params[name] = producer.announcement(7)
    done = fetch(chiasm, params, *ranks, out=tmp_path / "out")
    assert done.verdicts() == dict.fromkeys(params, ("fetched", None)), done.err
    for name in params:
        assert stored(tmp_path / "out", name) == content(name, 7)


def test_hazard_b3_a_producer_that_dies_after_its_ack_costs_its_own_items_only(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    """Its ack is here, and the helper that is to read has not begun: it is stopped."""
    dead, alive = upstream_producer(16), upstream_producer(16)
    dead.save("first", 3)
    dead.save("a", 3, ready=False)
    alive.save("b", 3, ready=False)
    params = {"first": dead.announcement(3), "a": dead.announcement(3), "b": alive.announcement(3)}
    running = chiasm.start_fetch(
        params,
        [dead.endpoint, alive.endpoint],
        "--planes=nixl",
        "--budget=20",
        "--log=debug",
        *IDENTITY,
        out=tmp_path / "out",
    )
    running.said("reading over nixl")
    node = seen(chiasm, running.pid, "the first", lambda it: has_arrived(it, 1))
    (helper,) = node["nixl"]["read"]
    stop(helper["process"])
    dead.ask("ready", hash="a")
    seen(
        chiasm,
        running.pid,
        "an order to read",
        lambda it: [helper["reads"] for helper in it["nixl"]["read"]] == [1],
    )
    assert dead.ask("grants") == 1
    dead.signal(signal.SIGKILL)
    dead.wait()
    os.kill(helper["process"], signal.SIGCONT)
    alive.ask("ready", hash="b")
    done = running.wait()
    verdicts = done.verdicts()
    assert verdicts["first"] == verdicts["b"] == ("fetched", None), done.err
    assert verdicts["a"][0] == "unavailable"
    assert stored(tmp_path / "out", "b") == content("b", 3)


def test_a_producer_that_restarts_is_read_again(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(16, agent="the-same")
    producer.save("a", 3)
    params = {"a": producer.announcement(3)}
    done = fetch(chiasm, params, producer, out=tmp_path / "first")
    assert done.verdicts() == {"a": ("fetched", None)}, done.err
    producer.signal(signal.SIGKILL)
    producer.wait()
    again = upstream_producer(16, agent="the-same", port=producer.port)
    again.save("a", 3)
    done = fetch(chiasm, params, again, out=tmp_path / "second")
    assert done.verdicts() == {"a": ("fetched", None)}, done.err
    assert stored(tmp_path / "second", "a") == content("a", 3)


def test_a_read_helper_that_is_killed_costs_a_retry(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer = upstream_producer(16)
    producer.save("a", 3)
    producer.save("b", 3, ready=False)
    params = {"a": producer.announcement(3), "b": producer.announcement(3)}
    running = chiasm.start_fetch(
        params, producer.endpoint, "--planes=nixl", "--log=debug", *IDENTITY, out=tmp_path / "out"
    )
    running.said("reading over nixl")
    (helper,) = status(chiasm, running.pid)["nixl"]["read"]
    os.kill(helper["process"], signal.SIGKILL)
    running.said("the NIXL read helper died of signal 9")
    producer.ask("ready", hash="b")
    done = running.wait()
    assert done.verdicts() == dict.fromkeys(params, ("fetched", None)), done.err
    for name in params:
        assert stored(tmp_path / "out", name) == content(name, 3)
