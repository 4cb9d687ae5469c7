"""Foreign agents' memory is read into the region, and nothing else happens to it."""

import signal

import pytest

from tests.interop.nixl.processes import BLOCK, Helper, Peer, Start, pattern, runs

TRANSPORTS = pytest.mark.parametrize("tls", [None, "tcp"], ids=["any", "tcp"])


def pair(
    helper: Start, peer: Start, tls: str | None = None, blocks: int = 64
) -> tuple[Helper, Peer]:
    """A reading helper that knows a producer with a full buffer."""
    reading = helper("read", blocks, tls=tls).up()
    producer = peer("producer", blocks, tls=tls)
    producer.fill(pattern(blocks))
    reading.load(producer)
    assert reading.event("Loaded") == {"peer": 1}
    return reading, producer


@TRANSPORTS
def test_a_contiguous_entry_is_read(helper: Start, peer: Start, tls: str | None) -> None:
    reading, producer = pair(helper, peer, tls)
    reading.read(producer, [(8, 40)], [(3, 40)], note="session:hash")
    assert reading.event("ReadDone") == {"read": 7}
    data = pattern(64)
    assert bytes(reading.blocks) == (
        bytes(8 * BLOCK) + data[3 * BLOCK : 43 * BLOCK] + bytes(16 * BLOCK)
    )
    assert producer.ask("wait_notes", count=1) == [[reading.ready["agent_name"], "session:hash"]]


@TRANSPORTS
def test_a_scattered_entry_is_read(helper: Start, peer: Start, tls: str | None) -> None:
    reading, producer = pair(helper, peer, tls)
    here = [(60, 4), (0, 1), (30, 2), (10, 3)]
    there = [(1, 1), (63, 1), (2, 5), (20, 3)]
    reading.read(producer, here, there, note="s:h")
    assert reading.event("ReadDone") == {"read": 7}
    assert runs(bytes(reading.blocks), here) == runs(pattern(64), there)
    untouched = [(1, 9), (13, 17), (32, 28)]
    assert not any(runs(bytes(reading.blocks), untouched))
    assert producer.ask("wait_notes", count=1)[0][1] == "s:h"


def test_one_read_after_another_without_a_notification(helper: Start, peer: Start) -> None:
    reading, producer = pair(helper, peer)
    for read in range(20):
        reading.read(producer, [(read, 1)], [(63 - read, 1)], read=read)
    done = sorted(reading.event("ReadDone")["read"] for _ in range(20))
    assert done == list(range(20))
    expected = runs(pattern(64), [(63 - read, 1) for read in range(20)])
    assert bytes(reading.blocks[: 20 * BLOCK]) == expected
    assert producer.ask("wait_notes", count=0) == []


def test_blocks_outside_of_the_peers_are_not_asked_for(helper: Start, peer: Start) -> None:
    reading, producer = pair(helper, peer)
    piece = {"local_offset": 0, "remote_address": producer.address, "bytes": BLOCK}
    outside = [
        {"remote_address": producer.address - 1},
        {"remote_address": producer.address + 63 * BLOCK + 1},
        {"remote_address": 2**64 - 1},
        {"bytes": 2**64 - 1},
        {"bytes": 0},
        {"local_offset": 63 * BLOCK + 1},
        {"local_offset": 2**64 - 1},
    ]
    for changed in outside:
        command = {"read": 9, "peer": 1, "pieces": [piece | changed], "notification": []}
        reading.say({"Read": command})
        failed = reading.event("ReadFailed")
        assert (failed["read"], failed["kind"], failed["settled"]) == (9, "Invalid", True), changed
    assert not any(bytes(reading.blocks))
    assert not producer.ask("wait_notes", count=0)


def test_a_number_in_use_and_an_unknown_peer_are_refused(helper: Start, peer: Start) -> None:
    reading, producer = pair(helper, peer)
    reading.load(producer)
    assert reading.event("LoadFailed")["kind"] == "Local"
    reading.read(producer, [(0, 1)], [(0, 1)], id=2)
    assert reading.event("ReadFailed")["kind"] == "Local"


def test_two_peers_of_one_agent_name_need_two_helpers(helper: Start, peer: Start) -> None:
    reading, _ = pair(helper, peer)
    twin = peer("producer", 64)
    twin.fill(pattern(64, seed=2))
    reading.load(twin, id=2)
    failed = reading.event("LoadFailed")
    assert failed["kind"] == "Local"
    assert "helper process of its own" in failed["reason"]
    other = helper("read", 64, name="chiasm-other").up()
    other.load(twin, id=2)
    assert other.event("Loaded") == {"peer": 2}
    other.read(twin, [(0, 64)], [(0, 64)], id=2)
    assert other.event("ReadDone") == {"read": 7}
    assert bytes(other.blocks) == pattern(64, seed=2)


def test_a_peer_that_comes_back_is_loaded_anew(helper: Start, peer: Start) -> None:
    reading, producer = pair(helper, peer)
    producer.close()
    reading.say({"ForgetPeer": {"peer": 1}})
    again = peer("producer", 64)
    again.fill(pattern(64, seed=3))
    reading.load(again)
    assert reading.event("Loaded") == {"peer": 1}
    reading.read(again, [(0, 64)], [(0, 64)])
    assert reading.event("ReadDone") == {"read": 7}
    assert bytes(reading.blocks) == pattern(64, seed=3)


@TRANSPORTS
def test_a_peer_that_is_gone_fails_its_reads_and_no_others(
    helper: Start, peer: Start, tls: str | None
) -> None:
    reading, producer = pair(helper, peer, tls)
    other = peer("other", 64, tls=tls)
    other.fill(pattern(64, seed=4))
    reading.load(other, id=2)
    assert reading.event("Loaded") == {"peer": 2}
    # A connection that works: what ends then is a peer, not an attempt to reach one.
    reading.read(producer, [(0, 1)], [(0, 1)], note="n")
    assert reading.event("ReadDone") == {"read": 7}
    producer.signal(signal.SIGKILL)
    producer.process.wait()
    reading.read(producer, [(1, 1)], [(1, 1)], read=8)
    failed = reading.event("ReadFailed")
    assert (failed["read"], failed["kind"], failed["settled"]) == (8, "Peer", True)
    reading.read(other, [(0, 64)], [(0, 64)], id=2, read=9)
    assert reading.event("ReadDone") == {"read": 9}
    assert bytes(reading.blocks) == pattern(64, seed=4)


def test_only_the_end_of_the_helper_ends_a_stuck_read(helper: Start, peer: Start) -> None:
    reading, producer = pair(helper, peer, "tcp")
    reading.read(producer, [(0, 1)], [(0, 1)], note="n")
    assert reading.event("ReadDone") == {"read": 7}
    producer.signal(signal.SIGSTOP)
    reading.read(producer, [(1, 63)], [(1, 63)], read=8)
    # Forgotten is not cancelled: the name stays taken while the read is in flight.
    reading.say({"ForgetPeer": {"peer": 1}})
    reading.load(producer, id=2)
    assert reading.event("LoadFailed")["kind"] == "Local"
    reading.say("kill")
    assert reading.event("Ended")["signal"] == signal.SIGKILL
    # It has been reaped: its blocks are free. The peer wakes up, and sends what it was asked for to
    # nobody; or it dies of its reader's death, which UCX lets happen.
    reading.blocks[:] = pattern(64, seed=5)
    producer.signal(signal.SIGCONT)
    producer.answers_or_ends()
    assert bytes(reading.blocks) == pattern(64, seed=5)


def begun(reading: Helper, producer: Peer) -> None:
    """Over tcp it stands still until the producer goes on."""
    producer.signal(signal.SIGSTOP)
    for _ in range(2):
        reading.read(producer, [(0, 64)], [(0, 64)], note="session:hash")
    assert "another read's" in reading.event("ReadFailed")["reason"], "the first has begun"


def test_a_read_ends_by_itself_when_the_node_is_killed(helper: Start, peer: Start) -> None:
    reading, producer = pair(helper, peer, tls="tcp")
    begun(reading, producer)
    reading.signal(signal.SIGKILL)
    reading.process.wait()
    producer.signal(signal.SIGCONT)
    assert producer.ask("wait_notes", count=1)[0][1] == "session:hash", "and its peer lives"
    assert reading.has_ended()
    assert bytes(reading.blocks) == pattern(64)


def test_a_stuck_read_does_not_keep_a_helper_whose_node_is_killed_for_ever(
    helper: Start, peer: Start
) -> None:
    reading, producer = pair(helper, peer, tls="tcp")
    begun(reading, producer)
    reading.signal(signal.SIGKILL)
    assert reading.has_ended()
    producer.signal(signal.SIGCONT)
    producer.answers_or_ends()
