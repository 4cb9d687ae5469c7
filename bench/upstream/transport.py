"""Upstream's own NIXL transport, unmodified, in a process of its own, for `bench.nixl`."""

import os
import time
from multiprocessing.connection import Connection
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


def serve(pipe: Connection, name: str, blocks: int, block_bytes: int) -> None:
    """Answer commands until the pipe ends."""
    upstream = Upstream(name, blocks, block_bytes)
    pipe.send(upstream.about())
    try:
        while True:
            while not pipe.poll(0.001):
                upstream.transport.get_new_notifs()
            operation, arguments = pipe.recv()
            pipe.send(getattr(upstream, operation)(**arguments))
    except (EOFError, OSError):
        # NIXL's threads and an interpreter that ends do not always agree.
        os._exit(0)
