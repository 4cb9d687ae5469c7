"""Chiasm and msgspec give the same verdict and the same value on random messages."""

import os
import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.interop.wire import command, messages, upstream

# Of every generated message. `CHIASM_FUZZ_SEED` makes others; a failure names the seed.
SEED = int(os.environ.get("CHIASM_FUZZ_SEED", "20261101"))
PER_KIND = 400

# Where fuzzing keeps messages of each kind, and how many bytes stand in front of them.
CORPORA = {"req": ("wire_request", 0), "ack": ("wire_ack", 0), "memdesc": ("wire_descriptors", 2)}

# What Chiasm bounds in its own field, and how deep what nobody knows may nest.
OURS_ALONE = re.compile(r"\$\.chiasm\b|nested deeper than")


def upstream_decode(kind: str, message: bytes) -> Any:
    """The decoded message, or msgspec's error (a ValidationError is a DecodeError)."""
    try:
        return upstream.decode(kind, message)
    except msgspec.DecodeError as error:
        return error


def compare(kind: str, message: bytes, where: str) -> bool:
    """Asserts that both say the same; whether they accept it."""
    ours = command.decode(kind, message)
    theirs = upstream_decode(kind, message)
    if isinstance(theirs, msgspec.DecodeError):
        assert ours.reason is not None, f"{where}\nonly msgspec refuses: {theirs}"
        return False
    if upstream.has_negative(theirs):
        assert ours.reason is not None, where
        assert "is outside 0..=" in ours.reason, where
        return False
    if ours.reason is not None and OURS_ALONE.search(ours.reason):
        return False
    assert ours.reason is None, f"{where}\nonly chiasm refuses: {ours.reason}"
    if kind != "memdesc":
        ours.value.pop("chiasm", None)
    assert ours.value == upstream.value_form(theirs), where
    return True


@pytest.mark.parametrize("kind", ["req", "ack", "memdesc"])
def test_the_same_verdict_and_value_as_msgspec(kind: str) -> None:
    rng = random.Random(f"{SEED} {kind}")
    accepted = 0
    for index in range(PER_KIND):
        message = messages.message(rng, kind)
        accepted += compare(kind, message, f"{kind} {index} of seed {SEED}: {message.hex()}")
    # A generator that only ever makes one kind of message proves nothing.
    assert PER_KIND // 5 < accepted < PER_KIND - PER_KIND // 5, f"{accepted} were accepted"


def fuzzed(kind: str) -> Iterator[tuple[str, bytes]]:
    """What fuzzing has found worth keeping, by name."""
    directory, in_front = CORPORA[kind]
    for path in sorted((command.ROOT / "fuzz" / "corpus" / directory).iterdir()):
        yield path.name, path.read_bytes()[in_front:]


@pytest.mark.parametrize("kind", ["req", "ack", "memdesc"])
def test_the_same_verdict_and_value_on_what_fuzzing_has_found(kind: str) -> None:
    """And on each with one byte changed, at a place that the seed chooses."""
    rng = random.Random(f"{SEED} fuzzed {kind}")
    verdicts = set()
    for name, message in fuzzed(kind):
        changed = bytearray(message)
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        for data in (message, bytes(changed)):
            verdicts.add(compare(kind, data, f"{name}, seed {SEED}: {data.hex()}"))
    assert verdicts == {True, False}


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
