"""A peer's metadata that is damaged, forged or another's costs the helper process at the most."""

import random
import signal
from typing import Any

import pytest

from tests.interop.nixl.processes import BLOCK, Helper, Peer, Start, pattern


@pytest.fixture
def producer(peer: Start) -> Peer:
    started: Peer = peer("producer", 16)
    started.fill(pattern(16))
    return started


def address(blob: bytes) -> range:
    """Where the backend's address lies in a blob: opaque to everybody but UCX."""
    start = blob.index(b"|c") + 2
    return range(start + 8, start + 8 + int.from_bytes(blob[start : start + 8], "little"))


def key(blob: bytes) -> range:
    """Where the key of the one range lies, behind its address, length and device."""
    start = blob.index(b"|", blob.index(b"nixlSDList") + 10) + 1
    start = blob.index(b"n\x08\x00\x00\x00\x00\x00\x00\x00", start) + 9 + 8 + 1
    return range(start + 8 + 24, len(blob) - 1)


def changed(blob: bytes, at: int, by: bytes) -> bytes:
    return blob[:at] + by + blob[at + len(by) :]


def refused(reading: Helper, producer: Peer, blob: bytes, **more: Any) -> str:
    reading.load(producer, metadata=list(blob), **more)
    failed = reading.event("LoadFailed")
    assert failed["kind"] == "Invalid", failed
    return str(failed["reason"])


def test_what_is_not_whole_is_not_loaded(helper: Start, producer: Peer) -> None:
    reading = helper("read", 16).up()
    blob = producer.metadata
    for length in [0, 1, 10, 11, 40, 100, len(blob) // 2, len(blob) - 1]:
        refused(reading, producer, blob[:length])
    refused(reading, producer, blob + b"|")
    refused(reading, producer, b"\xff" * 100)
    refused(reading, producer, blob + bytes(64 * 1024))
    reading.load(producer)
    assert reading.event("Loaded") == {"peer": 1}, "what was refused has left nothing behind"


def test_another_agents_name_is_not_loaded_and_not_blocked(helper: Start, producer: Peer) -> None:
    reading = helper("read", 16).up()
    forged = producer.metadata.replace(b"producer", b"victim_0")
    assert "victim_0" in refused(reading, producer, forged)
    # Truncated, it would block the name for good, if NIXL had seen it.
    refused(reading, producer, forged[:60], agent_name="victim_0")
    reading.load(producer)
    assert reading.event("Loaded") == {"peer": 1}


def test_forged_lengths_are_not_loaded(helper: Start, producer: Peer) -> None:
    reading = helper("read", 16).up()
    blob = producer.metadata
    at = key(blob).start - 24
    assert int.from_bytes(blob[at : at + 8], "little") == producer.address
    wrapping = changed(blob, at + 8, (2**64 - 1).to_bytes(8, "little"))
    assert "wraps" in refused(reading, producer, wrapping)
    short = changed(blob, at + 8, (16 * BLOCK - 1).to_bytes(8, "little"))
    assert "not inside a range" in refused(reading, producer, short)
    for tag in (b"Conns", b"nixlSecElms"):
        count = blob.index(tag) + len(tag) + 8
        refused(reading, producer, changed(blob, count, (2**63).to_bytes(8, "little")))
        refused(reading, producer, changed(blob, count, (2).to_bytes(8, "little")))


def test_blocks_outside_of_what_is_registered_are_not_loaded(helper: Start, producer: Peer) -> None:
    reading = helper("read", 16).up()
    for span in [
        {"address": producer.address - 1, "bytes": 16 * BLOCK},
        {"address": producer.address, "bytes": 16 * BLOCK + 1},
        {"address": producer.address, "bytes": 2**64 - 1},
    ]:
        assert "not inside a range" in refused(reading, producer, producer.metadata, span=span)


def test_a_peer_of_another_backend_is_named(helper: Start, producer: Peer) -> None:
    reading = helper("read", 16).up()
    other = producer.metadata.replace(b"UCX|c", b"XCU|c")
    assert "XCU" in refused(reading, producer, other)


@pytest.mark.parametrize("part", ["address", "key"])
def test_one_byte_of_what_is_opaque_kills_the_helper_at_most(
    helper: Start, producer: Peer, part: str
) -> None:
    blob = producer.metadata
    where = address(blob) if part == "address" else key(blob)
    chosen = random.Random(part).sample(list(where), min(8, len(where)))
    died = 0
    for index, at in enumerate(chosen):
        reading = helper("read", 16, name=f"chiasm-{part}-{index}").up()
        damaged = changed(blob, at, bytes([blob[at] ^ 0xFF]))
        reading.load(producer, metadata=list(damaged))
        event = reading.line()
        if "Loaded" in event:
            # Loaded it may have been; a read then fails, hangs, kills, or brings the right bytes.
            reading.read(producer, [(0, 16)], [(0, 16)])
            reading.say("kill")
            event = reading.line()
            if "ReadDone" in event:
                assert bytes(reading.blocks) == pattern(16)
        if "Ended" not in event:
            reading.say("kill")
            event = {"Ended": reading.event("Ended")}
        elif event["Ended"]["signal"] != signal.SIGKILL:
            died += 1
        assert "Ended" in event, event
    # The producer has not noticed, and an undamaged blob is read by the next helper.
    reading = helper("read", 16, name="chiasm-after").up()
    reading.load(producer)
    assert reading.event("Loaded") == {"peer": 1}
    reading.read(producer, [(0, 16)], [(0, 16)])
    assert reading.event("ReadDone") == {"read": 7}
    assert bytes(reading.blocks) == pattern(16)
    print(f"{died} of {len(chosen)} killed their helper process")
