"""The programs that say figures: the command, drivers in vLLM's interpreter, drivers in `.venv`."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Far above what any of them takes; it turns a hang into an error.
LIMIT_S = 900.0

Row = dict[str, Any]


class FailedError(Exception):
    """A program that did not do what it was to do; what it had to say of it."""


class Host:
    """`bench.host` under the interpreter that has vLLM, started when it is needed first."""

    def __init__(self, python: Path, site: Path | None, drive: Path | None, chiasm: Path) -> None:
        self.python, self.site, self.drive, self.chiasm = python, site, drive, chiasm
        self.process: subprocess.Popen[bytes] | None = None
        self.errors = -1
        self.rest = b""

    def start(self) -> subprocess.Popen[bytes]:
        self.errors = os.memfd_create("errors")
        environment = dict(os.environ)
        environment.pop("PYTHONPATH", None)
        if self.site is not None:
            # Nothing but Chiasm's own package: vLLM's environment stays as it is.
            environment["PYTHONPATH"] = str(self.site)
        if self.drive is not None:
            environment["CHIASM_NIXL_DRIVE"] = str(self.drive)
        # Whoever does the same work as the command asks it what that is.
        environment["CHIASM_BENCH_COMMAND"] = str(self.chiasm)
        self.process = subprocess.Popen(
            [self.python, "-m", "bench.host"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
        )
        line = self.line("bench.host")
        if line != b'{"ready": true}':
            raise FailedError(f"bench.host said {line!r}")
        return self.process

    def line(self, what: str) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
            data = os.read(self.process.stdout.fileno(), 1 << 16) if ready else b""
            if not data:
                raise FailedError(f"{what} has said nothing or has ended:\n{self.said()}")
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def said(self) -> str:
        """The end of what it wrote to its standard error."""
        size = os.fstat(self.errors).st_size
        return os.pread(self.errors, 4000, max(0, size - 4000)).decode(errors="replace")

    def rows(self, module: str, arguments: list[str]) -> Iterator[Row]:
        process = self.process or self.start()
        assert process.stdin is not None
        order = {"module": module, "arguments": arguments}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        what = " ".join([module, *arguments])
        while True:
            line = self.line(what)
            if not line.startswith(b"{"):
                continue
            said = json.loads(line)
            if "ended" not in said:
                yield said
                continue
            if said["ended"]:
                raise FailedError(f"{what} ended with {said['ended']}:\n{self.said()}")
            return

    def close(self) -> None:
        """Ends it, and whatever a driver has left behind."""
        process, self.process = self.process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        os.close(self.errors)


class Programs:
    """What is run."""

    def __init__(
        self,
        chiasm: Path,
        vllm: Path | None = None,
        site: Path | None = None,
        drive: Path | None = None,
    ) -> None:
        self.chiasm, self.vllm, self.drive = chiasm, vllm, drive
        self.host = Host(vllm, site, drive, chiasm) if vllm is not None else None

    def has(self, program: str) -> bool:
        """Whether there is such a program here."""
        return {
            "chiasm": True,
            "python": True,
            "vllm": self.host is not None,
            "nixl": self.host is not None and self.drive is not None,
        }[program]

    def rows(self, program: str, arguments: list[str], effort: str) -> Iterator[Row]:
        """What it says, a row a line."""
        if program in ("vllm", "nixl"):
            assert self.host is not None
            module, *others = arguments
            yield from self.host.rows(module, [*others, "--effort", effort])
            return
        environment = dict(os.environ)
        if self.vllm is not None:
            # Where the command finds NIXL.
            environment["VIRTUAL_ENV"] = str(self.vllm.parent.parent)
        if program == "chiasm":
            flags = [] if effort == "full" else [f"--{effort}"]
            command = [str(self.chiasm), "--json", "bench", *arguments, *flags]
        else:
            command = [sys.executable, "-m", *arguments, "--effort", effort]
        yield from lines(command, environment)

    def close(self) -> None:
        if self.host is not None:
            self.host.close()


def lines(command: list[str], environment: dict[str, str]) -> Iterator[Row]:
    """The rows of a program that is started for them."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"{' '.join(command)} has not ended after {LIMIT_S} s") from error
    if done.returncode:
        end = done.stderr[-4000:]
        raise FailedError(f"{' '.join(command)} ended with {done.returncode}:\n{end}")
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
