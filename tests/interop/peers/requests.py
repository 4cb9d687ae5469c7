"""Requests and acks as msgspec encodes them, with and without what only Chiasm nodes say."""

import hashlib
from typing import Any

# What the command has without flags.
COMPAT = hashlib.sha256(b'["chiasm","any","any",4096]').hexdigest()
TOKEN = bytes(range(16))


def request(mm_hash: str, session: str = "s", **changes: Any) -> dict[str, Any]:
    """What an upstream consumer sends."""
    plain = {
        "type": "req",
        "mm_hash": mm_hash,
        "compatibility_hash": COMPAT,
        "session_id": session,
    }
    return plain | changes


def ours(mm_hash: str, session: str = "s", attempt: int = 1, **changes: Any) -> dict[str, Any]:
    """What a Chiasm consumer sends."""
    extension = {"rev": 1, "epoch": 7, "planes": ["tcp"], "attempt": attempt}
    return request(mm_hash, session) | {"chiasm": extension} | changes


def nack(asked: dict[str, Any], status: int, **changes: Any) -> dict[str, Any]:
    """An upstream producer's refusal."""
    return {"type": "ack", "mm_hash": asked["mm_hash"], "status": status} | changes


def granted(asked: dict[str, Any], announcement: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A Chiasm producer's agreement to send what it announced, as bfloat16 and without a digest.

    `changes` are those of the `chiasm` map; None leaves a field out.
    """
    rows, width = announcement["shape"]
    extension = {
        "rev": 1,
        "epoch": 7,
        "attempt": asked["chiasm"]["attempt"],
        "plane": "tcp",
        "token": TOKEN,
        "extents": [0, announcement["size_bytes"] // 4096],
        "dtype": "bfloat16",
        "shape": [rows, width],
        "bytes": rows * width * 2,
        "block_size_bytes": 4096,
        "lease_ms": 30_000,
    }
    extension = {name: value for name, value in (extension | changes).items() if value is not None}
    return nack(asked, 0, session_id=asked["session_id"], chiasm=extension)
