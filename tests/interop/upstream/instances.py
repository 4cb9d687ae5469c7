"""Upstream instances as the tests hold them, and what Chiasm's side says of itself."""

import contextlib
import hashlib
import itertools
import json
import os
import random
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.chiasm import Producer as ChiasmProducer
from tests.cli.stopping import stands_still
from tests.interop.nixl.processes import LIMIT_S, environment, variables

HERE = Path(__file__).resolve().parent
COMPAT = "c" * 64
# Rows of 512 numbers of 2 bytes.
BLOCK = 1024
WIDTH = 512
IDENTITY = [f"--compat-hash={COMPAT}", f"--block={BLOCK}", "--dtype=bfloat16"]

# On a machine that is busy with other builds it takes a minute.
IMPORT_LIMIT_S = 300.0

Start = Callable[..., Any]
_numbers = itertools.count()


class Nursery:
    """The process that has imported vLLM, and of which every upstream instance is a child."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "nursery"
        self.process = subprocess.Popen(
            [environment() / "bin/python", HERE / "peer.py", self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables(None),
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], IMPORT_LIMIT_S)
        assert ready, f"vLLM is not imported after {IMPORT_LIMIT_S} s"
        assert self.process.stdout.readline() == b"ready\n"

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=LIMIT_S)
        self.process.stdout.close()


class Upstream:
    """An upstream instance in a process of its own."""

    def __init__(self, nursery: Nursery, role: str, **arguments: Any) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.settimeout(LIMIT_S)
        self.connection.connect(str(nursery.path))
        self.lines = self.connection.makefile("r")
        self.pid: int = json.loads(self.lines.readline())["answer"]
        self.pidfd = os.pidfd_open(self.pid)
        self.about = self.ask("start", role=role, **arguments)

    def ask(self, operation: str, /, **arguments: Any) -> Any:
        order = {"op": operation, "arguments": arguments}
        self.connection.sendall(json.dumps(order).encode() + b"\n")
        line = self.lines.readline()
        assert line, f"the upstream instance has ended over {order}"
        return json.loads(line)["answer"]

    def signal(self, number: int) -> None:
        signal.pidfd_send_signal(self.pidfd, number)
        if number == signal.SIGSTOP:
            stands_still(self.pid)

    def wait(self) -> None:
        """Waits for its end."""
        ready, _, _ = select.select([self.pidfd], [], [], LIMIT_S)
        assert ready, "the upstream instance has not ended"

    def close(self) -> None:
        if self.lines.closed:
            return
        self.lines.close()
        self.connection.close()
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.wait()
        os.close(self.pidfd)
        for rank in ("", "_dp0"):
            region = Path(f"/dev/shm/vllm_ec_chiasm-interop-{self.pid}{rank}.mmap")
            region.unlink(missing_ok=True)


class Producer(Upstream):
    """An upstream producer of `blocks` blocks."""

    def __init__(self, nursery: Nursery, blocks: int = 64, agent: str = "", port: int = 0) -> None:
        agent = agent or f"upstream-producer-{next(_numbers)}"
        arguments = {"agent": agent, "blocks": blocks, "port": port}
        super().__init__(nursery, "producer", block=BLOCK, compat=COMPAT, **arguments)
        self.port = self.about["port"]
        self.endpoint = f"127.0.0.1:{self.port}"

    def save(self, name: str, blocks: int, ready: bool = True) -> list[int]:
        indices: list[int] = self.ask("save", hash=name, blocks=blocks, ready=ready)
        return indices

    def announcement(self, blocks: int, **changes: Any) -> dict[str, Any]:
        return {
            "modality": "image",
            "item_indices": [0],
            "metadata": {},
            "peer_host": "127.0.0.1",
            "peer_port": self.port,
            "size_bytes": blocks * BLOCK,
            "shape": [blocks, WIDTH],
        } | changes


class Consumer(Upstream):
    """An upstream consumer of `blocks` blocks."""

    def __init__(self, nursery: Nursery, blocks: int = 64, agent: str = "") -> None:
        agent = agent or f"upstream-consumer-{next(_numbers)}"
        arguments = {"agent": agent, "blocks": blocks}
        super().__init__(nursery, "consumer", block=BLOCK, compat=COMPAT, **arguments)

    def read(self, producer: ChiasmProducer, name: str, blocks: list[int], **more: Any) -> None:
        self.ask("read", port=producer.port, hash=name, blocks=blocks, **more)

    def result(self) -> tuple[str, str]:
        """Hash and word of the next result."""
        ((_, name, word),) = self.ask("result")
        return name, word

    def holds(self, store: Path, name: str, blocks: list[int]) -> bool:
        """Whether the bytes of the store's encoding are in these blocks."""
        data = stored(store, name)
        found = self.ask("sha256", blocks=blocks, size=len(data))
        return bool(found == hashlib.sha256(data).hexdigest())


class Engine(Upstream):
    """Upstream's whole scheduler side, in this role."""

    def __init__(self, nursery: Nursery, role: str, blocks: int = 64, port: int = 0) -> None:
        agent = f"upstream-engine-{next(_numbers)}"
        super().__init__(nursery, role, agent=agent, blocks=blocks, block=BLOCK, port=port)
        self.endpoint = f"127.0.0.1:{self.about['port']}"
        self.identity = [f"--compat-hash={self.about['compat']}", *IDENTITY[1:]]


def stored(store: Path, name: str) -> bytes:
    """The bytes of an encoding in a store, as safetensors has them."""
    path = store / name / stores.FILE_NAME
    header = int.from_bytes(path.read_bytes()[:8], "little")
    with safe_open(str(path), framework="np") as file:
        assert file.keys() == [stores.TENSOR]
    return path.read_bytes()[8 + header :]


def content(name: str, blocks: int) -> bytes:
    """What an upstream producer saves under this name."""
    data = random.Random(name).randbytes(blocks * BLOCK)
    assert np.frombuffer(data, dtype=np.uint8).nbytes == blocks * BLOCK
    return data


def produce(
    chiasm: Chiasm, store: Path, *arguments: str, identity: Sequence[str] = IDENTITY
) -> ChiasmProducer:
    """A Chiasm producer that serves over nixl and is ready to."""
    producer = chiasm.produce(store, "--planes=nixl", "--log=info", *identity, *arguments)
    producer.running.said("serving over nixl")
    return producer


def status(chiasm: Chiasm, pid: int) -> dict[str, Any]:
    """What `chiasm status` says of the node in this process."""
    nodes = chiasm.run("status", "--json").json["nodes"]
    (mine,) = (node for node in nodes if node["node"]["process"] == pid)
    return dict(mine)
