"""What is true of a node between and after transfers, as `chiasm status` shows it.

Each wait is for something to be seen, and a look starts a process.
"""

import time
from collections.abc import Callable
from typing import Any

from tests.cli.chiasm import Chiasm
from tests.cli.nodes import until
from tests.interop.nixl.processes import LIMIT_S
from tests.interop.upstream.instances import Upstream, status


def kept(chiasm: Chiasm, pid: int) -> dict[str, Any]:
    """The node's status, in which every block is in one state and one only (S4)."""
    node = status(chiasm, pid)
    blocks = node["blocks"]
    assert blocks["free"] + blocks["live"] + blocks["quarantined"] == blocks["total"], node
    return node


def seen(chiasm: Chiasm, pid: int, what: str, holds: Callable[[dict[str, Any]], bool]) -> Any:
    """Waits until this holds of the status; S4 holds at every look."""

    def look() -> Any | None:
        node = kept(chiasm, pid)
        return node if holds(node) else None

    return until(look, what)


def at_rest(chiasm: Chiasm, pid: int) -> dict[str, Any]:
    """Waits until nothing is granted, pinned or in quarantine."""

    def rests(node: dict[str, Any]) -> bool:
        serving = node["serving"]
        held = (serving["grants"], serving["pinned_blocks"], node["blocks"]["quarantined"])
        return not any(held)

    return dict(seen(chiasm, pid, "a node at rest", rests))


def reads(consumer: Upstream) -> None:
    """Waits until NIXL has a read of this upstream consumer's."""
    end = time.monotonic() + LIMIT_S
    while consumer.ask("reading") == 0:
        assert time.monotonic() < end, "it does not read"
