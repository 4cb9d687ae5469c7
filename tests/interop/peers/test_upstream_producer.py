"""pyzmq's ROUTER as a producer that answers as it likes: what a fetch makes of it, word by word."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import zmq

from tests.cli.chiasm import Chiasm, Done, Running
from tests.interop.peers.requests import COMPAT, TOKEN, granted, nack
from tests.interop.wire import upstream

OK, MISSING, INCOMPAT, VERSION, INTERNAL, NOT_READY = range(6)
SECONDS = 60

Asked = dict[str, Any]


class Router:
    """A producer's socket that is played by hand."""

    def __init__(self, context: "zmq.Context[Any]") -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.rcvtimeo = SECONDS * 1000
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.endpoint = f"127.0.0.1:{self.port}"
        self.requests: list[bytes] = []
        # Grants that were given back.
        self.given_back: list[Asked] = []
        self._identity = b""

    def _take(self) -> Asked | None:
        """The next message, if it is a request."""
        self._identity, empty, payload = self.socket.recv_multipart()
        assert empty == b""
        message: Asked = msgspec.msgpack.decode(payload)
        if message["type"] == "done":
            self.given_back.append(message)
            return None
        self.requests.append(payload)
        return message

    def receive(self) -> Asked:
        """The next request."""
        while not (asked := self._take()):
            pass
        return asked

    def answer_all(self, running: Running, made: Callable[[Asked], Any]) -> None:
        """Answers requests until the command has ended; what is made of one may be nothing."""
        while running.is_alive() or self.socket.poll(0):
            asked = self._take() if self.socket.poll(50) else None
            if asked and (answer := made(asked)) is not None:
                self.send(answer)

    def send(self, payload: Any) -> None:
        """Sends an answer: bytes as they are, anything else as msgpack."""
        data = payload if isinstance(payload, bytes) else msgspec.msgpack.encode(payload)
        self.socket.send_multipart([self._identity, b"", data])

    def answer(self, made: Callable[[Asked], Any]) -> Asked:
        """Answers the next request with what is made of it."""
        asked = self.receive()
        self.send(made(asked))
        return asked

    def announcement(self, rows: int = 5, width: int = 1000) -> dict[str, Any]:
        return {
            "peer_host": "127.0.0.1",
            "peer_port": self.port,
            "size_bytes": -(-rows * width * 2 // 4096) * 4096,
            "shape": [rows, width],
        }


@pytest.fixture
def router() -> Iterator[Router]:
    context: zmq.Context[Any] = zmq.Context()
    router = Router(context)
    yield router
    context.destroy(linger=0)


@pytest.fixture
def fetch(chiasm: Chiasm, router: Router) -> Callable[..., Running]:
    """Starts to fetch "a" from the router."""

    def start(*arguments: str) -> Running:
        params = {"a": router.announcement()}
        return chiasm.start_fetch(params, router.endpoint, "--planes=tcp", *arguments)

    return start


def verdict(done: Done) -> tuple[str, str | None]:
    """Verdict and reason, of a report that is in order."""
    assert done.code == 1, done
    assert done.err == ""
    item = done.only()
    assert item["bytes"] is None
    assert item["plane"] is None
    assert item["detail"], "a sentence for people"
    return item["verdict"], item["reason"]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (MISSING, "nack_missing"),
        (INCOMPAT, "nack_incompat"),
        (VERSION, "nack_version"),
        (INTERNAL, "nack_internal"),
        (6, "unknown_status"),
        (17, "unknown_status"),
        (-1, "unknown_status"),
        (1 << 63, "unknown_status"),
    ],
)
@pytest.mark.parametrize("local", [[], ["--local=a"]], ids=["", "local"])
def test_a_refusal_is_final_at_once(
    fetch: Callable[..., Running], router: Router, status: int, word: str, local: list[str]
) -> None:
    running = fetch(*local)
    router.answer(lambda asked: nack(asked, status))
    done = running.wait()
    assert verdict(done) == ("fallback" if local else "unavailable", word)
    assert done.json["retries"] == 0
    assert done.json["connects"] == [router.endpoint]


def test_a_request_is_what_upstream_expects(fetch: Callable[..., Running], router: Router) -> None:
    running = fetch()
    asked = router.answer(lambda asked: nack(asked, MISSING))
    plain = upstream.decode("req", router.requests[0])
    assert plain == upstream.XferReq("a", COMPAT, asked["session_id"])
    assert list(asked) == ["type", "mm_hash", "compatibility_hash", "session_id", "chiasm"]
    assert asked["chiasm"].pop("epoch") > 0
    assert asked["chiasm"] == {"rev": 1, "planes": ["tcp"], "attempt": 1}
    assert len(router.requests[0]) < 450
    running.wait()


def test_not_ready_is_asked_again(fetch: Callable[..., Running], router: Router) -> None:
    running = fetch()
    attempts = []
    for _ in range(4):
        asked = router.answer(lambda asked: nack(asked, NOT_READY))
        attempts.append(asked["chiasm"]["attempt"])
    router.answer(lambda asked: nack(asked, MISSING))
    done = running.wait()
    assert verdict(done) == ("unavailable", "nack_missing")
    assert done.json["retries"] == 4
    assert attempts == [1, 2, 3, 4]
    sessions = [msgspec.msgpack.decode(asked)["session_id"] for asked in router.requests]
    # Its acks name no attempt, so the session has to say which request an OK ack is for.
    assert sessions == [sessions[0], *(f"{sessions[0]}.{n}" for n in range(1, 5))]


def test_not_ready_for_ever_ends_with_the_budget(
    fetch: Callable[..., Running], router: Router
) -> None:
    running = fetch("--budget=1")
    router.answer_all(running, lambda asked: nack(asked, NOT_READY))
    done = running.wait()
    assert verdict(done) == ("unavailable", "not_ready")
    # Hazard C9: with pauses that grow, not one request in each step.
    assert 3 <= len(router.requests) < 12


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        (["--budget=1"], ("unavailable", "timeout")),
        (["--budget=2", "--ack-timeout=0.3"], ("unavailable", "timeout")),
        (["--budget=2", "--local=a"], ("fallback", "timeout")),
        (["--budget=60", "--ack-timeout=0.2", "--local=a"], ("fallback", "timeout")),
    ],
    ids=" ".join,
)
def test_silence_ends_with_the_budget(
    fetch: Callable[..., Running], router: Router, arguments: list[str], outcome: tuple[str, str]
) -> None:
    done = fetch(*arguments).wait()
    assert verdict(done) == outcome
    # Where the engine can encode itself, a producer that is silent again and again is given up.
    assert done.only()["ms"] < 15_000


def test_a_late_answer_is_taken(fetch: Callable[..., Running], router: Router) -> None:
    running = fetch("--ack-timeout=0.2")
    first, second = router.receive(), router.receive()
    assert second["chiasm"]["attempt"] == first["chiasm"]["attempt"] + 1
    # The answer to an attempt that was given up answers nothing newer.
    late = nack(first, INTERNAL, chiasm={"rev": 1, "attempt": first["chiasm"]["attempt"]})
    router.send(late)
    router.send(nack(second, MISSING, chiasm={"rev": 1, "attempt": second["chiasm"]["attempt"]}))
    assert verdict(running.wait()) == ("unavailable", "nack_missing")


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xc1", b"\x80", b"HTTP/1.1 200 OK\r\n", os.urandom(300), b"\x91" * 100_000],
    ids=lambda garbage: garbage[:8].hex(),
)
def test_what_is_no_ack_costs_the_connection(
    fetch: Callable[..., Running], router: Router, garbage: bytes
) -> None:
    running = fetch("--local=a")
    router.answer_all(running, lambda _: garbage)
    assert verdict(running.wait()) == ("fallback", "garbage")
    sessions = {msgspec.msgpack.decode(asked)["session_id"] for asked in router.requests}
    assert len(sessions) > 1, "each connection has a session of its own"


def test_a_request_in_place_of_an_ack_is_garbage(
    fetch: Callable[..., Running], router: Router
) -> None:
    running = fetch("--budget=1")
    router.answer_all(running, lambda asked: asked)
    assert verdict(running.wait()) == ("unavailable", "garbage")


def test_acks_of_other_hashes_are_not_taken(fetch: Callable[..., Running], router: Router) -> None:
    running = fetch()
    asked = router.receive()
    for other in ("b", "A", "a ", ""):
        router.send(nack(asked | {"mm_hash": other}, INTERNAL))
    router.send(nack(asked, MISSING))
    assert verdict(running.wait()) == ("unavailable", "nack_missing")


def test_an_upstream_producer_needs_a_plane_that_is_not_here(
    fetch: Callable[..., Running], router: Router
) -> None:
    running = fetch()

    def ack(asked: Asked) -> bytes:
        session = asked["session_id"]
        ack = upstream.XferAck("a", upstream.AckStatus.OK, session, [4, 5, 6], b"agent", b"\x90")
        return upstream.encode(ack)

    router.answer_all(running, ack)
    done = running.wait()
    assert verdict(done) == ("unavailable", "no_plane")
    assert "nixl" in done.only()["detail"]
    assert len(router.requests) == 1
    assert router.given_back == [], "upstream would not know what that is"


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "rows": ({"shape": [6, 1000]}, "shape [6, 1000] granted, [5, 1000] announced"),
    "width": ({"shape": [5, 999]}, "shape [5, 999] granted, [5, 1000] announced"),
    "no shape": ({"shape": None}, "it gives no shape"),
    "dtype": ({"dtype": "float32"}, "10000, [5, 1000] of float32 has 20000"),
    "no dtype": ({"dtype": None}, "it gives no dtype"),
    "new dtype": ({"dtype": "float5"}, "it gives no dtype"),
    "bytes": ({"bytes": 9_999}, "9999, [5, 1000] of bfloat16 has 10000"),
    "no bytes": ({"bytes": None}, "its length in bytes is not said"),
    "many bytes": ({"bytes": (1 << 64) - 1}, "18446744073709551615"),
    "block size": ({"block_size_bytes": 2048}, "its block size is 2048, 4096 here"),
    "no block size": ({"block_size_bytes": None}, "its block size is not said"),
    "no token": ({"token": None}, "without a token"),
    "no plane": ({"plane": None}, "it chooses no plane"),
    "new plane": ({"plane": "warp"}, "it chooses no plane"),
    "other plane": ({"plane": "shm"}, "it chooses shm, which was not offered"),
    "no lease": ({"lease_ms": None}, "it gives no lease"),
    "few blocks": ({"extents": [0, 2]}, "2 blocks granted, 3 announced"),
    "many blocks": ({"extents": [0, 3, 9, 1]}, "4 blocks granted, 3 announced"),
    "no blocks": ({"extents": None}, "0 blocks granted, 3 announced"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_grant_that_does_not_fit_is_not_read(
    chiasm: Chiasm, fetch: Callable[..., Running], router: Router, misfit: str
) -> None:
    changes, named = MISFITS[misfit]
    running = fetch("--dtype=bfloat16") if misfit == "rows" else fetch()
    router.answer(lambda asked: granted(asked, router.announcement(), **changes))
    done = running.wait()
    assert verdict(done) == ("unavailable", "ack_mismatch")
    assert named in done.only()["detail"]
    assert not list(chiasm.directory.glob("*out/*")), "nothing is written"


def test_a_grant_of_another_session_is_not_read(
    fetch: Callable[..., Running], router: Router
) -> None:
    """hazard A5"""
    running = fetch()
    router.answer(lambda asked: granted(asked, router.announcement()) | {"session_id": "other"})
    done = running.wait()
    assert verdict(done) == ("unavailable", "ack_mismatch")
    assert "session" in done.only()["detail"]


@pytest.mark.parametrize("lease_ms", [0, 1, 999])
def test_a_lease_that_is_over_is_asked_for_again(
    fetch: Callable[..., Running], router: Router, lease_ms: int
) -> None:
    running = fetch()
    first = router.answer(lambda asked: granted(asked, router.announcement(), lease_ms=lease_ms))
    router.answer(lambda asked: nack(asked, MISSING))
    done = running.wait()
    assert verdict(done) == ("unavailable", "nack_missing")
    assert done.json["retries"] == 1
    session, attempt = first["session_id"], first["chiasm"]["attempt"]
    given_back = {"type": "done", "mm_hash": "a", "session_id": session, "attempt": attempt}
    assert router.given_back == [given_back]


BROKEN_GRANTS: dict[str, dict[str, Any]] = {
    "token of another length": {"token": TOKEN[:15]},
    "token as text": {"token": "x" * 16},
    "odd extents": {"extents": [0, 3, 9]},
    "empty extent": {"extents": [0, 3, 9, 0]},
    "extents past 32 bits": {"extents": [1 << 32, 3]},
    "more extents than allowed": {"extents": [n for at in range(65) for n in (2 * at, 1)]},
    "shape of three": {"shape": [5, 10, 100]},
    "negative bytes": {"bytes": -1},
    "revision 0": {"rev": 0},
}


@pytest.mark.parametrize("broken", BROKEN_GRANTS)
def test_a_grant_that_breaks_the_rules_is_garbage(
    fetch: Callable[..., Running], router: Router, broken: str
) -> None:
    changes = BROKEN_GRANTS[broken]
    running = fetch("--local=a")
    router.answer_all(running, lambda asked: granted(asked, router.announcement(), **changes))
    assert verdict(running.wait()) == ("fallback", "garbage")


def test_a_refusals_word_for_machines_is_shown(
    fetch: Callable[..., Running], router: Router
) -> None:
    running = fetch()
    word = {"rev": 1, "attempt": 1, "reason": "\x1b[31mred"}
    router.answer(lambda asked: nack(asked, INCOMPAT, chiasm=word))
    detail = running.wait().only()["detail"]
    assert "red" in detail
    assert detail.isprintable(), "nothing that acts on a terminal"


def test_no_plane_in_common_is_told(fetch: Callable[..., Running], router: Router) -> None:
    running = fetch()
    word = {"rev": 1, "attempt": 1, "reason": "no_plane"}
    router.answer(lambda asked: nack(asked, INTERNAL, chiasm=word))
    assert verdict(running.wait()) == ("unavailable", "no_plane")


def test_one_refusal_leaves_the_others_alone(chiasm: Chiasm, router: Router) -> None:
    params = {name: router.announcement() for name in ("a", "b", "c")}
    running = chiasm.start_fetch(params, router.endpoint, "--region=1MiB", "--ack-timeout=0.5",
                                 "--budget=1")  # fmt: skip
    statuses = {"a": MISSING, "b": INCOMPAT}

    def answer(asked: Asked) -> Asked | None:
        status = statuses.get(asked["mm_hash"])
        return None if status is None else nack(asked, status)

    router.answer_all(running, answer)
    assert running.wait().verdicts() == {
        "a": ("unavailable", "nack_missing"),
        "b": ("unavailable", "nack_incompat"),
        "c": ("unavailable", "timeout"),
    }
