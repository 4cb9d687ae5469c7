"""Upstream's own NIXL transport, unmodified, for `bench/nixl.py`.

Runs under the interpreter that has vLLM. One JSON line in, one JSON line out.
"""

import json
import select
import sys
import time
from typing import Any

import numpy as np
from vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl import NixlDataTransport


class Upstream:
    """One transport over a buffer of its own."""

    def __init__(self, name: str, blocks: int, block_bytes: int) -> None:
        self.buffer = np.zeros(blocks * block_bytes, dtype=np.uint8)
        self.transport = NixlDataTransport(
            name, self.buffer.ctypes.data, blocks, block_bytes, blocks * block_bytes
        )

    def about(self) -> dict[str, str]:
        return {
            "metadata": self.transport.get_agent_metadata().hex(),
            "descriptor": self.transport.get_mem_descriptor().hex(),
        }

    def add(self, metadata: str, descriptor: str) -> str:
        # Bytes, whatever its signature says; to be given back as they are.
        self.agent: Any = self.transport.add_remote_peer(
            bytes.fromhex(metadata), bytes.fromhex(descriptor)
        )
        return str(self.agent)

    def read(self, local: list[int], remote: list[int], repeat: int) -> list[float]:
        """Seconds of each of so many reads, one after another."""
        took = []
        for _ in range(repeat):
            started = time.perf_counter()
            handle = self.transport.post_read(local, self.agent, remote, b"session:hash")
            while self.transport.check_xfer_state(handle) == "PROC":
                pass
            took.append(time.perf_counter() - started)
            self.transport.release_xfer_handle(handle)
        return took


def serve() -> None:
    """Answer commands until standard input ends."""
    upstream: Upstream | None = None
    while True:
        if upstream is not None:
            while not select.select([sys.stdin], [], [], 0.001)[0]:
                upstream.transport.get_new_notifs()
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        operation = command.pop("op")
        if operation == "start":
            upstream = Upstream(**command)
            answer: Any = upstream.about()
        else:
            answer = getattr(upstream, operation)(**command)
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    serve()
