"""Foreign agents read a served region, and cannot do more than that."""

import signal

import pytest

from tests.interop.nixl.processes import BLOCK, Helper, Peer, Start, pattern, runs

TRANSPORTS = pytest.mark.parametrize("tls", [None, "tcp"], ids=["any", "tcp"])
SCATTERED = [(5, 1), (0, 2), (31, 1), (9, 3), (7, 1)]


def served(helper: Start, tls: str | None) -> Helper:
    serving: Helper = helper("serve:vision_dp0", 32, tls=tls).up()
    serving.blocks[:] = pattern(32)
    serving.say({"Live": True})
    return serving


def remote(serving: Helper, extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    base = serving.ready["base_address"]
    return [(base + first * BLOCK, count * BLOCK) for first, count in extents]


def load(peer: Peer, serving: Helper) -> None:
    name = peer.ask("load", metadata=bytes(serving.ready["agent_metadata"]).hex())
    assert name == serving.ready["agent_name"] == "vision_dp0"


def reads_all(reader: Peer, serving: Helper) -> None:
    """Reads every block, and compares."""
    done = reader.ask(
        "transfer",
        operation="READ",
        agent="vision_dp0",
        local=[(0, 32 * BLOCK)],
        remote=remote(serving, [(0, 32)]),
        note="session:hash",
    )
    assert done["state"] == "DONE", done
    assert reader.bytes(32 * BLOCK) == bytes(serving.blocks)


@TRANSPORTS
def test_a_peer_reads_a_whole_entry_and_says_so(
    helper: Start, peer: Start, tls: str | None
) -> None:
    serving, reader = served(helper, tls), peer("reader", 32, tls=tls)
    load(reader, serving)
    reads_all(reader, serving)
    notification = serving.event("Notification")
    assert notification["agent_name"] == "reader"
    assert bytes(notification["text"]) == b"session:hash"


@TRANSPORTS
def test_a_peer_reads_scattered_blocks(helper: Start, peer: Start, tls: str | None) -> None:
    serving, reader = served(helper, tls), peer("reader", 32, tls=tls)
    load(reader, serving)
    offsets = [(index * 3 * BLOCK, count * BLOCK) for index, (_, count) in enumerate(SCATTERED)]
    done = reader.ask(
        "transfer",
        operation="READ",
        agent="vision_dp0",
        local=offsets,
        remote=remote(serving, SCATTERED),
        note="s:h",
    )
    assert done["state"] == "DONE", done
    landed = b"".join(reader.bytes(size, offset) for offset, size in offsets)
    assert landed == runs(bytes(serving.blocks), SCATTERED)
    assert bytes(serving.event("Notification")["text"]) == b"s:h"


@TRANSPORTS
def test_a_write_of_a_peer_changes_nothing(helper: Start, peer: Start, tls: str | None) -> None:
    serving, writer = served(helper, tls), peer("writer", 32, tls=tls)
    assert serving.ready["read_only"]
    load(writer, serving)
    writer.fill(b"\xff" * BLOCK)
    before = bytes(serving.blocks)
    done = writer.ask(
        "transfer",
        operation="WRITE",
        agent="vision_dp0",
        local=[(0, BLOCK)],
        remote=remote(serving, [(3, 1)]),
        note="",
        limit_s=10.0,
    )
    if tls is None:
        # The kernel refuses the copy, and the writer hears of it.
        assert done["state"] == "ERR", done
    else:
        # Over tcp it is the owner that writes, at the writer's word: its helper process dies of it.
        assert serving.event("Ended")["signal"] is not None
    assert bytes(serving.blocks) == before


def test_nothing_moves_while_no_grant_is_live(helper: Start, peer: Start) -> None:
    serving, reader = served(helper, "tcp"), peer("reader", 32, tls="tcp")
    load(reader, serving)
    read = {
        "operation": "READ",
        "agent": "vision_dp0",
        "local": [(0, BLOCK)],
        "remote": remote(serving, [(0, 1)]),
        "note": "n",
    }
    serving.say({"Live": False})
    # It has heard that by the time it answers what it does not do.
    serving.say({"ForgetPeer": {"peer": 1}})
    assert "reads from nobody" in serving.event("Warning")["text"]
    assert reader.ask("transfer", **read, limit_s=0.3)["state"] == "PROC"
    serving.say({"Live": True})
    assert reader.ask("finish") == {"state": "DONE"}
    assert bytes(serving.event("Notification")["text"]) == b"n"


def test_too_long_a_notification_is_counted_and_not_passed_on(helper: Start, peer: Start) -> None:
    serving, reader = served(helper, None), peer("reader", 32)
    load(reader, serving)
    read = {
        "operation": "READ",
        "agent": "vision_dp0",
        "local": [(0, BLOCK)],
        "remote": remote(serving, [(0, 1)]),
    }
    assert reader.ask("transfer", **read, note="x" * 4097)["state"] == "DONE"
    assert serving.event("NotificationLost") == {"count": 1}
    assert reader.ask("transfer", **read, note="x" * 4096)["state"] == "DONE"
    assert len(serving.event("Notification")["text"]) == 4096


@TRANSPORTS
def test_what_was_granted_is_served_on_when_the_node_is_killed(
    helper: Start, peer: Start, tls: str | None
) -> None:
    serving, reader = served(helper, tls), peer("reader", 32, tls=tls)
    load(reader, serving)
    serving.signal(signal.SIGKILL)
    serving.process.wait()
    reads_all(reader, serving)
    serving.region.unlink()
    assert serving.has_ended()


def test_a_helper_that_serves_on_does_not_do_so_for_ever(helper: Start, peer: Start) -> None:
    serving, reader = served(helper, None), peer("reader", 32)
    load(reader, serving)
    serving.signal(signal.SIGKILL)
    assert serving.has_ended()
    assert serving.region.exists(), "nobody has removed it"
