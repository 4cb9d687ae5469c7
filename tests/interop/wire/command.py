"""The chiasm command as an outside program: one message in, one verdict out."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MAX_SECONDS = 30


def binary() -> Path:
    """The command under test: $CHIASM_BIN, else the newest build in target/."""
    if named := os.environ.get("CHIASM_BIN"):
        return Path(named)
    builds = [ROOT / "target" / profile / "chiasm" for profile in ("release", "debug")]
    built = [path for path in builds if path.exists()]
    assert built, "no chiasm command: build it (`make build`) or set CHIASM_BIN"
    return max(built, key=lambda path: path.stat().st_mtime)


@dataclass(frozen=True)
class Verdict:
    """What the command made of a message: a value, or the reason why it refused it."""

    value: Any
    reason: str | None


def decode(kind: str, message: bytes) -> Verdict:
    """Decodes one message; any outcome but "accepted" and "refused in one line" is an error."""
    done = subprocess.run(
        [binary(), "wire", "decode", "--kind", kind, "--format", "raw", "--json"],
        input=message,
        capture_output=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    if done.returncode == 0:
        assert done.stderr == b""
        return Verdict(json.loads(done.stdout), None)
    assert done.returncode == 2, done
    assert done.stdout == b""
    reason = done.stderr.decode()
    assert reason.startswith("error: ")
    assert reason.count("\n") == 1, "one line of reason"
    return Verdict(None, reason.removeprefix("error: ").rstrip("\n"))


def encode(kind: str, value: Any) -> bytes:
    """Encodes a value in the command's JSON form, given through standard input."""
    done = subprocess.run(
        [binary(), "wire", "encode", "--kind", kind, "-"],
        input=json.dumps(value).encode(),
        capture_output=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return bytes.fromhex(done.stdout.decode())
