#!/usr/bin/env python3
"""What calls of the native module cost: `ensure` with many requests waiting, and the import.

Needs the package in the interpreter that runs this (`make wheel`, then .venv/bin/python). Requests
wait for a producer that accepts connections and says nothing, so every item is in flight or waits
for its turn. Prints one line per figure: the median over rounds, the fastest and the slowest round.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from chiasm._native import READY, WAIT, Model, Node, Settings

ROW_ELEMENTS = 512
ITEMS = 8


def node(region_blocks: int, peer: str, name: str) -> Node:
    extra = {
        "ec_cpu_bytes": region_blocks * 2 * ROW_ELEMENTS,
        "ec_remote": True,
        "ec_allowed_peers": [peer],
        # Longer than the measurement, so that everything waits throughout.
        **dict.fromkeys(("wait_budget_s", "connect_timeout_s", "consumer_ack_timeout_s"), 600),
    }
    config = {
        "ec_connector": "ChiasmConnector",
        "ec_role": "ec_consumer",
        "engine_id": f"measure-{os.getpid()}-{name}",
        "ec_connector_extra_config": extra,
    }
    model = Model(
        vllm_version="0.33.0", model="m", dtype="torch.bfloat16", row_elements=ROW_ELEMENTS
    )
    return Node(Settings(json.dumps(config), host_address="127.0.0.1"), model)


def say(what: str, rounds: list[float], unit: str) -> None:
    middle = statistics.median(rounds)
    print(f"{what}: {middle:.3f} {unit} ({min(rounds):.3f} to {max(rounds):.3f})", flush=True)


def per_call_us(calls: int, step: Callable[[], None], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        step()
        found.append((time.perf_counter() - start) / calls * 1e6)
    return found


def measure_ensure(requests: int, rounds: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        peer = f"127.0.0.1:{silent.getsockname()[1]}"
        address = {"peer_host": "127.0.0.1", "peer_port": silent.getsockname()[1]}
        held = node(requests * ITEMS, peer, str(requests))
        ids = [f"request-{number}" for number in range(requests)]

        def track() -> None:
            for request in ids:
                names = [f"{request}-{item}" for item in range(ITEMS)]
                offer = {**address, "size_bytes": 2 * ROW_ELEMENTS, "shape": [1, ROW_ELEMENTS]}
                params = dict.fromkeys(names, offer)
                items = [(name, 100, 1, None, False) for name in names]
                assert held.track(request, items, params, 0) == WAIT

        say(
            f"track, {ITEMS} items, {requests} requests", per_call_us(requests, track, 1), "us/call"
        )
        ensure = held.ensure
        assert all(ensure(request, ITEMS, 0) == WAIT for request in ids)

        def step() -> None:
            for request in ids:
                ensure(request, ITEMS, 0)

        what = f"ensure, {requests} waiting x {ITEMS} items"
        say(what, per_call_us(requests, step, rounds), "us/call")
        assert all(ensure(request, ITEMS, 0) == WAIT for request in ids), "they wait to the end"

        def loop_alone() -> None:
            for request in ids:
                len(request)

        say("  of that the loop, with len()", per_call_us(requests, loop_alone, rounds), "us/call")
        ready = "ready"
        assert held.track(ready, [("r", 1, 1, None, True)], {}, 0) == READY

        def one() -> None:
            for _ in range(requests):
                ensure(ready, 1, 0)

        say("ensure, one ready", per_call_us(requests, one, rounds), "us/call")
        held.shutdown()


def measure_import(rounds: int) -> None:
    code = "import time; t=time.perf_counter(); import chiasm; print(time.perf_counter()-t)"
    times = []
    for _ in range(rounds):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        times.append(float(done.stdout) * 1e3)
    say("import chiasm", times, "ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=31)
    arguments = parser.parse_args()
    for requests in arguments.requests:
        measure_ensure(requests, arguments.rounds)
    measure_import(arguments.rounds)
