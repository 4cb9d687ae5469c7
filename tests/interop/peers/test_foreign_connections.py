"""Whatever connects to a producer's port: it lives, and serves everybody else."""

import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer
from tests.interop.peers import zmtp
from tests.interop.peers.requests import ours
from tests.interop.peers.zmtp import COMMAND, GREETING, LONG, MORE, Peer, command, frame, ready

Serves = Callable[[], None]


@pytest.fixture
def producer(chiasm: Chiasm, tmp_path: Path) -> Producer:
    # With room to spare: what a peer may pin at once is a part of the region.
    return chiasm.produce(stores.some(tmp_path / "store", a=(500, 1024)), "--region=8MiB")


@pytest.fixture
def serves(chiasm: Chiasm, producer: Producer, tmp_path: Path) -> Iterator[Serves]:
    """Fetches from the producer, which must go as if nothing else were there."""
    serve_first(chiasm, producer)
    base = producer.running.descriptors()
    yield lambda: serve_first(chiasm, producer)
    # Each fetch is a turn of its event loop: by then it has seen that all others are gone.
    for _ in range(20):
        serve_first(chiasm, producer)
        if producer.running.descriptors() <= base:
            break
    assert producer.running.descriptors() <= base, "connections that were never closed"
    assert producer.stop().code == 0


def serve_first(chiasm: Chiasm, producer: Producer) -> None:
    done = chiasm.fetch(producer.announced, producer.endpoint, "--budget=30")
    assert done.code == 0, done
    assert done.json["retries"] == 0, "at the first attempt"
    # Well inside the budget: nobody stands in its way.
    assert done.only()["ms"] < 5000, done


GARBAGE = {
    "random": os.urandom(4096),
    "zeros": bytes(4096),
    "http": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + os.urandom(200),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "zmtp-2": b"\xff" + bytes(8) + b"\x7f\x01\x05" + b"\x00\x00",
    "zmtp-version-2": b"\xff" + bytes(8) + b"\x7f" + b"\x02\x00" + GREETING[12:],
    "mechanism": GREETING[:12] + b"CURVE".ljust(20, b"\0") + GREETING[32:],
    "as-server": GREETING[:32] + b"\x01" + GREETING[33:],
    "half-signature": b"\xff" + bytes(8) + b"\x00" + GREETING[10:],
    "no-ready": GREETING + frame(b"hello"),
    "message-before-ready": GREETING + zmtp.message(b"x"),
    "publisher": GREETING + ready(b"PUB"),
    "error": GREETING + command(b"ERROR", b"\x02no"),
    "unknown-command": GREETING + command(b"NEW"),
    "ready-without-type": GREETING + command(b"READY"),
    "ready-cut": GREETING + command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x99DEALER"),
    "giant-ready": GREETING + struct.pack(">BQ", COMMAND | LONG, 1 << 62),
    "big-ready": GREETING + struct.pack(">BQ", COMMAND | LONG, 5000) + bytes(5000),
}

AFTER_READY = {
    "giant-frame": struct.pack(">BQ", LONG, (1 << 63) - 1),
    "giant-frame-64": struct.pack(">BQ", LONG, (1 << 64) - 1),
    "large-frame": frame(b"", MORE) + struct.pack(">BQ", LONG, 65_537),
    "many-frames": frame(b"", MORE) * 70_000,
    "large-in-parts": frame(b"", MORE) + frame(bytes(1000), MORE) * 70,
    "one-frame": frame(b"payload"),
    "two-payloads": frame(b"a", MORE) + frame(b"b"),
    "three-frames": frame(b"", MORE) + frame(b"", MORE) + frame(b"b"),
    "reserved-flags": b"\xf8\x00",
    "command-with-more": b"\x05\x06\x04PING\x00",
    "ping-cut": command(b"PING", b"\x00"),
    "ping-too-long": command(b"PING", b"\x00\x00" + bytes(17)),
    "command-name-past-its-end": b"\x04\x02\xffX",
    "second-ready": ready(b"DEALER"),
    "giant-command": struct.pack(">BQ", COMMAND | LONG, 1 << 40),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_dealer_is_closed(producer: Producer, serves: Serves, data: bytes) -> None:
    with Peer.connect(producer.port) as peer:
        peer.send(data)
        serves()
        assert peer.is_closed()


@pytest.mark.slow
def test_what_might_become_a_dealer_has_a_deadline(producer: Producer, serves: Serves) -> None:
    with ExitStack() as stack:
        begun = (b"", b"\x01\x00", GREETING[:40], GREETING)
        peers = [stack.enter_context(Peer.connect(producer.port)) for _ in begun]
        for peer, data in zip(peers, begun, strict=True):
            peer.send(data)
        serves()
        assert all(peer.is_closed() for peer in peers)


@pytest.mark.parametrize("data", AFTER_READY.values(), ids=AFTER_READY)
def test_a_dealer_that_misbehaves_is_closed_alone(
    producer: Producer, serves: Serves, data: bytes
) -> None:
    with Peer.dealer(producer.port) as good, Peer.dealer(producer.port) as peer:
        with suppress(ConnectionError):
            peer.send(data)
        assert peer.is_closed()
        serves()
        assert good.ask(ours("a", "good"))["status"] == 0


def test_a_request_that_comes_byte_by_byte_is_answered(producer: Producer, serves: Serves) -> None:
    with Peer.connect(producer.port) as peer:
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = zmtp.message(msgspec.msgpack.encode(ours("a", "slow")))
        for byte in GREETING + ready(b"DEALER") + request:
            peer.send(bytes([byte]))
        peer.take(64)
        assert peer.frame()[1].startswith(b"\x05READY")
        assert msgspec.msgpack.decode(peer.message())["status"] == 0
        serves()


def test_payloads_that_are_no_request_get_no_answer(producer: Producer, serves: Serves) -> None:
    payloads = [b"", b"\xc1", b"\xff" * 100, b"{}", b"\x80", b"\xdf\xff\xff\xff\xff"]
    payloads += [os.urandom(1000), b"\x91" * 60_000]
    with Peer.dealer(producer.port) as peer:
        for payload in payloads:
            peer.send(zmtp.message(payload))
        answer = peer.ask(ours("a", "after", attempt=9))
        assert answer["chiasm"]["attempt"] == 9, "the first answer is that of the first request"
    serves()


def test_half_a_greeting_and_a_reset(producer: Producer, serves: Serves) -> None:
    for length in (1, 9, 10, 11, 12, 31, 32, 63):
        peer = Peer.connect(producer.port)
        peer.send(GREETING[:length])
        # Not an orderly end: the producer's next read or write fails.
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    serves()


@pytest.mark.slow
def test_300_silent_connections_of_another_address_disturb_nobody(
    producer: Producer, serves: Serves
) -> None:
    with ExitStack() as stack:
        connect = [Peer.connect(producer.port, source="127.0.0.2") for _ in range(300)]
        silent = [stack.enter_context(peer) for peer in connect]
        serves()
        for peer in silent[::2]:
            with suppress(ConnectionError):
                peer.send(GREETING[:20])
        serves()
        assert all(peer.is_closed() for peer in silent), "the handshake has a deadline"


@pytest.mark.slow
def test_300_silent_connections_of_its_own_address_are_outlived(
    chiasm: Chiasm, producer: Producer, serves: Serves
) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(Peer.connect(producer.port)) for _ in range(300)]
        # One address has so many connections and no more, until the handshake's deadline.
        done = chiasm.fetch(producer.announced, producer.endpoint, "--budget=120")
        assert done.code == 0, done
        assert all(peer.is_closed() for peer in silent)
    serves()


def test_200_malformed_envelopes_delay_no_request(producer: Producer, serves: Serves) -> None:
    """hazard D3: upstream looks at one such connection in each step of its engine."""
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer.dealer(producer.port)) for _ in range(200)]
        good = stack.enter_context(Peer.dealer(producer.port))
        for peer in peers:
            peer.send(frame(b"a", MORE) + frame(b"b"))
        assert good.ask(ours("a", "good"))["status"] == 0
        serves()
        assert all(peer.is_closed() for peer in peers)


def resident_bytes(producer: Producer) -> int:
    pages = Path(f"/proc/{producer.running.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_peer_that_requests_and_never_reads_is_closed(producer: Producer, serves: Serves) -> None:
    """hazard D1: upstream's memory grows by each answer that is not read."""
    before = resident_bytes(producer)
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(zmtp.SECONDS)
        raw.connect(("127.0.0.1", producer.port))
        peer = Peer(raw)
        peer.send(GREETING)
        peer.take(64)
        peer.send(ready(b"DEALER"))
        peer.frame()
        # Far more than it needs: a million requests.
        flood = zmtp.message(msgspec.msgpack.encode(ours("a", "greedy"))) * 1_000_000
        with pytest.raises(ConnectionError):
            peer.send(flood)
        serves()
        assert resident_bytes(producer) - before < 64 << 20


@pytest.mark.slow
def test_a_silent_peer_is_pinged_and_closed(producer: Producer, serves: Serves) -> None:
    with Peer.dealer(producer.port) as peer:
        flags, body = peer.frame()
        assert flags & COMMAND
        assert body.startswith(b"\x04PING")
        assert peer.is_closed(), "a PING without an answer"
    serves()


def test_a_ping_is_answered_with_its_context(producer: Producer, serves: Serves) -> None:
    with Peer.dealer(producer.port) as peer:
        for context in (b"", b"c", bytes(16)):
            peer.send(command(b"PING", b"\x00\x00" + context))
            assert peer.frame() == (COMMAND, b"\x04PONG" + context)
    serves()
