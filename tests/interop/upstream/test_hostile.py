"""What a producer says of its NIXL agent, and helpers that hang, cost nobody else anything."""

from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm
from tests.cli.stopping import stop
from tests.interop.upstream.instances import BLOCK, IDENTITY, Start, content, status, stored
from tests.interop.upstream.test_their_producer import has_arrived
from tests.interop.upstream.waits import seen


def good_beside_bad(
    chiasm: Chiasm, out: Path, upstream_producer: Start, order: str, **arguments: object
) -> str:
    """Reads from a good producer and from one that lies; how the lie has ended."""
    bad, good = upstream_producer(16), upstream_producer(16)
    bad.save("bad", 3)
    good.save("good", 3)
    bad.ask(order, **arguments)
    params = {"bad": bad.announcement(3), "good": good.announcement(3)}
    allow = [bad.endpoint, good.endpoint]
    more = ["--planes=nixl", "--budget=20", "--read-timeout=3", *IDENTITY]
    done = chiasm.fetch(params, allow, *more, out=out)
    verdicts = done.verdicts()
    assert verdicts["good"] == ("fetched", None), done.err
    assert stored(out, "good") == content("good", 3)
    verdict, reason = verdicts["bad"]
    if verdict == "fetched":
        assert stored(out, "bad") == content("bad", 3), "a byte that means nothing"
    return str(reason)


@pytest.mark.parametrize("at", [30, 90, 150, 210, 270, 330, 390, -12])
def test_a_changed_byte_of_metadata_costs_its_own_items_only(
    at: int, chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    good_beside_bad(chiasm, tmp_path / "out", upstream_producer, "damage", at=at)


@pytest.mark.parametrize("length", [0, 20, 200])
def test_metadata_that_end_early_are_not_loaded(
    length: int, chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    out = tmp_path / "out"
    reason = good_beside_bad(chiasm, out, upstream_producer, "truncate", length=length)
    assert reason == ("ack_mismatch" if length == 0 else "bad_agent")


WRAPS = [[2**64 - BLOCK, BLOCK, 0], [0, BLOCK, 0]]
LONG = [[4096, 4 * BLOCK, 0], [4096 + 4 * BLOCK, 4 * BLOCK, 0]]
ELSEWHERE = [[4096 + number * BLOCK, BLOCK, 0] for number in range(16)]


@pytest.mark.parametrize("rows", [WRAPS, LONG, ELSEWHERE])
def test_descriptors_that_are_forged_reach_no_plane(
    rows: list[list[int]], chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    reason = good_beside_bad(chiasm, tmp_path / "out", upstream_producer, "forge", rows=rows)
    assert reason in ("ack_mismatch", "bad_agent")


def test_a_read_helper_that_hangs_is_ended_and_its_blocks_are_free(
    chiasm: Chiasm, tmp_path: Path, upstream_producer: Start
) -> None:
    producer, keeper = upstream_producer(16), upstream_producer(16)
    producer.save("a", 3)
    producer.save("b", 3, ready=False)
    # Keeps the consumer until it has been looked at.
    keeper.save("late", 3, ready=False)
    params = {"a": producer.announcement(3), "b": producer.announcement(3)}
    params["late"] = keeper.announcement(3)
    allow = [producer.endpoint, keeper.endpoint]
    more = ["--planes=nixl", "--read-timeout=2", "--log=debug", *IDENTITY]
    running = chiasm.start_fetch(params, allow, *more, out=tmp_path / "out")
    running.said("reading over nixl")
    first = seen(chiasm, running.pid, "the first", lambda node: has_arrived(node, 1))
    (helper,) = first["nixl"]["read"]
    stop(helper["process"])
    producer.ask("ready", hash="b")
    running.said("reading over nixl", times=2)
    while True:
        node = status(chiasm, running.pid)
        blocks = node["blocks"]
        assert blocks["free"] + blocks["live"] + blocks["quarantined"] == blocks["total"]
        if node["nixl"]["read_kills"] == 1 and blocks["quarantined"] == 0:
            break
    keeper.ask("ready", hash="late")
    done = running.wait()
    assert done.verdicts() == dict.fromkeys(params, ("fetched", None)), done.err
    assert stored(tmp_path / "out", "b") == content("b", 3)
