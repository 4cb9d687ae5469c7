"""A peer asks for descriptor lists in upstream's form, and reads none of them."""

import re
import socket
from pathlib import Path

import msgspec

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer
from tests.cli.nodes import until
from tests.interop.peers import zmtp
from tests.interop.peers.requests import request
from tests.interop.peers.zmtp import GREETING, Peer, ready
from tests.interop.upstream.instances import COMPAT, produce, status

BLOCK = 64
BLOCKS = 1_000_000
IDENTITY = [f"--compat-hash={COMPAT}", f"--block={BLOCK}", "--dtype=bfloat16"]
REQUESTS = 60
# Lists that the peer beside it asks for, and reads, meanwhile.
GOOD = 8
# All connections together have so much output (docs/PROTOCOL.md).
OUTPUT_BYTES = 64 << 20


def asked(session: str) -> dict[str, object]:
    return request("a", session, compatibility_hash=COMPAT, connector_version=2)


def peak_bytes(producer: Producer, since: bool = False) -> int:
    """The most memory that the producer has had; `since` begins anew."""
    process = Path(f"/proc/{producer.running.pid}")
    if since:
        (process / "clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text())
    assert found
    return int(found[1]) << 10


def list_bytes(peer: Peer, session: str) -> int:
    """The length of the list in the answer to a request."""
    answer = peer.ask(asked(session))
    assert answer["status"] == 0
    return len(answer["mem_descriptor"])


def greedy(producer: Producer, raw: socket.socket) -> None:
    """Sends all requests and leaves the answers where they are."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(zmtp.SECONDS)
    raw.connect(("127.0.0.1", producer.port))
    peer = Peer(raw)
    peer.send(GREETING)
    peer.take(64)
    peer.send(ready(b"DEALER"))
    peer.frame()
    peer.send(zmtp.message(msgspec.msgpack.encode(asked("greedy"))) * REQUESTS)


def test_hazard_d1_sixty_lists_that_nobody_reads_cost_the_output_quota_and_no_other_peer(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    stores.write(store, "a", (3, BLOCK // 2))
    producer = produce(chiasm, store, f"--region={BLOCKS * BLOCK}", identity=IDENTITY)
    with socket.socket() as raw:
        with Peer.dealer(producer.port) as good:
            assert list_bytes(good, "good") > 11_000_000
            base = producer.running.descriptors()
            before = peak_bytes(producer, since=True)
            greedy(producer, raw)
            # Connections take turns: meanwhile all that it may have of its lists has been begun.
            for _ in range(GOOD):
                assert list_bytes(good, "good") > 11_000_000
        out = tmp_path / "out"
        more = ["--planes=nixl", "--budget=30", *IDENTITY]
        done = chiasm.fetch(producer.params, producer.endpoint, *more, out=out)
        assert done.verdicts() == {"a": ("fetched", None)}, done.err
        assert done.json["retries"] == 0, "at the first attempt"
        # Who reads nothing at all is taken for frozen in the end.
        until(lambda: producer.running.descriptors() < base or None, "that it is closed")
        grown = peak_bytes(producer) - before
    assert grown < OUTPUT_BYTES, f"{grown >> 20} MiB for lists that nobody reads"
    lists = status(chiasm, producer.running.pid)["serving"]["counters"]["full_lists"]
    assert lists > 1 + GOOD, "who reads none was sent none"
    with Peer.dealer(producer.port) as good:
        assert list_bytes(good, "good") > 11_000_000
