"""Chiasm and msgspec give the same verdict and the same value on random messages."""

import random
from typing import Any

import msgspec
import pytest

from tests.interop.wire import command, messages, upstream

SEED = 20_261_101
PER_KIND = 400


def upstream_decode(kind: str, message: bytes) -> Any:
    """The decoded message, or msgspec's error (a ValidationError is a DecodeError)."""
    try:
        return upstream.decode(kind, message)
    except msgspec.DecodeError as error:
        return error


@pytest.mark.parametrize("kind", ["req", "ack", "memdesc"])
def test_the_same_verdict_and_value_as_msgspec(kind: str) -> None:
    rng = random.Random(f"{SEED} {kind}")
    accepted = refused = 0
    for index in range(PER_KIND):
        message = messages.message(rng, kind)
        where = f"{kind} {index} of seed {SEED}: {message.hex()}"
        ours = command.decode(kind, message)
        theirs = upstream_decode(kind, message)
        if isinstance(theirs, msgspec.DecodeError):
            assert ours.reason is not None, f"{where}\nonly msgspec refuses: {theirs}"
            refused += 1
            continue
        if upstream.has_negative(theirs):
            assert ours.reason is not None, where
            assert "is outside 0..=" in ours.reason, where
            continue
        assert ours.reason is None, f"{where}\nonly chiasm refuses: {ours.reason}"
        assert ours.value == upstream.value_form(theirs), where
        accepted += 1
    # A generator that only ever makes one kind of message proves nothing.
    assert accepted > PER_KIND // 5, f"only {accepted} of {PER_KIND} were accepted"
    assert refused > PER_KIND // 5, f"only {refused} of {PER_KIND} were refused"


def test_the_same_bytes_as_msgspec() -> None:
    rng = random.Random(SEED)
    for _ in range(20):
        req = upstream.XferReq(
            messages.valid_text(rng).decode(),
            messages.valid_text(rng).decode(),
            rng.choice(["", messages.valid_text(rng).decode()]),
            rng.choice([2, messages.some_integer(rng)]),
        )
        assert command.encode("req", upstream.value_form(req)) == upstream.encode(req)
        ack = upstream.XferAck(
            messages.valid_text(rng).decode(),
            rng.choice(list(upstream.AckStatus)),
            rng.choice(["", messages.valid_text(rng).decode()]),
            [messages.some_number(rng) for _ in range(rng.choice([0, 1, 16, 70]))],
            rng.randbytes(rng.choice([0, 255, 256, 70_000])),
            rng.randbytes(rng.choice([0, 10])),
        )
        value = upstream.value_form(ack) | {
            "src_block_indices": ack.src_block_indices,
            "agent_metadata": {"hex": ack.agent_metadata.hex()},
            "mem_descriptor": {"hex": ack.mem_descriptor.hex()},
        }
        assert command.encode("ack", value) == upstream.encode(ack)
        rows = [(messages.some_number(rng), messages.some_number(rng), 0) for _ in range(20)]
        assert command.encode("memdesc", rows) == upstream.encode(rows)


def test_upstream_reads_a_chiasm_message_as_if_nothing_were_added() -> None:
    req = {"mm_hash": "h", "compatibility_hash": "c", "session_id": "s"}
    chiasm = {"epoch": 7, "planes": ["shm", "tcp"], "attempt": 1, "fingerprint": "f"}
    message = command.encode("req", req | {"chiasm": chiasm})
    assert upstream.decode("req", message) == upstream.XferReq("h", "c", "s")
    assert command.decode("req", message).value["chiasm"] == chiasm | {"rev": 1}

    ack = {"mm_hash": "h", "status": 0, "session_id": "s"}
    chiasm = {
        "epoch": 7,
        "attempt": 1,
        "plane": "tcp",
        "token": {"hex": "00" * 16},
        "extents": [[3, 16], [40, 2]],
        "dtype": "bfloat16",
        "shape": [18, 128],
        "bytes": 4608,
        "block_size_bytes": 256,
        "lease_ms": 30_000,
        "digest": {"hex": "ab" * 16},
        "fingerprint": "f",
    }
    message = command.encode("ack", ack | {"chiasm": chiasm})
    assert upstream.decode("ack", message) == upstream.XferAck("h", upstream.AckStatus.OK, "s")
    assert command.decode("ack", message).value["chiasm"] == chiasm | {"rev": 1}


def test_upstream_reads_a_region_as_its_rows() -> None:
    message = command.encode("memdesc", {"base": 4096, "block_bytes": 7168, "count": 1000})
    assert upstream.decode("memdesc", message) == [(4096 + 7168 * i, 7168, 0) for i in range(1000)]
