"""ZMTP 3.1 (NULL) and Chiasm's data streams by hand, byte by byte: what no library would send."""

import socket
import struct
from dataclasses import dataclass
from typing import Any

import msgspec

SECONDS = 60
GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
PREAMBLE = b"\xc7hiasm\x01\x00"
MORE, LONG, COMMAND = 1, 2, 4


def frame(body: bytes, flags: int = 0) -> bytes:
    """One frame in its shortest form."""
    if len(body) < 256:
        return struct.pack(">BB", flags, len(body)) + body
    return struct.pack(">BQ", flags | LONG, len(body)) + body


def command(name: bytes, body: bytes = b"") -> bytes:
    """A command frame."""
    return frame(bytes([len(name)]) + name + body, COMMAND)


def ready(socket_type: bytes) -> bytes:
    """The READY of a socket of this type without an identity."""
    name, identity = b"Socket-Type", b"Identity"
    body = bytes([len(name)]) + name + struct.pack(">I", len(socket_type)) + socket_type
    return command(b"READY", body + bytes([len(identity)]) + identity + bytes(4))


def message(payload: bytes) -> bytes:
    """A message in the envelope of both roles."""
    return frame(b"", MORE) + frame(payload)


def read_frame(read: int, token: bytes) -> bytes:
    """A READ of a data stream."""
    return struct.pack(">BI", 1, read) + token


@dataclass
class Peer:
    """One end of a connection."""

    socket: socket.socket

    @classmethod
    def connect(cls, port: int, host: str = "127.0.0.1", source: str | None = None) -> "Peer":
        """A new connection to the port, from this address."""
        address = (source, 0) if source else None
        peer = socket.create_connection((host, port), timeout=SECONDS, source_address=address)
        return cls(peer)

    @classmethod
    def dealer(cls, port: int, source: str | None = None) -> "Peer":
        """A DEALER that is ready to send."""
        peer = cls.connect(port, source=source)
        peer.send(GREETING)
        assert peer.take(64)[:10] == GREETING[:10]
        peer.send(ready(b"DEALER"))
        flags, body = peer.frame()
        assert flags & COMMAND
        assert body.startswith(b"\x05READY")
        return peer

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def take(self, count: int) -> bytes:
        """Exactly so many bytes."""
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def frame(self) -> tuple[int, bytes]:
        """The next frame: flags and body."""
        flags = self.take(1)[0]
        size = struct.unpack(">Q", self.take(8))[0] if flags & LONG else self.take(1)[0]
        return flags, self.take(size)

    def message(self) -> bytes:
        """The payload of the next message; heartbeats are answered on the way."""
        while True:
            flags, body = self.frame()
            if not flags & COMMAND:
                assert (flags, body) == (MORE, b"")
                flags, body = self.frame()
                assert not flags & (MORE | COMMAND)
                return body
            if body.startswith(b"\x04PING"):
                self.send(command(b"PONG", body[7:]))

    def ask(self, request: Any) -> Any:
        """Sends a request and gives the answer."""
        self.send(message(msgspec.msgpack.encode(request)))
        return msgspec.msgpack.decode(self.message())

    def is_closed(self) -> bool:
        """Waits until the other side has closed; what comes until then does not matter."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
