"""S1: nobody is connected to, and no name is resolved, unless the exact endpoint was approved.

"Not contacted" is what a foreign socket says, never our own counter alone.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.cli.namespace import private


@contextmanager
def foreign(host: str = "127.0.0.1", port: int = 0) -> Iterator[socket.socket]:
    """A listening socket that nobody must connect to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=64) as listener:
        listener.setblocking(False)
        yield listener


def connections(listener: socket.socket) -> int:
    """How many connections have come. The kernel takes them in whether anybody accepts or not."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def params(host: str, port: int) -> dict[str, Any]:
    return {
        "a": {"peer_host": host, "peer_port": port, "size_bytes": 4096, "shape": [1, 2048]},
    }


def allowed_near(port: int) -> list[tuple[str, str]]:
    """Announced hosts, and what is approved instead of them."""
    loopback = f"127.0.0.1:{port}"
    return [
        ("127.0.0.1", ""),
        ("127.0.0.1", f"127.0.0.1:{port - 1}"),
        ("127.0.0.1", f"127.0.0.2:{port}"),
        ("127.0.0.1", f"localhost:{port}"),
        ("localhost", loopback),
        ("LOCALHOST", loopback),
        ("localhost.", loopback),
        ("::1", loopback),
        ("::ffff:127.0.0.2", loopback),
    ]


@pytest.mark.parametrize("case", range(9))
def test_what_was_not_approved_is_not_contacted(chiasm: Chiasm, case: int) -> None:
    with foreign() as listener:
        port = listener.getsockname()[1]
        host, allow = allowed_near(port)[case]
        done = chiasm.fetch(params(host, port), [allow] if allow else [], "--budget=5")
        assert done.code == 1
        assert done.verdicts() == {"a": ("unavailable", "not_allowed")}
        assert done.json["connects"] == []
        assert connections(listener) == 0
        assert done.only()["ms"] < 1000, "known at once"


def test_a_near_miss_is_named(chiasm: Chiasm) -> None:
    done = chiasm.fetch(params("10.0.0.5", 5602), ["10.0.0.5:5601", "10.0.0.6:5602"])
    assert done.only()["detail"] == "10.0.0.5:5601 is allowed, 10.0.0.5:5602 is not"


@pytest.mark.parametrize(
    ("host", "allow"),
    [("127.0.0.1", "127.0.0.1"), ("::ffff:127.0.0.1", "127.0.0.1"), ("Localhost.", "localhost"),
     ("127.0.0.1", "[::FFFF:127.0.0.1]")],
)  # fmt: skip
def test_what_was_approved_is_contacted(chiasm: Chiasm, host: str, allow: str) -> None:
    """The counterpart: the same socket sees the connection that it should see."""
    with foreign() as listener:
        port = listener.getsockname()[1]
        done = chiasm.fetch(params(host, port), f"{allow}:{port}", "--budget=0.3")
        assert connections(listener) >= 1
        assert len(done.json["connects"]) == 1


def test_one_that_was_approved_opens_no_way_to_another(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", good=(1, 2048)))
    with foreign() as listener:
        both = producer.params | params("127.0.0.1", listener.getsockname()[1])
        done = chiasm.fetch(both, producer.endpoint)
        assert done.verdicts() == {"good": ("fetched", None), "a": ("unavailable", "not_allowed")}
        assert done.json["connects"] == [producer.endpoint]
        assert connections(listener) == 0


@contextmanager
def name_server(tmp_path: Path) -> Iterator[tuple[list[str], socket.socket]]:
    """What runs a command so that it asks our own name server, and that server's socket."""
    # Of this process alone: each of the loopback addresses has a port 53.
    address = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(f"nameserver {address}\noptions timeout:1 attempts:1\n")
    with private() as namespace, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        server.setblocking(False)
        target = str(Path("/etc/resolv.conf").resolve())
        namespace.run("mount", "--bind", str(resolver), target)
        yield namespace.prefix, server


def queries(server: socket.socket) -> list[bytes]:
    """The questions that have come."""
    seen = []
    while True:
        try:
            seen.append(server.recv(4096))
        except BlockingIOError:
            return seen


def test_a_name_that_was_not_approved_is_not_resolved(chiasm: Chiasm, tmp_path: Path) -> None:
    name = "vision-0.chiasm.test"
    with name_server(tmp_path) as (prefix, server):
        for allow in ([], [f"{name}:5602"], ["10.0.0.1:5601"]):
            done = chiasm.fetch(params(name, 5601), allow, "--local=a", prefix=prefix)
            assert done.verdicts() == {"a": ("fallback", "not_allowed")}
            assert done.json["connects"] == []
            assert queries(server) == []
        # The counterpart: approved, it is asked for.
        done = chiasm.fetch(params(name, 5601), f"{name}:5601", "--budget=0.5", prefix=prefix)
        assert done.verdicts()["a"][0] == "unavailable"
        assert any(b"vision-0" in query for query in queries(server))
