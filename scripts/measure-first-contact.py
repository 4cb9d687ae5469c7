"""What a consumer pays for its first contact with an upstream producer of very many blocks.

And what a node costs that has both NIXL helpers, two peers connected, and nothing to do.

    .venv/bin/python scripts/measure-first-contact.py [BLOCKS] [SECONDS]

The first ack of such a producer lists every block of its region: 14 MB for a million. Needs
`make vllm` and the package in the interpreter that runs this (`make wheel`). The node lives in
this process, as in an engine; the producer and, afterwards, two consumers are upstream's
unmodified sessions.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from chiasm._native import READY, WAIT, Model, Node, Settings
from tests.interop.nixl.processes import environment
from tests.interop.upstream.instances import Nursery, Upstream

# Rows of 32 numbers of 2 bytes: what counts is how many blocks there are, not how long they are.
WIDTH = 32
BLOCK = 2 * WIDTH
ROWS = 16


def library() -> str:
    """Where the Python with vLLM has NIXL."""
    found = sorted(environment().glob("lib/python3*/site-packages/**/libnixl_capi.so"))
    assert found, "there is no libnixl_capi.so: make vllm"
    return str(found[0])


def node() -> tuple[Node, str]:
    """A node in both roles, and its compatibility hash."""
    extra = {
        "ec_cpu_bytes": 1024 * BLOCK,
        "ec_remote": True,
        "ec_planes": ["nixl"],
        "ec_nixl_library": library(),
    }
    config = {
        "ec_connector": "ChiasmConnector",
        "ec_role": "ec_both",
        "engine_id": f"measure-{os.getpid()}",
        "ec_connector_extra_config": extra,
    }
    model = Model(vllm_version="0.33.0", model="m", dtype="torch.bfloat16", row_elements=WIDTH)
    return Node(Settings(json.dumps(config), host_address="127.0.0.1"), model), model.compat_hash


def resident_mib(field: str) -> float:
    """VmRSS, or VmHWM: the most since it was last set back."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(field)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Helper processes of the node: children of this process that are no Python of vLLM's."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"nixl_helper" in command:
            found.append(int(path.parent.name))
    return found


def fetched(held: Node, name: str, producer: Upstream, port: int) -> dict[str, float]:
    """One entry of the producer, from `track` to READY, with the calls of an engine that steps."""
    producer.ask("save", hash=name, blocks=ROWS)
    address = {"peer_host": "127.0.0.1", "peer_port": port}
    params = {name: {**address, "size_bytes": ROWS * BLOCK, "shape": [ROWS, WIDTH]}}
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_mib("VmRSS")
    calls = []

    def call(what: Any) -> Any:
        started = time.perf_counter()
        answer = what()
        calls.append(time.perf_counter() - started)
        return answer

    started = time.perf_counter()
    items = [(name, 100, ROWS, None, False)]
    state = call(lambda: held.track(f"of-{name}", items, params, 0))
    while state == WAIT:
        time.sleep(0.0005)
        state = call(lambda: held.ensure(f"of-{name}", 1, 0))
    assert state == READY, f"it did not come: {state}"
    return {
        "all_ms": (time.perf_counter() - started) * 1e3,
        "longest_call_ms": max(calls) * 1e3,
        "calls": len(calls),
        "more_memory_at_most_mib": resident_mib("VmHWM") - before,
        "more_memory_after_mib": resident_mib("VmRSS") - before,
    }


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 20.0
    os.environ["VIRTUAL_ENV"] = str(environment())
    with tempfile.TemporaryDirectory() as folder:
        nursery = Nursery(Path(folder))
        held, compat = node()
        peers: list[Upstream] = []
        try:
            about = {"blocks": blocks, "block": BLOCK, "compat": compat}
            producer = Upstream(nursery, "producer", agent="million", port=0, **about)
            peers.append(producer)
            port = producer.about["port"]
            held.set_allowed_peers([f"127.0.0.1:{port}"])
            for name in ("first", "second"):
                print(f"{blocks} blocks, {name} contact")
                for what, value in fetched(held, name, producer, port).items():
                    print(f"  {what:25} {value:10.3f}", flush=True)
            for number in range(2):
                about = {"blocks": 64, "block": BLOCK, "compat": compat}
                consumer = Upstream(nursery, "consumer", agent=f"idle-{number}", **about)
                peers.append(consumer)
                consumer.ask("read", port=held.port, hash="first", blocks=list(range(ROWS)))
                ((_, _, word),) = consumer.ask("result")
                assert word == "completed", word
            helpers = children(os.getpid())
            assert len(helpers) == 2, helpers
            time.sleep(3)
            pids = [os.getpid(), *helpers]
            before = [cpu_s(pid) for pid in pids]
            time.sleep(seconds)
            used = [cpu_s(pid) - was for pid, was in zip(pids, before, strict=True)]
            shown = ", ".join(f"{it:.2f}" for it in used)
            print(f"idle for {seconds:.0f} s: CPU seconds of node and helpers: {shown}")
        finally:
            held.shutdown()
            for peer in reversed(peers):
                peer.close()
            nursery.close()


if __name__ == "__main__":
    main()
