"""The two messages as upstream declares them, and their values in the form of the manifest."""

import enum
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

SHOWN_WHOLE = 64


class AckStatus(enum.IntEnum):
    """XferAck.status of connector version 2."""

    OK = 0
    MISSING = 1
    INCOMPAT = 2
    VERSION = 3
    INTERNAL = 4
    NOT_READY = 5


class XferReq(msgspec.Struct, tag="req", omit_defaults=True):
    """A consumer asks for one entry."""

    mm_hash: str
    compatibility_hash: str
    session_id: str = ""
    connector_version: int = 2


class XferAck(msgspec.Struct, tag="ack", omit_defaults=True):
    """A producer answers."""

    mm_hash: str
    status: AckStatus
    session_id: str = ""
    src_block_indices: list[int] = []
    agent_metadata: bytes = b""
    mem_descriptor: bytes = b""


Rows = list[tuple[int, int, int]]
TYPES: dict[str, Any] = {"req": XferReq, "ack": XferAck, "memdesc": Rows}


def decode(kind: str, message: bytes) -> Any:
    """What upstream's decoder makes of the message; raises what it raises."""
    return msgspec.msgpack.decode(message, type=TYPES[kind])


def encode(message: Any) -> bytes:
    """The bytes of upstream's encoder."""
    return msgspec.msgpack.encode(message)


def value_form(message: Any) -> Any:
    """The decoded message as the manifest and the chiasm command show it."""
    if isinstance(message, XferReq):
        return {
            "mm_hash": message.mm_hash,
            "compatibility_hash": message.compatibility_hash,
            "session_id": message.session_id,
            "connector_version": message.connector_version,
        }
    if isinstance(message, XferAck):
        return {
            "mm_hash": message.mm_hash,
            "status": int(message.status),
            "session_id": message.session_id,
            "src_block_indices": _ints(message.src_block_indices),
            "agent_metadata": _bytes(message.agent_metadata),
            "mem_descriptor": _bytes(message.mem_descriptor),
        }
    rows = [list(row) for row in message]
    if len(rows) <= SHOWN_WHOLE:
        return rows
    return {"rows": len(rows), "first": rows[0], "last": rows[-1]}


def _ints(ints: Sequence[int]) -> Any:
    if len(ints) <= SHOWN_WHOLE:
        return list(ints)
    return {"ints": len(ints), "first": ints[0], "last": ints[-1], "sum": sum(ints)}


def _bytes(data: bytes) -> dict[str, Any]:
    return {"bin_len": len(data), "bin_sha256": hashlib.sha256(data).hexdigest()}


def has_negative(message: Any) -> bool:
    """Whether it holds a number that Chiasm refuses and msgspec takes."""
    if isinstance(message, XferAck):
        return any(index < 0 for index in message.src_block_indices)
    if isinstance(message, list):
        return any(number < 0 for row in message for number in row)
    return False
