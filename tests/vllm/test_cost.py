"""What the hook that is called for every waiting request costs in a step: counted, not timed."""

import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.vllm.engine import ROW_BYTES, WIDTH, Engine, image, in_a_row, request


def calls_in(work: Callable[[], object]) -> tuple[object, list[str]]:
    """What `work` gives, and the names of all functions that were called in it."""
    names: list[str] = []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(argument.__name__)

    sys.setprofile(note)
    try:
        answer = work()
    finally:
        sys.setprofile(None)
    # What this function calls itself.
    names.remove("setprofile")
    return answer, names


@pytest.mark.parametrize("items", [1, 8])
def test_a_waiting_request_costs_one_native_call_however_many_items_it_has(
    start: Callable[..., Engine], items: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=[f"127.0.0.1:{port}"])
        names = [f"item-{number}" for number in range(items)]
        offer = {
            "peer_host": "127.0.0.1",
            "peer_port": port,
            "size_bytes": ROW_BYTES,
            "shape": [1, WIDTH],
        }
        features = in_a_row(*(image(name, 1, data="sizes") for name in names))
        waiting = request("r", features, dict.fromkeys(names, offer))
        ensure = consumer.connector.ensure_cache_available
        assert not ensure(waiting, 0), "the first call makes it known"
        answer, called = calls_in(lambda: ensure(waiting, 0))
        assert answer is False
        of_hook = ["ensure_cache_available", "ensure_cache_available", "len", "ensure"]
        assert called == ["<lambda>", *of_hook]
