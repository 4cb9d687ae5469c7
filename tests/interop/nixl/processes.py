"""The processes of these tests: a helper process behind its driver, and foreign NIXL agents.

Both speak JSON lines. Nothing here waits for a time to pass: a wait is for a line or for an end,
and a limit on it is a failure.
"""

import json
import mmap
import os
import select
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent

BLOCK = 7168
LIMIT_S = 60.0


@cache
def environment() -> Path:
    """Where the Python with NIXL is."""
    path = subprocess.run(
        [ROOT / "scripts/setup-vllm", "--path"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    if not (Path(path) / "complete").exists():
        raise RuntimeError(f"there is no {path}: make vllm")
    return Path(path)


def variables(tls: str | None) -> dict[str, str]:
    """What all of them are given; `tls` limits UCX to some transports."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
    kept |= {"NIXL_LOG_LEVEL": "ERROR", "UCX_LOG_LEVEL": "error"}
    return kept | ({"UCX_TLS": tls} if tls else {})


class Lines:
    """A process that speaks JSON lines."""

    def __init__(self, command: list[str | Path], tls: str | None) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables(tls),
        )
        self._rest = b""

    def say(self, value: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(value).encode() + b"\n")
        self.process.stdin.flush()

    def line(self) -> Any:
        """The next line; a failure if there is none within the limit."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
            assert ready, f"{self.process.args!r} has said nothing for {LIMIT_S} s"
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            assert data, f"{self.process.args!r} has ended"
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)

    def first(self, ask: Callable[[], Any]) -> Any:
        """The first answer; without one, nothing of the process is left."""
        try:
            return ask()
        except BaseException:
            Lines.close(self)
            raise

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # what it was told and did not live to read
            self.process.stdin.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Peer(Lines):
    """A foreign agent with a buffer of `blocks` blocks."""

    def __init__(self, name: str, blocks: int, tls: str | None = None) -> None:
        super().__init__([environment() / "bin/python", HERE / "peer.py"], tls)
        self.name = name
        about = self.first(lambda: self.ask("start", name=name, size_bytes=blocks * BLOCK))
        self.address: int = about["address"]
        self.metadata = bytes.fromhex(about["metadata"])
        self.span = (self.address, blocks * BLOCK)

    def ask(self, operation: str, /, **arguments: Any) -> Any:
        self.say({"op": operation, **arguments})
        return self.line()["answer"]

    def answers_or_ends(self) -> None:
        """Wait until it has made progress, or is no more."""
        with suppress(BrokenPipeError):
            self.say({"op": "about"})
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], LIMIT_S)[0]

    def fill(self, data: bytes, offset: int = 0) -> None:
        self.ask("fill", offset=offset, data=data.hex())

    def bytes(self, size: int, offset: int = 0) -> bytes:
        return bytes.fromhex(self.ask("bytes", offset=offset, size=size))


class Helper(Lines):
    """A helper process and the process that is its node. `blocks` is the region's file."""

    def __init__(
        self,
        role: str,
        dir: Path,
        blocks: int,
        tls: str | None = None,
        name: str = "chiasm-test",
        **settings: Any,
    ) -> None:
        drive = os.environ["CHIASM_NIXL_DRIVE"]
        usual = {
            "library": None,
            "python_prefixes": [str(environment())],
            "backend": "UCX",
            "interfaces": None,
            "ports": None,
        }
        command = [
            drive,
            str(dir),
            name,
            str(blocks),
            str(BLOCK),
            json.dumps(usual | settings),
            role,
        ]
        super().__init__(list(command), tls)
        first = self.first(self.line)
        self.id: int = first["helper"]
        self.pidfd: int | None = None
        with suppress(ProcessLookupError):  # it may have ended by now
            self.pidfd = os.pidfd_open(self.id)
        self.region = Path(first["region"])
        with self.region.open("r+b") as file:
            header_bytes = int.from_bytes(file.read(32)[24:32], "little")
            self._map = mmap.mmap(file.fileno(), 0)
        self.blocks = memoryview(self._map)[header_bytes : header_bytes + blocks * BLOCK]
        self.ready: dict[str, Any] = {}

    def up(self) -> "Helper":
        """Wait until it is up; what it says then is in `ready`."""
        self.ready = self.event("Ready")
        return self

    def event(self, *kinds: str) -> Any:
        """The next event, which has to be of one of these kinds."""
        event = self.line()
        kind, value = next(iter(event.items()))
        assert kind in kinds, event
        return value

    def load(self, peer: Peer, id: int = 1, **changed: Any) -> None:
        command = {
            "peer": id,
            "agent_name": peer.name,
            "metadata": list(peer.metadata),
            "span": {"address": peer.span[0], "bytes": peer.span[1]},
        }
        self.say({"LoadPeer": command | changed})

    def read(
        self,
        peer: Peer,
        local: list[tuple[int, int]],
        remote: list[tuple[int, int]],
        note: str = "",
        read: int = 7,
        id: int = 1,
    ) -> None:
        """Runs of whole blocks, (first, count)."""
        self.say(
            {
                "read": read,
                "peer": id,
                "local": [(first * BLOCK, count * BLOCK) for first, count in local],
                "remote": [
                    (peer.address + first * BLOCK, count * BLOCK) for first, count in remote
                ],
                "span": peer.span,
                "notification": note,
            }
        )

    def has_ended(self) -> bool:
        """Wait for the end of the helper process, whoever its parent is."""
        return self.pidfd is None or bool(select.select([self.pidfd], [], [], LIMIT_S)[0])

    def signal_helper(self, number: int) -> None:
        assert self.pidfd is not None, "it has ended"
        signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        super().close()
        # As the next start of a node: nobody is served any more.
        self.region.unlink(missing_ok=True)
        assert self.has_ended(), "a helper process outlived its node"
        if self.pidfd is not None:
            os.close(self.pidfd)
        self.blocks.release()
        self._map.close()


Start = Callable[..., Any]


def pattern(blocks: int, seed: int = 1) -> bytes:
    """Bytes of which no two blocks are alike."""
    return b"".join(
        (((seed << 32) | block) * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8, "little")
        * (BLOCK // 8)
        for block in range(blocks)
    )


def runs(data: bytes, extents: list[tuple[int, int]]) -> bytes:
    """The bytes of these blocks, in this order."""
    return b"".join(data[first * BLOCK : (first + count) * BLOCK] for first, count in extents)
