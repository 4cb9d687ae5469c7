"""What a connector does in an idle engine, with two peers connected that have read.

The loop is that of vLLM's engine core: while a connector has pending push work there is another
step at once; else the core sleeps until a request comes. The helper processes of Chiasm's node are
counted with it.
"""

import logging
import os
import time
from multiprocessing.connection import Connection
from typing import Any

from bench.apart import processes
from bench.connectors.config import (
    BLOCK_BYTES,
    EXTRA,
    WHO,
    chiasm_worker,
    save,
    scheduler_side,
    vllm_config,
)
from bench.connectors.memory import children, used
from bench.rows import Effort, parser, row

BLOCKS = 1024
ROWS = 16
PEERS = 2


def peer(pipe: Connection) -> None:
    """A consumer of upstream's that is told of a producer, reads one entry and stays connected."""
    from bench.upstream.pair import TICK_S, Reader, ended

    port, compat = pipe.recv()
    reader = Reader(port, BLOCKS, BLOCK_BYTES, compat)
    reader.start("known", list(range(ROWS)))
    while not ended(reader.tick()):
        time.sleep(TICK_S)
    pipe.send("read")
    while not pipe.poll(0.05):
        reader.tick()
    reader.close()
    os._exit(0)


def started() -> tuple[Connection, Any]:
    """A peer that is not told anything yet."""
    pipe, other = processes.Pipe()
    process = processes.Process(target=peer, args=(other,), daemon=True)
    process.start()
    other.close()
    return pipe, process


def address(connector: Any, config: Any) -> tuple[int, str]:
    """Port and compatibility hash of either connector."""
    side = getattr(connector, "connector_scheduler", None)
    if side is not None:
        return side._peer_port, side._compat_hash
    from chiasm.vllm import instance

    return connector.scheduler_side._node.port, instance.model_of(config).compat_hash


def step(connector: Any) -> None:
    """One step of an engine without requests."""
    from vllm.v1.core.sched.output import SchedulerOutput

    connector.build_connector_meta(SchedulerOutput.make_empty())


def engine(connector: Any, seconds: float) -> int:
    """The engine's loop for so long; how many steps it made."""
    steps, end = 0, time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if connector.has_pending_push_work():
            step(connector)
            steps += 1
        else:
            time.sleep(left)
    return steps


def main(arguments: list[str]) -> None:
    made = parser(__doc__)
    made.add_argument("who", choices=WHO)
    chosen = made.parse_args(arguments)
    who, effort = chosen.who, Effort(chosen.effort)
    logging.disable(logging.CRITICAL)
    # Before this process has anything to do with NIXL, which does not outlive a fork.
    peers = [started() for _ in range(PEERS)]
    config = vllm_config(who, "ec_both", BLOCKS, **EXTRA[who])
    worker = chiasm_worker(config) if who == "chiasm" else None
    connector = scheduler_side(config)
    save(connector, worker, "known", ROWS)
    for pipe, process in peers:
        pipe.send(address(connector, config))
        while not pipe.poll(0.001):
            assert process.is_alive(), "a peer has ended"
            step(connector)
        pipe.recv()
    engine(connector, effort.choose(3.0, 1.0, 0.05))
    pids = [os.getpid(), *children(os.getpid(), b"nixl_helper")]
    before = [used(pid) for pid in pids]
    start = time.monotonic()
    steps = engine(connector, effort.choose(15.0, 3.0, 0.1))
    seconds = time.monotonic() - start
    after = [used(pid) for pid in pids]
    pairs = list(zip(before, after, strict=True))
    busy = sum(now[0] - was[0] for was, now in pairs) / seconds
    sleeps = sum(now[1] - was[1] for was, now in pairs) / seconds
    case = {"peers_connected": PEERS, "plane": "nixl"}
    row("idle", who, case, "cpu_percent", 100 * busy)
    row("idle", who, case, "wake_ups_per_s", sleeps)
    row("idle", who, case, "engine_steps_per_s", steps / seconds)
    for pipe, process in peers:
        pipe.send("enough")
        process.join(10)
    connector.shutdown()
    if worker is not None:
        worker.shutdown()
