"""Live nodes as `chiasm status` shows them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.chiasm import MAX_SECONDS, Chiasm


def socket_of(region: Path) -> Path:
    """The status socket beside a region."""
    return region.with_name(f"{region.name}.status")


def status(chiasm: Chiasm, node: str) -> Any:
    """Everything about one node."""
    done = chiasm.run("status", node, "--json")
    assert done.code == 0, done
    assert done.err == ""
    return done.json


def running(chiasm: Chiasm, pid: int) -> Any | None:
    """Everything about the node of a process, if it has one by now."""
    nodes = chiasm.run("status", "--json").json["nodes"]
    mine = [node for node in nodes if node["node"]["process"] == pid]
    return mine[0] if mine else None


def until(look: Callable[[], Any | None], what: str) -> Any:
    """Looks again and again until there is something to see. Each look starts a process."""
    end = time.monotonic() + MAX_SECONDS
    while (seen := look()) is None:
        assert time.monotonic() < end, f"{what}: never seen"
    return seen


def granted(chiasm: Chiasm, endpoint: str) -> Any:
    """The node at this endpoint, once it has granted something that is not over."""

    def look() -> Any | None:
        seen = status(chiasm, endpoint)
        return seen if seen["serving"]["grants"] else None

    return until(look, "a grant")


def rests(chiasm: Chiasm, endpoint: str, *, evictable: int) -> None:
    """Waits until the node has nothing but so many evictable blocks: no grant, no pin, no peer."""

    def look() -> Any | None:
        seen = status(chiasm, endpoint)
        blocks, serving = seen["blocks"], seen["serving"]
        assert blocks["free"] + blocks["live"] + blocks["quarantined"] == blocks["total"], seen
        kept = [serving["grants"], serving["pinned_blocks"], blocks["quarantined"]]
        kept += [seen["entries"]["pinned"], serving["connections"], serving["streams"]]
        return seen if not any(kept) else None

    blocks = until(look, "a node at rest")["blocks"]
    assert blocks["evictable"] == evictable
    assert blocks["free"] == blocks["total"] - evictable
