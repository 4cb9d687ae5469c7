"""What a producer sends on a data stream counts only if it is what was agreed."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Done
from tests.interop.peers import byhand
from tests.interop.peers.byhand import sends
from tests.interop.peers.requests import TOKEN, granted, nack

ROWS, WIDTH = 5, 1000
BYTES = ROWS * WIDTH * 2
MISSING = 1

Asked = dict[str, Any]


def agrees(**changes: Any) -> byhand.Answer:
    """Grants every request."""
    shape = {"shape": [ROWS, WIDTH], "size_bytes": 12288}
    return lambda asked: granted(asked, shape, **changes)


def fetch(chiasm: Chiasm, played: byhand.Producer, *arguments: str | Path) -> Done:
    return chiasm.fetch({"a": played.announcement(ROWS, WIDTH)}, played.endpoint, *arguments)


def written(chiasm: Chiasm) -> list[Path]:
    return list(chiasm.directory.glob("*out/**/*"))


def test_bytes_that_were_agreed_are_fetched(chiasm: Chiasm, tmp_path: Path) -> None:
    source = stores.write(tmp_path / "store", "a", (ROWS, WIDTH))
    data = source.read_bytes()[-BYTES:]
    with byhand.producer(agrees(), sends(data)) as played:
        params = {"a": played.announcement(ROWS, WIDTH)}
        done = chiasm.fetch(params, played.endpoint, out=tmp_path / "copy")
        assert done.code == 0, done
        assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(tmp_path / "store")
        assert played.reads == [(played.reads[0][0], TOKEN)]
        assert played.connections == 2, "one of control, one of data, both to the approved port"


def test_bytes_without_the_digest_that_was_promised_are_not(chiasm: Chiasm) -> None:
    with byhand.producer(agrees(digest=os.urandom(16)), sends(os.urandom(BYTES))) as played:
        done = fetch(chiasm, played)
        assert done.code == 1
        assert done.verdicts() == {"a": ("unavailable", "digest")}
        assert len(played.reads) == 2, "one more try, then it is final"
    assert written(chiasm) == []


@pytest.mark.parametrize("length", [0, 1, BYTES - 1, BYTES + 1, 12288, 1 << 40, (1 << 64) - 1])
def test_another_length_than_agreed_is_not_read(chiasm: Chiasm, length: int) -> None:
    data = os.urandom(min(length, 1 << 16))
    with byhand.producer(agrees(), sends(data, length)) as played:
        done = fetch(chiasm, played, "--budget=20", "--local=a")
        assert done.code == 1
        verdict, reason = done.verdicts()["a"]
        assert verdict == "fallback"
        assert reason in ("length", "plane")
    assert written(chiasm) == []


def test_a_stream_that_ends_early_is_tried_again(chiasm: Chiasm) -> None:
    whole = sends(os.urandom(BYTES))
    attempts = iter(range(100))

    def serve(read: int, token: bytes) -> bytes | None:
        return None if next(attempts) == 0 else whole(read, token)

    with byhand.producer(agrees(), serve) as played:
        done = fetch(chiasm, played)
        assert done.code == 0, done
        assert done.json["retries"] >= 1
        assert len(played.requests) == len(played.reads) == 2


def test_a_token_that_opens_nothing_is_asked_for_again(chiasm: Chiasm) -> None:
    refusals = iter([True, True, False])
    data = os.urandom(BYTES)

    def serve(read: int, token: bytes) -> bytes | None:
        if next(refusals):
            return struct.pack(">BIQ", 0x82, read, 0)
        return sends(data)(read, token)

    with byhand.producer(agrees(), serve) as played:
        done = fetch(chiasm, played)
        assert done.code == 0, done
        assert done.json["retries"] == 2
        assert len(played.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [b"\x00" * 13, b"\x83" + bytes(12), b"\xff" * 13, b"HTTP/1.1 400 Bad Request\r\n\r\n",
     struct.pack(">BIQ", 0x81, 77, BYTES), struct.pack(">BIQ", 0x82, 77, 0),
     struct.pack(">BIQ", 0x82, 1, 5)],
    ids=lambda answer: answer.hex()[:26],
)  # fmt: skip
def test_an_answer_that_is_none_ends_the_stream(chiasm: Chiasm, answer: bytes) -> None:
    with byhand.producer(agrees(), lambda *_: answer) as played:
        done = fetch(chiasm, played, "--budget=0.5")
        assert done.code == 1
        verdict, reason = done.verdicts()["a"]
        assert (verdict, reason) == ("unavailable", "plane"), done
    assert written(chiasm) == []


def test_bytes_after_the_end_do_not_count(chiasm: Chiasm, tmp_path: Path) -> None:
    data = os.urandom(BYTES)
    with byhand.producer(agrees(), sends(data + b"more", BYTES)) as played:
        params = {"a": played.announcement(ROWS, WIDTH)}
        done = chiasm.fetch(params, played.endpoint, "--budget=5", out=tmp_path / "copy")
        if done.code == 0:
            (file,) = (tmp_path / "copy").glob("*/*")
            assert file.read_bytes()[-BYTES:] == data
        else:
            assert done.verdicts() == {"a": ("unavailable", "plane")}


def test_a_connection_that_is_closed_after_each_request(chiasm: Chiasm) -> None:
    with byhand.producer(lambda _: None, sends(b"")) as played:
        done = fetch(chiasm, played, "--budget=60", "--local=a")
        assert done.verdicts() == {"a": ("fallback", "lost")}
        assert done.json["retries"] >= 2
        sessions = {asked["session_id"] for asked in played.requests}
        assert len(sessions) == len(played.requests)
        waiting = fetch(chiasm, played, "--budget=1")
        assert waiting.verdicts() == {"a": ("unavailable", "lost")}


def test_a_connection_that_is_closed_and_comes_back(chiasm: Chiasm) -> None:
    answers = iter([None, None, MISSING])

    def answer(asked: Asked) -> Any:
        status = next(answers)
        return None if status is None else nack(asked, status)

    with byhand.producer(answer, sends(b"")) as played:
        done = fetch(chiasm, played)
        assert done.verdicts() == {"a": ("unavailable", "nack_missing")}
        assert done.json["retries"] == 2
        assert played.connections == 3


@pytest.mark.slow
def test_a_stream_on_which_nothing_moves_is_given_up(chiasm: Chiasm) -> None:
    with byhand.producer(agrees(), lambda *_: b"") as played:
        done = fetch(chiasm, played, "--budget=3")
        assert done.verdicts()["a"][0] == "unavailable"
        assert done.only()["ms"] < 15_000
    assert written(chiasm) == []
    assert chiasm.leftovers() == []
