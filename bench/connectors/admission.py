"""What a call of `ensure_cache_available` costs: the hook that is asked for every waiting request
in every step.

Both connectors as vLLM's scheduler holds them, and the same requests. Chiasm's has its node, its
thread and its sockets; a producer accepts its connections and says nothing. Upstream's is asked
without its NIXL, whose threads would only be in its way, and what it waits for is put into its
books by hand; its control transport says that nothing has come.
"""

import gc
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.connectors.config import WHO, WIDTH, chiasm_worker, save, scheduler_side, vllm_config
from bench.connectors.requests import announced, feature, request
from bench.rows import Effort, parser, row

STATES = ("no params", "local hit", "in flight", "cache full", "computed")
WAITING = (1, 100, 1000, 10_000)
ITEMS = (1, 8)
ROWS = 1
MANY_TOKENS = 1000
# Longer than any of this takes, so that what waits does so throughout.
LONG_S = 600
PATIENCE_S = 30


class Quiet:
    """Upstream's control transport when nothing has come."""

    def poll(self) -> dict[Any, Any]:
        return {}

    def poll_dead(self) -> list[Any]:
        return []

    def close(self) -> None:
        pass


def requests(local: bool, waiting: int, items: int, port: int) -> list[Any]:
    """So many, with input of their own or with announcements."""
    made = []
    for number in range(waiting):
        names = [f"{number:08x}{item:02x}{'a' * 54}" for item in range(items)]
        features = [feature(name, ROWS, 10 * at, local) for at, name in enumerate(names)]
        offer = announced(port, ROWS, WIDTH)
        params = None if local else dict.fromkeys(names, offer)
        made.append(request(f"request-{number}", features, params))
    return made


@contextmanager
def upstream(state: str, blocks: int, asked: list[Any]) -> Iterator[Any]:
    connector = scheduler_side(vllm_config("upstream", "ec_consumer", blocks))
    side = connector.connector_scheduler
    side._nixl_enabled, side._transport, side._compat_hash = True, Quiet(), "c" * 64
    side._ack_timeout_s = 30.0
    if state == "cache full":
        side._cache.alloc("hog", blocks, (blocks, WIDTH))
    if state in ("local hit", "in flight"):
        for one in asked:
            for it in one.mm_features:
                side._cache.alloc(it.identifier, ROWS, (ROWS, WIDTH))
                if state == "local hit":
                    side._cache.mark_ready(it.identifier)
                else:
                    side._in_flight.add(it.identifier)
    yield connector
    side._nixl_enabled = False
    connector.shutdown()


@contextmanager
def chiasm(state: str, blocks: int, asked: list[Any], port: int) -> Iterator[Any]:
    times = ("connect_timeout_s", "consumer_ack_timeout_s", "save_timeout_s")
    config = vllm_config(
        "chiasm",
        "ec_both",
        blocks,
        ec_remote=True,
        ec_planes=["tcp"],
        ec_allowed_peers=[f"127.0.0.1:{port}"],
        wait_budget_s=2 * LONG_S,
        **dict.fromkeys(times, LONG_S),
    )
    worker = chiasm_worker(config)
    connector = scheduler_side(config)
    node = connector.scheduler_side._node
    if state == "cache full":
        assert node.dispatch_save("hog", blocks, WIDTH) is not None
    if state == "local hit":
        for one in asked:
            for it in one.mm_features:
                save(connector, worker, it.identifier, ROWS)
    yield connector
    connector.shutdown()
    worker.shutdown()


def measure(who: str, state: str, asked: list[Any], port: int, seconds: float) -> float:
    """The median of the steps, in microseconds a call."""
    blocks = max(64, sum(len(one.mm_features) for one in asked) * ROWS + 64)
    if state == "cache full":
        blocks = 64
    tokens = MANY_TOKENS if state == "computed" else 0
    expected = state not in ("in flight", "cache full")
    made = chiasm(state, blocks, asked, port) if who == "chiasm" else upstream(state, blocks, asked)
    with made as connector:
        ensure = connector.ensure_cache_available
        # The first call of each makes it known; a save is ready once the node has heard of it.
        end = time.perf_counter() + PATIENCE_S
        answers = {ensure(one, tokens) for one in asked}
        while answers != {expected}:
            assert time.perf_counter() < end, f"{who}, {state}: {answers}"
            answers = {ensure(one, tokens) for one in asked}
        steps: list[float] = []
        end = time.perf_counter() + seconds
        while len(steps) < 3 or time.perf_counter() < end:
            if who == "upstream":
                # A new step: its first call looks for messages.
                connector.connector_scheduler._first_in_batch = True
                connector.connector_scheduler._step_completed.clear()
            start = time.perf_counter()
            for one in asked:
                ensure(one, tokens)
            steps.append(time.perf_counter() - start)
        assert ensure(asked[-1], tokens) is expected, "it was so to the end"
    return sorted(steps)[len(steps) // 2] / len(asked) * 1e6


def main(arguments: list[str]) -> None:
    made = parser(__doc__)
    made.add_argument("who", choices=WHO)
    chosen = made.parse_args(arguments)
    effort = Effort(chosen.effort)
    seconds = effort.choose(0.3, 0.05, 0.0)
    logging.disable(logging.CRITICAL)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        for waiting in WAITING[: effort.choose(4, 3, 1)]:
            for items in ITEMS:
                announced_ones = requests(False, waiting, items, port)
                with_input = requests(True, waiting, items, port)
                gc.freeze()
                for state in STATES:
                    asked = with_input if state == "no params" else announced_ones
                    us = measure(chosen.who, state, asked, port, seconds)
                    case = {"state": state, "waiting": waiting, "items": items}
                    row("admission", chosen.who, case, "call_us", us)
