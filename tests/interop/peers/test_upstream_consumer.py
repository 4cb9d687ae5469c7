"""pyzmq's DEALER as upstream's consumer has it, and with what a Chiasm node adds."""

import hashlib
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer
from tests.interop.peers.requests import ours, request
from tests.interop.wire import upstream

OK, MISSING, INCOMPAT, VERSION, INTERNAL, NOT_READY = range(6)
SECONDS = 60


class Dealer:
    """A consumer's socket."""

    def __init__(self, context: "zmq.Context[Any]", endpoint: str, **options: int) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.rcvtimeo = SECONDS * 1000
        if endpoint.startswith("["):
            self.socket.ipv6 = True
        for name, value in options.items():
            self.socket.setsockopt(getattr(zmq, name), value)
        self.monitor = self.socket.get_monitor_socket()
        self.socket.connect(f"tcp://{endpoint}")

    def ask_raw(self, asked: Any) -> bytes:
        """The answer's payload."""
        self.socket.send_multipart([b"", msgspec.msgpack.encode(asked)])
        empty, payload = self.socket.recv_multipart()
        assert empty == b""
        return payload

    def ask(self, asked: Any) -> dict[str, Any]:
        answer: dict[str, Any] = msgspec.msgpack.decode(self.ask_raw(asked))
        return answer

    def status(self, asked: Any) -> int:
        answer = self.ask(asked)
        assert answer["mm_hash"] == asked["mm_hash"]
        return int(answer["status"])

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()


@pytest.fixture
def context() -> "Iterator[zmq.Context[Any]]":
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def producer(chiasm: Chiasm, tmp_path: Path) -> Producer:
    store = stores.some(tmp_path / "store", a=(16, 128), b=(600, 1000))
    return chiasm.produce(store, "--region=8MiB")


@pytest.fixture
def dealer(context: "zmq.Context[Any]", producer: Producer) -> Iterator[Dealer]:
    dealer = Dealer(context, producer.endpoint)
    yield dealer
    dealer.close()


WRONG_HASH = {"compatibility_hash": "0" * 64}


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        # Each one is wrong in what it names and in all that is checked later.
        (request("gone", "", connector_version=1, **WRONG_HASH), VERSION),
        (request("gone", "", connector_version=3, **WRONG_HASH), VERSION),
        (request("gone", "", connector_version=-1, **WRONG_HASH), VERSION),
        (request("gone", "", connector_version=1 << 63, **WRONG_HASH), VERSION),
        (request("gone", "", **WRONG_HASH), INCOMPAT),
        (request("gone", "", compatibility_hash=""), INCOMPAT),
        (request("gone", ""), INTERNAL),
        (request("gone", "s" * 257), INTERNAL),
        (request("gone"), MISSING),
        (request("h" * 2000), MISSING),
        # NIXL alone could serve upstream, and is not there.
        (request("a"), INTERNAL),
        (ours("gone"), MISSING),
        (ours("a", chiasm={"rev": 1, "planes": []}), INTERNAL),
        (ours("a", chiasm={"rev": 1, "planes": ["nixl", "shm", "warp"]}), INTERNAL),
        (ours("a", chiasm={"rev": 1, "planes": ["warp", "tcp"], "later": {"x": [1]}}), OK),
        (ours("a", chiasm={"rev": 99, "planes": ["tcp"]}), OK),
        (ours("a"), OK),
        (ours("a", connector_version=2), OK),
    ],
)
def test_statuses_in_upstreams_order_of_checks(
    dealer: Dealer, asked: dict[str, Any], status: int
) -> None:
    assert dealer.status(asked) == status


def test_upstreams_own_encoder_and_decoder_are_understood(dealer: Dealer) -> None:
    asked = upstream.XferReq("gone", request("")["compatibility_hash"], str(uuid.uuid4()))
    answer = upstream.decode("ack", dealer.ask_raw(asked))
    assert answer == upstream.XferAck("gone", upstream.AckStatus.MISSING)
    granted = upstream.decode("ack", dealer.ask_raw(ours("a", "x")))
    assert granted == upstream.XferAck("a", upstream.AckStatus.OK, "x")


def test_a_refusal_says_nothing_that_upstream_does_not_know(dealer: Dealer) -> None:
    assert dealer.ask(request("gone")) == {"type": "ack", "mm_hash": "gone", "status": MISSING}
    theirs = dealer.ask(ours("gone", attempt=5))
    assert theirs["chiasm"].pop("epoch") > 0
    assert theirs["chiasm"] == {"rev": 1, "attempt": 5, "reason": "missing"}


def test_a_grant_says_all_that_there_is_to_know(dealer: Dealer) -> None:
    answer = dealer.ask(ours("b", "session", attempt=77))
    extension = answer.pop("chiasm")
    assert answer == {"type": "ack", "mm_hash": "b", "status": OK, "session_id": "session"}
    assert len(extension.pop("token")) == 16
    assert len(extension.pop("digest")) == 16
    assert extension.pop("epoch") > 0
    assert 29_000 < extension.pop("lease_ms") <= 30_000
    extents = extension.pop("extents")
    assert sum(extents[1::2]) == 293
    assert extension == {
        "rev": 1,
        "attempt": 77,
        "plane": "tcp",
        "dtype": "bfloat16",
        "shape": [600, 1000],
        "bytes": 1_200_000,
        "block_size_bytes": 4096,
    }


def test_an_ack_to_a_chiasm_peer_is_small(chiasm: Chiasm, context: Any, tmp_path: Path) -> None:
    """Of any region: upstream's is 14 MB for a million blocks (hazard D1)."""
    mm_hash = "f" * 64
    stores.write(tmp_path / "store", mm_hash, (5859, 3584), "float8_e4m3fn")
    producer = chiasm.produce(tmp_path / "store", "--block=64", "--region=64MiB")
    dealer = Dealer(context, producer.endpoint)
    compat = {"compatibility_hash": compat_of_blocks(64)}
    asked = ours(mm_hash, str(uuid.uuid4()), attempt=(1 << 32) - 1, **compat)
    asked["chiasm"]["epoch"] = (1 << 64) - 1
    sizes = [len(dealer.ask_raw(asked)) for _ in range(3)]
    dealer.close()
    assert max(sizes) < 450, sizes
    assert len(msgspec.msgpack.encode(asked)) < 450


def compat_of_blocks(block: int) -> str:
    return hashlib.sha256(f'["chiasm","any","any",{block}]'.encode()).hexdigest()


def test_many_requests_at_once_are_answered_in_order(dealer: Dealer) -> None:
    count = 500
    for attempt in range(1, count + 1):
        mm_hash = ("a", "gone")[attempt % 2]
        asked = msgspec.msgpack.encode(ours(mm_hash, attempt=attempt))
        dealer.socket.send_multipart([b"", asked])
    answers = [msgspec.msgpack.decode(dealer.socket.recv_multipart()[1]) for _ in range(count)]
    assert [answer["chiasm"]["attempt"] for answer in answers] == list(range(1, count + 1))
    assert {answer["status"] for answer in answers} == {OK, MISSING}


def test_a_session_belongs_to_one_live_connection(
    context: Any, producer: Producer, dealer: Dealer
) -> None:
    assert dealer.status(ours("a", "mine")) == OK
    other = Dealer(context, producer.endpoint)
    answer = other.ask(ours("a", "mine"))
    assert (answer["status"], answer["chiasm"]["reason"]) == (INTERNAL, "session_in_use")
    assert other.status(ours("a", "other")) == OK
    assert dealer.status(ours("a", "mine")) == OK, "the claim has changed nothing"
    # hazard B7: two pairs of session and hash that read the same when they are joined.
    assert other.status(ours("a", "other:x")) == OK
    other.close()


def test_one_connection_has_a_limited_number_of_sessions(dealer: Dealer) -> None:
    statuses = [dealer.status(ours("a", f"session-{number}")) for number in range(20)]
    assert statuses == [OK] * 16 + [INTERNAL] * 4


def test_an_identity_of_its_own_is_no_problem(context: Any, producer: Producer) -> None:
    socket = context.socket(zmq.DEALER)
    socket.linger, socket.rcvtimeo, socket.identity = 0, SECONDS * 1000, b"i" * 255
    socket.connect(f"tcp://{producer.endpoint}")
    socket.send_multipart([b"", msgspec.msgpack.encode(ours("a"))])
    assert msgspec.msgpack.decode(socket.recv_multipart()[1])["status"] == OK
    socket.close()


def test_a_req_socket_is_served_too(context: Any, producer: Producer) -> None:
    socket = context.socket(zmq.REQ)
    socket.linger, socket.rcvtimeo = 0, SECONDS * 1000
    socket.connect(f"tcp://{producer.endpoint}")
    socket.send(msgspec.msgpack.encode(ours("a")))
    assert msgspec.msgpack.decode(socket.recv())["status"] == OK
    socket.close()


@pytest.mark.parametrize("listen", ["[::1]:0", "localhost:0"])
def test_other_hosts_are_reached(chiasm: Chiasm, context: Any, tmp_path: Path, listen: str) -> None:
    store = stores.some(tmp_path / "other", a=(1, 1))
    producer = chiasm.produce(store, f"--listen={listen}")
    options = {"IPV6": 1} if listen.startswith("localhost") else {}
    dealer = Dealer(context, producer.endpoint, **options)
    assert dealer.status(ours("a")) == OK
    dealer.close()


# Upstream sets such options too late for them to be in force; here they are.
HEARTBEATS = {"HEARTBEAT_IVL": 100, "HEARTBEAT_TIMEOUT": 1500, "HEARTBEAT_TTL": 10_000}


def sees(dealer: Dealer, event: int, timeout_ms: int) -> bool:
    """Whether the monitor of the socket sees this event before nothing has come for so long."""
    while dealer.monitor.poll(timeout_ms):
        if recv_monitor_message(dealer.monitor)["event"] == event:
            return True
    return False


@pytest.mark.slow
def test_heartbeats_of_libzmq_are_answered(context: Any, producer: Producer) -> None:
    dealer = Dealer(context, producer.endpoint, **HEARTBEATS)
    assert dealer.status(ours("a")) == OK
    # More than twice the time-out, in which only heartbeats keep the connection.
    assert not sees(dealer, zmq.EVENT_DISCONNECTED, 4000)
    assert dealer.status(ours("a")) == OK
    dealer.close()


@pytest.mark.slow
def test_a_frozen_producer_is_noticed_by_its_heartbeats(context: Any, producer: Producer) -> None:
    """The counterpart: without answers the same options end the connection."""
    dealer = Dealer(context, producer.endpoint, **HEARTBEATS)
    assert dealer.status(ours("a")) == OK
    producer.running.signal(signal.SIGSTOP)
    try:
        assert sees(dealer, zmq.EVENT_DISCONNECTED, SECONDS * 1000)
    finally:
        producer.running.signal(signal.SIGCONT)
    dealer.close()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=lambda it: it.name)
def test_a_dealer_comes_back_to_a_producer_that_does(
    chiasm: Chiasm, tmp_path: Path, producer: Producer, dealer: Dealer, end: signal.Signals
) -> None:
    first = dealer.ask(ours("a", "same"))
    producer.stop(end)
    chiasm.produce(tmp_path / "store", "--region=8MiB", f"--listen={producer.endpoint}")
    second = dealer.ask(ours("a", "same"))
    assert first["status"] == second["status"] == OK
    assert first["chiasm"]["epoch"] != second["chiasm"]["epoch"], "another life"
    assert first["chiasm"]["digest"] == second["chiasm"]["digest"]
