"""A foreign NIXL agent, driven over standard input: one JSON line in, one JSON line out.

Runs under the interpreter that has `nixl` and stands for whatever speaks NIXL on the other side.
It has one buffer of host memory, and makes progress every millisecond while it waits for a command.
"""

import json
import select
import sys
import time
from typing import Any

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config  # type: ignore[import-not-found]

# A hang is a failure with a name.
LIMIT_S = 30.0


class Peer:
    """The agent, its buffer, and the agents that it knows."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.agent = nixl_agent(name, nixl_agent_config(enable_prog_thread=False, backends=["UCX"]))
        self.buffer = np.zeros(size_bytes, dtype=np.uint8)
        self.address = self.buffer.ctypes.data
        self.registered = self.agent.register_memory(
            [(self.address, size_bytes, 0, "")], mem_type="DRAM"
        )
        self.notes: list[tuple[str, str]] = []
        self.handle: Any = None

    def progress(self) -> None:
        """Let UCX work, and keep the notifications that have come."""
        for name, texts in self.agent.get_new_notifs().items():
            self.notes += [(name, text.decode()) for text in texts]

    def about(self) -> dict[str, Any]:
        return {"address": self.address, "metadata": self.agent.get_agent_metadata().hex()}

    def fill(self, offset: int, data: str) -> None:
        raw = np.frombuffer(bytes.fromhex(data), dtype=np.uint8)
        self.buffer[offset : offset + raw.size] = raw

    def bytes(self, offset: int, size: int) -> str:
        return self.buffer[offset : offset + size].tobytes().hex()

    def load(self, metadata: str) -> str:
        name = self.agent.add_remote_agent(bytes.fromhex(metadata))
        return name.decode() if isinstance(name, bytes) else str(name)

    def transfer(
        self,
        operation: str,
        agent: str,
        local: list[tuple[int, int]],
        remote: list[tuple[int, int]],
        note: str,
        limit_s: float = LIMIT_S,
    ) -> dict[str, Any]:
        """Move runs of (offset, bytes) here and (address, bytes) there; how it stands.

        One that has not ended within the limit goes on with `finish`.
        """
        here = [(self.address + offset, size, 0) for offset, size in local]
        there = [(address, size, 0) for address, size in remote]
        started = time.perf_counter()
        try:
            handle = self.agent.initialize_xfer(
                operation,
                self.agent.get_xfer_descs(here, mem_type="DRAM"),
                self.agent.get_xfer_descs(there, mem_type="DRAM"),
                agent,
                note.encode(),
            )
            self.agent.transfer(handle)
        except Exception as error:  # its kinds are the bindings' own
            return {"state": "ERR", "error": f"{type(error).__name__}: {error}"}
        self.handle = handle
        return self.finish(limit_s) | {"took_s": time.perf_counter() - started}

    def finish(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Wait for the end of the last transfer."""
        end = time.monotonic() + limit_s
        try:
            state = self.agent.check_xfer_state(self.handle)
            while state == "PROC" and time.monotonic() < end:
                state = self.agent.check_xfer_state(self.handle)
            if state != "PROC":
                self.agent.release_xfer_handle(self.handle)
        except Exception as error:
            return {"state": "ERR", "error": f"{type(error).__name__}: {error}"}
        return {"state": state}

    def wait_notes(self, count: int) -> list[tuple[str, str]]:
        end = time.monotonic() + LIMIT_S
        while len(self.notes) < count and time.monotonic() < end:
            self.progress()
        return self.notes


def serve() -> None:
    """Answer commands until standard input ends."""
    peer: Peer | None = None
    while True:
        if peer is not None:
            while not select.select([sys.stdin], [], [], 0.001)[0]:
                peer.progress()
        line = sys.stdin.readline()
        if not line:
            return
        command = json.loads(line)
        operation = command.pop("op")
        if operation == "start":
            peer = Peer(**command)
            answer: Any = peer.about()
        else:
            answer = getattr(peer, operation)(**command)
        print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    serve()
