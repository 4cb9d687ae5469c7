"""An upstream instance: vLLM's unmodified ECCPUConnector classes, over their own sockets and NIXL.

Runs in the interpreter that has vLLM. Importing that takes a minute on a busy machine, so it is
done once: each connection to the Unix socket that the first argument names gets a child, which is
one instance. It is forked before NIXL has been touched. It takes one JSON object a line and answers
with one; between them it does what an engine's steps do: it polls its session. What a session
reports in between is kept until it is asked for.
"""

import contextlib
import hashlib
import json
import logging
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import msgspec
import numpy as np
from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import (
    ZmqClientTransport,
    ZmqServerTransport,
)
from vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl import NixlDataTransport
from vllm.distributed.ec_transfer.ec_connector.cpu.ec_shared_region import ECSharedRegion
from vllm.distributed.ec_transfer.ec_connector.cpu.protocol import (
    XferAck,
    XferReq,
    XferStatus,
)
from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache import (
    EmbeddingCache,
)
from vllm.distributed.ec_transfer.ec_connector.cpu.session import ConsumerSession, ProducerSession

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tests.interop.upstream.scheduler import Scheduler

logging.disable(logging.CRITICAL)

STEP_SECONDS = 0.002


def content(seed: str, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


class Instance:
    """A region and its NIXL agent."""

    def __init__(self, agent: str, blocks: int, block: int) -> None:
        name = f"chiasm-interop-{os.getpid()}"
        self.block = block
        self.region = ECSharedRegion(name, blocks, block)
        base = self.region.blocks.data_ptr()
        self.bytes = np.frombuffer(self.region._mmap_obj, dtype=np.uint8).reshape(blocks, block)
        self.data = NixlDataTransport(agent, base, blocks, block, blocks * block)

    def close(self) -> None:
        self.data.deregister()
        del self.bytes
        with contextlib.suppress(BufferError):
            self.region.cleanup()


class Producer:
    """A producer whose entries are told to it."""

    def __init__(self, agent: str, blocks: int, block: int, port: int, compat: str) -> None:
        self.instance = Instance(agent, blocks, block)
        self.cache = EmbeddingCache(blocks)
        self.transport = ZmqServerTransport("127.0.0.1", port)
        endpoint = self.transport._router.getsockopt_string(32)  # LAST_ENDPOINT
        self.port = int(endpoint.rpartition(":")[2])
        self.session = ProducerSession(self.transport, self.instance.data, self.cache, compat)
        self.paused = False

    def about(self) -> Any:
        return {"port": self.port}

    def step(self) -> None:
        if not self.paused:
            self.session.poll_step()

    def save(self, hash: str, blocks: int, ready: bool = True) -> Any:
        entry = self.cache.alloc(hash, blocks)
        size = self.instance.block
        data = content(hash, blocks * size)
        for at, index in enumerate(entry.block_ids):
            self.instance.bytes[index] = np.frombuffer(
                data[at * size : (at + 1) * size], dtype=np.uint8
            )
        if ready:
            self.cache.mark_ready(hash)
        return list(entry.block_ids)

    def scatter(self, blocks: int) -> Any:
        """Leaves every second block free, so that what comes next has no two adjacent ones."""
        names = [f"filler {number}" for number in range(2 * blocks)]
        for name in names:
            self.cache.alloc(name, 1)
        for name in names[::2]:
            self.cache.discard(name)
        for name in names[1::2]:
            self.cache.mark_ready(name)
            self.cache.pin(name)

    def ready(self, hash: str) -> None:
        self.cache.mark_ready(hash)

    def pause(self, on: bool) -> None:
        self.paused = on

    def refuse(self, status: str) -> None:
        """From here on it refuses everything, in its own form of this."""
        refusal = XferStatus[status]
        self.session._grant_or_nack = lambda req: XferAck(mm_hash=req.mm_hash, status=refusal)

    def damage(self, at: int) -> None:
        """From here on one byte of what it says of its agent is another."""
        metadata = bytearray(self.instance.data._agent_metadata)
        metadata[at] ^= 0x5A
        self.instance.data._agent_metadata = bytes(metadata)

    def truncate(self, length: int) -> None:
        """From here on what it says of its agent ends early."""
        self.instance.data._agent_metadata = self.instance.data._agent_metadata[:length]

    def forge(self, rows: list[list[int]]) -> None:
        """From here on it describes these blocks as its own."""
        self.instance.data._mem_descriptor_bytes = msgspec.msgpack.encode(rows)

    def grants(self) -> int:
        return len(self.session._active_xfers)

    def close(self) -> None:
        self.session.close()
        self.instance.close()


class Consumer:
    """A consumer of any number of producers."""

    def __init__(self, agent: str, blocks: int, block: int, compat: str) -> None:
        self.instance = Instance(agent, blocks, block)
        self.compat = compat
        self.transport = ZmqClientTransport()
        self.sessions: dict[int, ConsumerSession] = {}
        self.results: list[tuple[int, str, str]] = []
        self.heard: list[str] = []
        self.spoil = ""
        self.paused = False

    def about(self) -> Any:
        return {}

    def pause(self, on: bool) -> None:
        """As an engine in the middle of a long step: what comes waits in its sockets."""
        self.paused = on

    def session(self, port: int) -> ConsumerSession:
        if port not in self.sessions:
            address = ("127.0.0.1", port)
            connection = self.transport.connect(address)
            self.sessions[port] = ConsumerSession(
                address, connection, self.transport, self.instance.data, self.compat
            )
        return self.sessions[port]

    def read(self, port: int, hash: str, blocks: list[int], wait: float = 30.0) -> None:
        """Asks; with a `wait` of 0 the answer is late, however soon it comes."""
        session = self.session(port)
        session.start_xfer(hash, blocks, time.monotonic() + wait)
        if wait == 0:
            session.poll([], time.monotonic() + 1)

    def speak_version(self, port: int, version: int) -> None:
        """From here on its requests say that they are of another version of the connector."""
        session = self.session(port)
        encoder = msgspec.msgpack.Encoder()

        class Encoder:
            def encode(self, request: XferReq) -> bytes:
                request.connector_version = version
                return encoder.encode(request)

        session._encoder = Encoder()

    def statuses(self) -> list[str]:
        """The names of the acks that have come."""
        return self.heard

    def reading(self) -> int:
        """Reads that NIXL has been given and that have not ended."""
        xfers = [xfer for session in self.sessions.values() for xfer in session._xfers.values()]
        return sum(xfer.transfer_handle is not None for xfer in xfers)

    def spoil_next(self, how: str) -> None:
        """What happens to the next ack: it is lost, or its descriptor list is damaged."""
        self.spoil = how

    def step(self) -> None:
        if self.paused:
            return
        messages = self.transport.poll()
        for port, session in list(self.sessions.items()):
            mine = messages.get(("127.0.0.1", port), [])
            self.heard += [msgspec.msgpack.decode(raw, type=XferAck).status.name for raw in mine]
            if mine and self.spoil == "lose":
                mine, self.spoil = mine[1:], ""
            elif mine and self.spoil == "damage":
                ack = msgspec.msgpack.decode(mine[0], type=XferAck)
                ack.mem_descriptor = ack.mem_descriptor[:-1]
                mine, self.spoil = [msgspec.msgpack.encode(ack), *mine[1:]], ""
            session.poll(mine, time.monotonic())
            found = session.take_results()
            for word in ("completed", "tombstoned", "retryable", "quarantined"):
                self.results += [(port, hash, word) for hash in getattr(found, word)]
        for host, port in self.transport.poll_dead():
            session = self.sessions.pop(port)
            session.on_peer_down()
            found = session.take_results()
            for word in ("retryable", "quarantined"):
                self.results += [(port, hash, word) for hash in getattr(found, word)]
            session.close()
            assert host == "127.0.0.1"

    def result(self, count: int = 1) -> Any:
        """The next results, once there are so many. The test's own limit ends a wait."""
        while len(self.results) < count:
            self.step()
            time.sleep(STEP_SECONDS)
        results, self.results = self.results[:count], self.results[count:]
        return results

    def sha256(self, blocks: list[int], size: int) -> str:
        data = b"".join(self.instance.bytes[index].tobytes() for index in blocks)
        return hashlib.sha256(data[:size]).hexdigest()

    def forget(self, port: int) -> None:
        """The session ends, as after a lost connection."""
        self.sessions.pop(port).close()

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
        self.transport.close()
        self.instance.close()


def serve(connection: socket.socket) -> None:
    """Is one instance until the connection is closed."""
    actor: Any = None
    roles: dict[str, Callable[..., Any]] = {
        "producer": Producer,
        "consumer": Consumer,
        "ec_producer": partial(Scheduler, "ec_producer"),
        "ec_consumer": partial(Scheduler, "ec_consumer"),
    }
    rest = b""
    connection.sendall(json.dumps({"answer": os.getpid()}).encode() + b"\n")
    while True:
        ready, _, _ = select.select([connection], [], [], STEP_SECONDS if actor else None)
        if ready:
            data = connection.recv(1 << 20)
            if not data:
                break
            rest += data
        while b"\n" in rest:
            line, rest = rest.split(b"\n", 1)
            order = json.loads(line)
            operation, arguments = order["op"], order["arguments"]
            if operation == "start":
                actor = roles[arguments.pop("role")](**arguments)
                answer = actor.about()
            else:
                answer = getattr(actor, operation)(**arguments)
            connection.sendall(json.dumps({"answer": answer}).encode() + b"\n")
        if actor:
            actor.step()
    if actor:
        actor.close()


def main(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            # Not into the answers, and not as an error of the tests.
            sys.stdin.close()
            try:
                serve(connection)
            finally:
                # NIXL's threads and an interpreter that ends do not always agree.
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    main(sys.argv[1])
