"""Data streams of a producer, opened by hand: what a token opens, and what anything else does."""

import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer
from tests.interop.peers import zmtp
from tests.interop.peers.requests import ours
from tests.interop.peers.zmtp import PREAMBLE, Peer, command, read_frame

LARGE_BYTES = 16 << 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return stores.some(tmp_path / "store", a=(500, 1024))


@pytest.fixture
def producer(chiasm: Chiasm, store: Path) -> Producer:
    # With room to spare: what a peer may pin at once is a part of the region.
    return chiasm.produce(store, "--region=8MiB")


@pytest.fixture
def with_large(chiasm: Chiasm, store: Path) -> Producer:
    """A producer that has more than the sockets between it and a reader can hold."""
    stores.write(store, "large", (1024, LARGE_BYTES >> 11))
    return chiasm.produce(store, "--region=64MiB")


def serve(chiasm: Chiasm, producer: Producer) -> None:
    """A fetch goes as if nothing else were there."""
    params = {"a": producer.params["a"]}
    done = chiasm.fetch(params, producer.endpoint, "--budget=30")
    assert done.code == 0, done
    assert done.json["retries"] == 0


@pytest.fixture
def serves(chiasm: Chiasm, producer: Producer) -> Callable[[], None]:
    return lambda: serve(chiasm, producer)


def tensor_bytes(store: Path, mm_hash: str) -> bytes:
    data = (store / mm_hash / stores.FILE_NAME).read_bytes()
    (header,) = struct.unpack_from("<Q", data)
    return data[8 + header :]


def grant(control: Peer, mm_hash: str, session: str = "s") -> bytes:
    """The token of a grant."""
    answer: dict[str, Any] = control.ask(ours(mm_hash, session))
    assert answer["status"] == 0, answer
    token = answer["chiasm"]["token"]
    assert isinstance(token, bytes)
    assert len(token) == 16
    return token


def stream(producer: Producer) -> Peer:
    peer = Peer.connect(producer.port)
    peer.send(PREAMBLE)
    return peer


def answer(peer: Peer) -> tuple[int, int, int]:
    """Kind, read id and length of the next answer."""
    kind, read, length = struct.unpack(">BIQ", peer.take(13))
    return kind, read, length


def test_a_token_opens_one_read_of_the_exact_bytes(producer: Producer, store: Path) -> None:
    with Peer.dealer(producer.port) as control, stream(producer) as peer:
        token = grant(control, "a")
        wanted = tensor_bytes(store, "a")
        peer.send(read_frame(7, token))
        assert answer(peer) == (0x81, 7, len(wanted))
        assert peer.take(len(wanted)) == wanted
        peer.send(read_frame(8, token))
        assert answer(peer) == (0x82, 8, 0), "once"
        # That grant has ended: a repeated request is a new one.
        again = grant(control, "a")
        assert again != token
        peer.send(read_frame(9, token) + read_frame(10, again))
        assert answer(peer) == (0x82, 9, 0)
        assert answer(peer) == (0x81, 10, len(wanted))
        assert peer.take(len(wanted)) == wanted


def test_a_repeated_request_renews_the_grant_and_its_token(producer: Producer) -> None:
    with Peer.dealer(producer.port) as control, stream(producer) as peer:
        token = grant(control, "a")
        assert grant(control, "a") == token
        assert grant(control, "a", "another session") != token
        peer.send(read_frame(1, token) + read_frame(2, token))
        kind, read, length = answer(peer)
        assert (kind, read) == (0x81, 1)
        peer.take(length)
        assert answer(peer) == (0x82, 2, 0)


def give_back(peer: Peer, mm_hash: str, attempt: int, session: str = "s") -> None:
    done = {"type": "done", "mm_hash": mm_hash, "session_id": session, "attempt": attempt}
    peer.send(zmtp.message(msgspec.msgpack.encode(done)))


def test_a_grant_that_was_given_back_opens_nothing(producer: Producer) -> None:
    with (
        Peer.dealer(producer.port) as control,
        Peer.dealer(producer.port) as other,
        stream(producer) as peer,
    ):
        token = grant(control, "a")
        # Neither another connection nor another attempt can give it back.
        give_back(other, "a", 1)
        give_back(control, "a", 2)
        give_back(control, "b", 1)
        assert other.ask(ours("a", "other"))["status"] == 0
        assert grant(control, "a") == token
        give_back(control, "a", 1)
        again = grant(control, "a")
        assert again != token
        peer.send(read_frame(1, token) + read_frame(2, again))
        assert answer(peer) == (0x82, 1, 0)
        assert answer(peer)[:2] == (0x81, 2)


def test_a_lost_control_connection_takes_its_tokens_along(
    producer: Producer, serves: Callable[[], None]
) -> None:
    with Peer.dealer(producer.port) as control:
        token = grant(control, "a")
    serves()
    with stream(producer) as peer:
        peer.send(read_frame(1, token))
        assert answer(peer) == (0x82, 1, 0)


def test_an_unknown_token_opens_nothing(producer: Producer, serves: Callable[[], None]) -> None:
    with stream(producer) as peer:
        for read in range(100):
            peer.send(read_frame(read, os.urandom(16)))
            assert answer(peer) == (0x82, read, 0)
        serves()
        peer.send(read_frame((1 << 32) - 1, bytes(16)))
        assert answer(peer) == (0x82, (1 << 32) - 1, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\xc7" + bytes(7),
        b"\xc7hiasm\x02\x00",
        b"\xc7HIASM\x01\x00",
        b"\xc7" + os.urandom(4096),
        b"\xc7GET / HTTP/1.1\r\n\r\n",
        PREAMBLE + b"\x00" * 21,
        PREAMBLE + b"\x02" + bytes(20),
        PREAMBLE + b"\x81" + bytes(20),
        PREAMBLE * 4,
        PREAMBLE + os.urandom(100).replace(b"\x01", b"\x00"),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_anything_else_closes_the_stream(
    producer: Producer, serves: Callable[[], None], data: bytes
) -> None:
    with Peer.connect(producer.port) as peer:
        peer.send(data)
        assert peer.is_closed()
    serves()


def test_a_first_byte_alone_disturbs_nobody(producer: Producer, serves: Callable[[], None]) -> None:
    with Peer.connect(producer.port) as peer:
        peer.send(b"\xc7")
        serves()
        peer.send(PREAMBLE[1:] + read_frame(1, bytes(16)))
        assert answer(peer) == (0x82, 1, 0)


def test_a_flood_of_reads_is_bounded(producer: Producer, serves: Callable[[], None]) -> None:
    """Nobody reads the answers: the producer stops reading, or closes."""
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(zmtp.SECONDS)
        raw.connect(("127.0.0.1", producer.port))
        raw.sendall(PREAMBLE)
        raw.setblocking(False)
        flood, sent = read_frame(1, bytes(16)) * 1000, 0
        try:
            for _ in range(5000):
                sent += raw.send(flood)
        except BlockingIOError:
            pass
        except ConnectionError:
            pass
        assert sent < 5000 * len(flood), "100 MB of requests were taken and kept"
        serves()


def test_more_reads_at_once_than_allowed_are_answered_or_end_the_stream(
    chiasm: Chiasm, with_large: Producer
) -> None:
    with Peer.dealer(with_large.port) as control, stream(with_large) as peer:
        token = grant(control, "large")
        peer.send(read_frame(0, token) + b"".join(read_frame(n, bytes(16)) for n in range(1, 500)))
        kind, read, length = answer(peer)
        assert (kind, read, length) == (0x81, 0, LARGE_BYTES)
        answers = []
        with suppress(ConnectionError):
            peer.take(length)
            answers += [answer(peer) for _ in range(499)]
        assert answers in ([], [(0x82, n, 0) for n in range(1, 500)])
        serve(chiasm, with_large)


@pytest.mark.slow
def test_a_reader_that_stops_reading_is_let_go(chiasm: Chiasm, with_large: Producer) -> None:
    with Peer.dealer(with_large.port) as control, socket.socket() as raw:
        before = with_large.running.descriptors()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(zmtp.SECONDS)
        raw.connect(("127.0.0.1", with_large.port))
        peer = Peer(raw)
        peer.send(PREAMBLE + read_frame(1, grant(control, "large")))
        assert answer(peer) == (0x81, 1, LARGE_BYTES)
        serve(chiasm, with_large)
        assert with_large.running.descriptors() > before
        # The producer's own heartbeats, one in 2 s, are the clock: it gives a reader 10 s.
        for _ in range(10):
            _, body = control.frame()
            assert body.startswith(b"\x04PING")
            control.send(command(b"PONG", body[7:]))
            if with_large.running.descriptors() <= before:
                break
        assert with_large.running.descriptors() <= before, "it is kept for ever"
    serve(chiasm, with_large)
