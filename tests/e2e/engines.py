"""Engines as a test sees them: a server that is spoken to over HTTP, or one process with a pipe.

Neither knows what a connector is: that is in the options that a test gives.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from tests.e2e.environment import ENGINE, python, variables

# Seconds. Far above what anything here takes; each turns a hang into a failure.
START, ANSWER, STOP = 200, 120, 60

LOW_PRIORITY = 10  # of 19, the lowest

# What every engine is started with, as `vllm.LLM` spells it.
OPTIONS: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 2048,
    "enforce_eager": True,
    "max_num_seqs": 8,
    "limit_mm_per_prompt": {"image": 4, "video": 0},
    "enable_prefix_caching": False,
    "seed": 0,
}


# Engines that have been started and not stopped.
RUNNING: list["Engine"] = []

_next_port = 20000 + os.getpid() * 97 % 12000


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens at, below those that the system gives
    to outgoing connections. No port is given out twice, and each process begins elsewhere."""
    global _next_port
    while True:
        if _next_port + count > 32000:
            _next_port = 20000
        first, _next_port = _next_port, _next_port + count
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
            return first
        except OSError:
            continue


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP."""

    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def tokens(self) -> list[int]:
        """The tokens of the only choice."""
        assert self.status == 200, self
        (choice,) = self.json["choices"]
        return list(choice["token_ids"])

    @property
    def params(self) -> dict[str, Any]:
        """The ec_transfer_params of a producer's answer."""
        assert self.status == 200, self
        return dict(self.json["ec_transfer_params"])


@dataclass
class Steps:
    """What an engine's scheduler decided while somebody watched."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def encoded(self) -> int:
        """How many items the engine has encoded itself."""
        return sum(len(items) for line in self.lines for items in line["encoded"].values())

    @property
    def preempted(self) -> int:
        return sum(len(line["preempted"]) for line in self.lines)


class Engine:
    """A process with an engine in it: its log, and what its scheduler writes down."""

    def __init__(self, name: str, folder: Path, *, v2: bool, environment: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.trace = folder / f"{name}.trace"
        self.trace.touch()
        self._environment = variables(v2=v2)
        self._environment["CHIASM_E2E_TRACE"] = str(self.trace)
        self._environment["PYTHONPATH"] += environment.pop("PYTHONPATH", "")
        self._environment |= environment
        self.process: subprocess.Popen[str]

    def _start(self, command: list[str], **pipes: Any) -> None:
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                env=self._environment,
                stderr=log,
                **({"stdout": log} | pipes),
                text=True,
                start_new_session=True,  # so that all of it can be ended
            )
        RUNNING.append(self)

    def give_way(self) -> Self:
        """Everything else on the machine goes first. For an engine that polls without pause: on
        some kernels its `sched_yield` keeps all others from running, for seconds."""
        os.setpriority(os.PRIO_PGRP, self.process.pid, LOW_PRIORITY)
        # Where each session is a group of its own, the group's priority is what counts.
        with suppress(FileNotFoundError):
            Path(f"/proc/{self.process.pid}/autogroup").write_text(str(LOW_PRIORITY))
        return self

    @property
    def runner(self) -> int:
        """Which of vLLM's model runners the engine has: 1 or 2."""
        first, _, _ = self.trace.read_text().partition("\n")
        return int(json.loads(first)["runner"])

    @contextmanager
    def watched(self) -> Iterator[Steps]:
        """What the scheduler decides between here and the end of the block."""
        steps = Steps()
        start = self.trace.stat().st_size
        yield steps
        with self.trace.open() as file:
            file.seek(start)
            steps.lines = [json.loads(line) for line in file]

    def said(self, start: int = 0) -> str:
        """The log from this byte on."""
        with self.log.open(errors="replace") as file:
            file.seek(start)
            return file.read()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Asks it to end, waits, and leaves no process of it behind."""
        if self in RUNNING:
            RUNNING.remove(self)
        if self.alive:
            self.process.terminate()
        try:
            self.process.wait(timeout=STOP)
        finally:
            with suppress(ProcessLookupError):
                # Its other processes end by themselves, and remove their shared memory first.
                end = time.monotonic() + STOP
                while time.monotonic() < end:
                    os.killpg(self.process.pid, 0)
                    time.sleep(0.05)
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Server(Engine):
    """vLLM's HTTP server."""

    def __init__(
        self,
        name: str,
        folder: Path,
        model: Path,
        *,
        connector: dict[str, Any] | None = None,
        v2: bool = False,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, folder, v2=v2, environment=dict(environment or {}))
        self.port = free_ports(1)
        options = OPTIONS | options
        if connector is not None:
            options["ec_transfer_config"] = connector
            options["scheduler_cls"] = "tracing_scheduler.TracingScheduler"
        if v2:
            options["worker_cls"] = "encoder_only_worker.EncoderOnlyWorker"
        command = [str(python()), "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--host=127.0.0.1", f"--port={self.port}"]
        command += [f"--model={model}", "--served-model-name=tiny"]
        for option, value in options.items():
            flag = option.replace("_", "-")
            if isinstance(value, bool):
                command.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                text = value if isinstance(value, str) else json.dumps(value)
                command += [f"--{flag}", text]
        self._start(command, stdin=subprocess.DEVNULL)

    def ready(self) -> "Server":
        """Waits until it serves. To be called before anything else."""
        end = threading.Event()
        timer = threading.Timer(START, end.set)
        timer.start()
        try:
            while not end.is_set():
                if not self.alive:
                    raise RuntimeError(f"{self.name} ended at its start:\n{self.said()[-6000:]}")
                if self.healthy:
                    return self
                end.wait(0.2)
        finally:
            timer.cancel()
        raise RuntimeError(f"{self.name} does not serve:\n{self.said()[-6000:]}")

    @property
    def healthy(self) -> bool:
        try:
            return self.call("GET", "/health").status == 200
        except OSError:
            return False

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return Answer(response.status, response.read().decode())
        finally:
            connection.close()

    def post(self, path: str, body: Any) -> Answer:
        return self.call("POST", path, body)

    def together(self, path: str, bodies: list[Any]) -> list[Answer]:
        """All of them at once."""
        answers: list[Answer | None] = [None] * len(bodies)

        def ask(place: int) -> None:
            answers[place] = self.post(path, bodies[place])

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(bodies))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(answer is not None for answer in answers)
        return [answer for answer in answers if answer is not None]


class Piped(Engine):
    """A process that reads a line of JSON and answers with one."""

    def _line(self) -> str:
        assert self.process.stdout is not None
        watchdog = threading.Timer(START, self.process.kill)
        watchdog.start()
        try:
            line = self.process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise RuntimeError(f"{self.name} has ended:\n{self.said()[-6000:]}")
        return line

    def ready(self) -> Self:
        """Waits until it can be asked. To be called before anything else."""
        assert self._line() == "ready\n"
        return self

    def stop(self) -> None:
        super().stop()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def ask(self, question: Any) -> Any:
        pipe: IO[str] | None = self.process.stdin
        assert pipe is not None
        pipe.write(json.dumps(question) + "\n")
        pipe.flush()
        return json.loads(self._line())


class InProcess(Piped):
    """vLLM's engine without a server: the engine core in the client's own process."""

    def __init__(
        self,
        name: str,
        folder: Path,
        model: Path,
        *,
        connector: dict[str, Any] | None = None,
        v2: bool = False,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        own = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", **(environment or {})}
        super().__init__(name, folder, v2=v2, environment=own)
        options = OPTIONS | options
        options |= {"model": str(model), "distributed_executor_backend": "uni"}
        if connector is not None:
            options["ec_transfer_config"] = connector
        options["scheduler_cls"] = "tracing_scheduler.TracingScheduler"
        if v2:
            options["worker_cls"] = "encoder_only_worker.EncoderOnlyWorker"
        command = [str(python()), str(ENGINE / "in_process.py"), json.dumps(options)]
        self._start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Runs these requests as one batch: see engine/in_process.py."""
        results: list[dict[str, Any]] = self.ask(requests)
        return results


class Connectors(Piped):
    """Connectors without an engine: see engine/connectors.py."""

    def __init__(
        self, name: str, folder: Path, model: Path, *, environment: dict[str, str] | None = None
    ) -> None:
        super().__init__(name, folder, v2=False, environment=dict(environment or {}))
        command = [str(python()), str(ENGINE / "connectors.py"), str(model)]
        self._start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def build(self, transfer: dict[str, Any], **more: Any) -> str | None:
        """Builds the two connectors of an instance; answers why that is not possible, if so."""
        error: str | None = self.ask({"transfer": transfer} | more)["error"]
        return error
