"""A producer that is played by hand on one port: control connections and data streams."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from tests.interop.peers.zmtp import GREETING, PREAMBLE, Peer, message, ready

Answer = Callable[[dict[str, Any]], Any]
Serve = Callable[[int, bytes], bytes | None]


class Producer:
    """Answers each request with what `answer` makes of it, each READ with what `serve` gives.

    `None` from either closes the connection.
    """

    def __init__(self, listener: socket.socket, answer: Answer, serve: Serve) -> None:
        self.port = listener.getsockname()[1]
        self.endpoint = f"127.0.0.1:{self.port}"
        self.requests: list[dict[str, Any]] = []
        self.given_back: list[dict[str, Any]] = []
        self.reads: list[tuple[int, bytes]] = []
        self.connections = 0
        self._listener = listener
        self._answer = answer
        self._serve = serve
        self._peers: list[Peer] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def announcement(self, rows: int = 5, width: int = 1000) -> dict[str, Any]:
        """Of a bfloat16 entry in blocks of 4 KiB."""
        return {
            "peer_host": "127.0.0.1",
            "peer_port": self.port,
            "size_bytes": -(-rows * width * 2 // 4096) * 4096,
            "shape": [rows, width],
        }

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self.connections += 1
                self._peers.append(Peer(accepted))
                thread = threading.Thread(target=self._run, args=(self._peers[-1],), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _run(self, peer: Peer) -> None:
        with suppress(OSError), peer:
            first = peer.take(1)
            if first == PREAMBLE[:1]:
                self._stream(peer)
            else:
                self._control(peer)

    def _control(self, peer: Peer) -> None:
        peer.send(GREETING)
        peer.take(63)
        peer.send(ready(b"ROUTER"))
        assert peer.frame()[1].startswith(b"\x05READY")
        while True:
            asked = msgspec.msgpack.decode(peer.message())
            if asked["type"] == "done":
                self.given_back.append(asked)
                continue
            self.requests.append(asked)
            answer = self._answer(asked)
            if answer is None:
                return
            data = answer if isinstance(answer, bytes) else msgspec.msgpack.encode(answer)
            peer.send(message(data))

    def _stream(self, peer: Peer) -> None:
        assert peer.take(7) == PREAMBLE[1:]
        while True:
            kind, read = struct.unpack(">BI", peer.take(5))
            assert kind == 1
            token = peer.take(16)
            self.reads.append((read, token))
            served = self._serve(read, token)
            if served is None:
                return
            peer.send(served)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=60)
        for peer in self._peers:
            peer.close()


@contextmanager
def producer(answer: Answer, serve: Serve) -> Iterator[Producer]:
    """A producer on a port of its own."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    played = Producer(listener, answer, serve)
    try:
        yield played
    finally:
        played.close()


def sends(data: bytes, length: int | None = None) -> Serve:
    """Answers each READ with these bytes, under this length."""
    announced = len(data) if length is None else length
    return lambda read, _: struct.pack(">BIQ", 0x81, read, announced) + data
