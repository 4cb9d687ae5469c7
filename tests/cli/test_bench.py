"""`chiasm bench`: rows for machines, a table for people, a fleet that loses nothing."""

import json

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.namespace import private


def test_every_figure_is_a_row(chiasm: Chiasm) -> None:
    done = chiasm.run("bench", "ack", "--quick", "--json")
    assert done.code == 0, done
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert {row["metric"] for row in rows} == {"ack_bytes", "request_to_ack_us"}
    assert len(rows) == 18
    sizes: dict[str, set[float]] = {}
    for row in rows:
        if row["metric"] == "ack_bytes":
            sizes.setdefault(row["what"], set()).add(row["value"])
    (to_chiasm,) = sizes["chiasm"]
    (to_upstream_later,) = sizes["chiasm, to upstream later"]
    assert to_chiasm < 450, "whatever the size of the region"
    assert to_upstream_later < 2048, "without the list of blocks"
    assert len(sizes["chiasm, to upstream at first"]) == 3, "each with the list of its blocks"
    table = chiasm.run("bench", "ack", "--quick")
    assert table.code == 0, table
    assert table.out.split()[:5] == ["family", "case", "who", "metric", "value"]


def test_an_unknown_family_is_named(chiasm: Chiasm) -> None:
    assert "'everything'" in chiasm.run("bench", "everything").one_error()


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True], ids=["quiet", "one is killed"])
def test_a_fleet_moves_everything_and_leaves_nothing(chiasm: Chiasm, kill: bool) -> None:
    flags = ["--quick", "--json", *(["--kill"] if kill else [])]
    with private(shm_bytes=8 << 30) as namespace:
        done = chiasm.run("bench", "fleet", *flags, prefix=namespace.prefix)
        assert stores.names(namespace.path("/dev/shm")) == []
    assert done.code == 0, done
    rows = [json.loads(line) for line in done.out.splitlines()]
    for plane in ("shm", "tcp"):
        found = {row["metric"]: row["value"] for row in rows if row["case"]["plane"] == plane}
        assert found["asked"] > 0
        assert found["unavailable"] == 0
        assert found["ready"] + found["fallbacks"] == found["asked"]
        assert (found["lost"], found["consumers_left"]) == (0, 4)
        # What the killed one held can be had from nobody else.
        assert (found["fallbacks"] > 0) == kill
