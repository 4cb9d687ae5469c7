"""The chiasm command from outside: started as a user starts it, and watched as an operator would.

Nothing here looks into the product, with one exception: the process id in a region's header, by
which the regions of one test are told from those of other processes of the machine.
"""

import json
import os
import queue
import signal
import struct
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.stopping import stands_still
from tests.interop.wire.command import ROOT, binary

__all__ = ["ROOT", "SHM", "Chiasm", "Done", "Producer", "Running", "binary"]

SHM = Path("/dev/shm")
# Far above what anything here takes; it turns a hang into a failure.
MAX_SECONDS = 120


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def items(self) -> dict[str, dict[str, Any]]:
        """The items of a fetch report, by mm_hash."""
        return {item["mm_hash"]: item for item in self.json["items"]}

    def verdicts(self) -> dict[str, tuple[str, str | None]]:
        """Verdict and reason of each item of a fetch report."""
        return {name: (item["verdict"], item["reason"]) for name, item in self.items().items()}

    def only(self) -> dict[str, Any]:
        """The only item of a fetch report."""
        (item,) = self.json["items"]
        return dict(item)

    def one_error(self) -> str:
        """What is wrong with the input, if that is all that was said."""
        assert self.code == 2, self
        assert self.out == "", "nothing on standard output"
        return self.error_text()

    def error_text(self) -> str:
        """The error message, if standard error has that one message and nothing else."""
        assert self.err.startswith("error: "), self.err
        assert self.err.count("error: ") == 1, self.err
        for noise in ("panicked", "RUST_BACKTRACE", "Traceback", "stack backtrace"):
            assert noise not in self.err
        return self.err.removeprefix("error: ").rstrip("\n")


class Running:
    """A command that runs. Its standard error is read as it comes."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.errors: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.errors.append(line.rstrip("\n"))
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, start: str) -> str:
        """The rest of the next line of standard error that starts like this."""
        while True:
            line = self._lines.get(timeout=MAX_SECONDS)
            assert line is not None, f"it ended without {start!r}: {self.errors}"
            if line.startswith(start):
                return line.removeprefix(start)

    def said(self, text: str, times: int = 1) -> None:
        """Waits until so many lines of standard error, earlier ones among them, have had this."""
        while sum(text in line for line in list(self.errors)) < times:
            line = self._lines.get(timeout=MAX_SECONDS)
            assert line is not None, f"it ended without {text!r}: {self.errors}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self) -> Done:
        """Waits for its end."""
        out = self.process.stdout.read() if self.process.stdout else ""
        code = self.process.wait(timeout=MAX_SECONDS)
        self.close()
        return Done(code, out, "".join(f"{line}\n" for line in self.errors))

    def close(self) -> None:
        """Lets go of the pipes of a process that has ended."""
        self._reader.join(timeout=MAX_SECONDS)
        if self.process.stdout:
            self.process.stdout.close()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            stands_still(self.pid)

    def regions(self, shm: Path = SHM) -> list[Path]:
        """The region files that the process has made."""
        return [path for path in shm.glob("*chiasm*") if _creator(path) == self.pid]

    def descriptors(self) -> int:
        """How many files and sockets the process has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Producer:
    """A `chiasm produce` that is ready."""

    def __init__(self, running: Running, announced: Path) -> None:
        self.running = running
        self.announced = announced
        self.endpoint = running.line("ready ")
        self.host, _, port = self.endpoint.rpartition(":")
        self.port = int(port)

    @property
    def params(self) -> dict[str, dict[str, Any]]:
        """Its ec_transfer_params object."""
        params: dict[str, dict[str, Any]] = json.loads(self.announced.read_text())
        return params

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Done:
        """Asks it to stop and waits for its end."""
        self.running.signal(number)
        return self.running.wait()


class Chiasm:
    """All commands of one test, and what they may have left behind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[subprocess.Popen[str]] = []
        self._running: list[Running] = []
        self._count = 0

    def _path(self, name: str) -> Path:
        self._count += 1
        return self.directory / f"{self._count}-{name}"

    def start(
        self,
        *arguments: str | Path,
        prefix: Sequence[str] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: Any = subprocess.PIPE,
        cwd: Path | None = None,
    ) -> "subprocess.Popen[str]":
        """Starts the command. `prefix` is what runs it, for example unshare."""
        command = [*prefix, str(binary()), *map(str, arguments)]
        process = subprocess.Popen(
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            cwd=cwd or self.directory,
        )
        self._started.append(process)
        return process

    def run(
        self,
        *arguments: str | Path,
        text: str | None = None,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
    ) -> Done:
        """Runs the command to its end; `text` is its standard input."""
        stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
        process = self.start(*arguments, prefix=prefix, stdin=stdin, cwd=cwd)
        try:
            out, err = process.communicate(text, timeout=MAX_SECONDS)
        finally:
            process.kill()
            process.wait()
        return Done(process.returncode, out, err)

    def watch(self, process: "subprocess.Popen[str]") -> Running:
        """Reads what the process says as it comes."""
        self._running.append(Running(process))
        return self._running[-1]

    def produce(self, *arguments: str | Path, prefix: Sequence[str] = ()) -> Producer:
        """Starts a producer and waits until it is ready."""
        announced = self._path("params.json")
        process = self.start(
            "produce", "--announce", announced, *arguments, prefix=prefix, stdout=subprocess.DEVNULL
        )
        producer = Producer(self.watch(process), announced)
        return producer

    def params(self, params: Any) -> Path:
        """A file with this ec_transfer_params; text as it is, anything else as JSON."""
        path = self._path("params.json")
        path.write_text(params if isinstance(params, str) else json.dumps(params))
        return path

    def fetch_arguments(
        self, params: Any, allow: str | Iterable[str], *arguments: str | Path, out: Path | None
    ) -> list[str | Path]:
        given = params if isinstance(params, Path) else self.params(params)
        allow = [allow] if isinstance(allow, str) else allow
        allowed = [f"--allow={endpoint}" for endpoint in allow]
        out = out or self._path("out")
        return ["fetch", "--json", "--params", given, "--out", out, *allowed, *arguments]

    def fetch(
        self,
        params: Any,
        allow: str | Iterable[str] = (),
        *arguments: str | Path,
        out: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Done:
        """Fetches what `params` (a file, or what is to be in one) announces."""
        return self.run(
            *self.fetch_arguments(params, allow, *arguments, out=out), prefix=prefix, cwd=None
        )

    def start_fetch(
        self,
        params: Any,
        allow: str | Iterable[str] = (),
        *arguments: str | Path,
        out: Path | None = None,
        prefix: Sequence[str] = (),
    ) -> Running:
        """Starts to fetch."""
        given = self.fetch_arguments(params, allow, *arguments, out=out)
        return self.watch(self.start(*given, prefix=prefix))

    def close(self) -> None:
        """Ends what still runs, politely, and checks that nothing is left."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a test may have stopped it
        stuck = []
        for process in self._started:
            try:
                process.wait(timeout=MAX_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                stuck.append(process.args)
        for running in self._running:
            running.close()
        left = self.leftovers()
        for path in left:
            path.unlink()
        assert stuck == [], "commands that did not end when they were asked to"
        assert left == [], "regions that nobody removed"

    def leftovers(self) -> list[Path]:
        """The files in /dev/shm that commands of this test have made."""
        mine = {process.pid for process in self._started}
        return [path for path in SHM.glob("*chiasm*") if _creator(path) in mine]


def _creator(region: Path) -> int | None:
    """The process that made a region, or whose draft it is."""
    try:
        with region.open("rb") as file:
            header = file.read(256)
    except OSError:
        return None
    if len(header) < 72:
        return None
    return int(struct.unpack_from("<I", header, 68)[0])
