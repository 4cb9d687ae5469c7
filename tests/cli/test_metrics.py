"""What a node counts, as a monitoring system scrapes it."""

import contextlib
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import ROOT, Chiasm, Producer

PAGE = ROOT / "docs" / "metrics.md"


def serving(chiasm: Chiasm, *arguments: str | Path) -> tuple[Producer, str]:
    """A producer with metrics, and where they are."""
    producer = chiasm.produce(*arguments, "--metrics=0")
    line = next(line for line in producer.running.errors if line.startswith("metrics "))
    return producer, line.removeprefix("metrics ")


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text: str = answer.read().decode()
    assert text.endswith("# EOF\n")
    return text


def value(text: str, name: str) -> float:
    """The one sample of this name, labels included."""
    (line,) = [line for line in text.splitlines() if line.rsplit(" ", 1)[0] == name]
    return float(line.rsplit(" ", 1)[1])


def test_every_metric_is_on_the_page_and_no_other(chiasm: Chiasm) -> None:
    _, url = serving(chiasm, stores.REAL)
    served = dict(re.findall(r"^# TYPE (\S+) (\S+)$", scrape(url), re.MULTILINE))
    rows = re.findall(r"^\| `(chiasm_\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "each once"
    assert dict(rows) == served


def test_a_producer_counts_what_it_granted(chiasm: Chiasm, tmp_path: Path) -> None:
    producer, url = serving(chiasm, stores.some(tmp_path / "store", a=(4, 2048), b=(2, 2048)))
    before = scrape(url)
    assert value(before, "chiasm_granted_total") == 0
    assert value(before, 'chiasm_blocks{state="evictable"}') == 6
    for planes in ("tcp", "shm"):
        done = chiasm.fetch(producer.announced, producer.endpoint, f"--planes={planes}")
        assert done.code == 0, done
    after = scrape(url)
    assert value(after, "chiasm_granted_total") == 4
    assert value(after, 'chiasm_grants_ended_total{how="completed"}') == 2
    assert value(after, 'chiasm_grants_ended_total{how="done"}') == 2


def test_a_reader_counts_what_arrived_and_how_long_that_took(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    good = chiasm.produce(stores.some(tmp_path / "one", a=(4, 2048)))
    silent = chiasm.produce(stores.some(tmp_path / "two", b=(4, 2048)), "--fault=silent")
    allow = [good.endpoint, silent.endpoint]
    fetch = chiasm.start_fetch(good.params | silent.params, allow, "--metrics=0")
    url = fetch.line("metrics ")
    text = scrape(url)
    while not value(text, "chiasm_arrived_total"):
        text = scrape(url)
    assert value(text, 'chiasm_arrived_bytes_total{plane="shm"}') == 4 * 2048 * 2
    assert value(text, 'chiasm_read_latency_seconds_count{plane="shm"}') == 1
    assert value(text, "chiasm_ack_latency_seconds_count") == 1
    assert value(text, "chiasm_allowed_endpoints") == 2
    assert value(text, 'chiasm_lookups_total{result="miss"}') == 2
    assert value(text, "chiasm_waiting_items") == 1
    fetch.process.terminate()
    assert fetch.wait().code == 1


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET /metrics?a=b HTTP/1.0\r\nHost: x\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\xff\x00\r\n\r\n", b"405"),
    ],
)
def test_an_answer_for_every_request(chiasm: Chiasm, request_: bytes, status: bytes) -> None:
    _, url = serving(chiasm, stores.REAL)
    host, port = url.removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(request_)
        answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert answer.startswith(b"HTTP/1.1 " + status)


def test_clients_that_say_nothing_or_too_much_are_left(chiasm: Chiasm) -> None:
    producer, url = serving(chiasm, stores.REAL)
    host, port = url.removeprefix("http://").removesuffix("/metrics").split(":")
    silent = socket.create_connection((host, int(port)), timeout=60)
    endless = socket.create_connection((host, int(port)), timeout=60)
    endless.sendall(b"x" * (9 << 10))
    for client in (silent, endless):
        with client, contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    assert "chiasm_blocks" in scrape(url)
    assert producer.stop().code == 0, "and nobody holds up the end"


def test_an_address_that_cannot_be_bound_ends_with_2(chiasm: Chiasm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "--metrics" in chiasm.run("produce", stores.REAL, f"--metrics={port}").one_error()
    assert "--metrics" in chiasm.run("produce", stores.REAL, "--metrics=nowhere").one_error()
    assert chiasm.leftovers() == []
