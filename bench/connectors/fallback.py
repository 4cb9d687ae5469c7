"""How long upstream's connector waits for a producer that is gone before it lets the item be
encoded here.

All kinds at once, in one scheduler that steps once a millisecond, since each takes a minute: what
refuses connections, what swallows them, and two producers that have been read from and are then
killed and stopped.
"""

import logging
import os
import signal
import socket
import time
from typing import Any

from bench.connectors.config import (
    BLOCK_BYTES,
    EXTRA,
    WIDTH,
    free_port,
    scheduler_side,
    vllm_config,
)
from bench.connectors.requests import announced, feature, request
from bench.rows import Effort, parser, row
from bench.upstream.common import COMPAT

ROWS = 4
TICK_S = 0.001
LIMIT_S = 200.0
# To the end of this process: NIXL's agent waits for peers that are gone when it is taken down.
KEPT: list[Any] = []


def ask(name: str, port: int, local: bool) -> Any:
    params = {name: announced(port, ROWS, WIDTH)}
    return request(f"of-{name}", [feature(name, ROWS, 1, local)], params)


def step(connector: Any, waiting: dict[str, Any]) -> list[str]:
    """One step of the engine; who need not wait any more."""
    from vllm.v1.core.sched.output import SchedulerOutput

    over = [name for name, it in waiting.items() if connector.ensure_cache_available(it, 0)]
    assert not connector.take_unavailable_requests(), "a request has failed"
    connector.build_connector_meta(SchedulerOutput.make_empty())
    return over


def swallowing() -> list[socket.socket]:
    """A listener whose queue is full, first: who connects hears nothing."""
    kept = [socket.socket()]
    kept[0].bind(("127.0.0.1", 0))
    kept[0].listen(0)
    for _ in range(8):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(kept[0].getsockname())
        kept.append(filler)
    return kept


def main(arguments: list[str]) -> None:
    from vllm.distributed.ec_transfer.ec_connector.cpu import scheduler

    from bench.upstream.pair import Served

    effort = Effort(parser(__doc__).parse_args(arguments).effort)
    logging.disable(logging.CRITICAL)
    lost = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
    # Before this process has anything to do with NIXL, which does not outlive a fork.
    names = {kind: str(number) for number, kind in enumerate(lost)}
    producers = {kind: Served(64, [names[kind]], ROWS, BLOCK_BYTES) for kind in lost}
    connector = scheduler_side(vllm_config("upstream", "ec_consumer", 1024, **EXTRA["upstream"]))
    connector.connector_scheduler._compat_hash = COMPAT
    KEPT.append(connector)
    for kind, producer in producers.items():
        met = {kind: ask(names[kind], producer.port, False)}
        while not step(connector, met):
            time.sleep(TICK_S)
    if effort.is_smoke:
        # Only whether this runs: with upstream's own budget it takes a minute.
        scheduler._ADMIT_DEFER_TIMEOUT_S = 0.5
    for kind, number in lost.items():
        pid = producers[kind].process.pid
        assert pid is not None
        os.kill(pid, number)
        # Until that has come about.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    kept = swallowing()
    ports = {kind: producer.port for kind, producer in producers.items()}
    ports |= {"refused": free_port(), "swallowed": kept[0].getsockname()[1]}
    start = time.monotonic()
    waiting = {kind: ask(f"of {kind}", port, True) for kind, port in ports.items()}
    while waiting:
        assert time.monotonic() - start < LIMIT_S, f"{list(waiting)} wait on"
        for name in step(connector, waiting):
            del waiting[name]
            took = time.monotonic() - start
            row("fallback", "upstream", {"producer": name}, "to_fallback_s", took)
        time.sleep(TICK_S)
    for producer in producers.values():
        producer.process.kill()
    for it in kept:
        it.close()
