"""Processes that the tests start: a node or a worker that is told what to do line by line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from chiasm import _native
from chiasm._native import Node, Order, Settings, Worker
from tests.python_module.instances import Memory, model, transfer_config

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """One such process. It ends with the block that it was made for."""

    def __init__(self, settings: Settings, kind: str, rank: int = 0) -> None:
        arguments = [kind, settings.engine_id, settings.role, str(rank)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.python_module.processes", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started = self.hears()
        assert started == "started", started

    @classmethod
    def worker(cls, settings: Settings, rank: int) -> Self:
        return cls(settings, "worker", rank)

    @classmethod
    def node(cls, settings: Settings) -> Self:
        return cls(settings, "node")

    def hears(self) -> str:
        assert self.process.stdout is not None
        return str(json.loads(self.process.stdout.readline() or '"ended"'))

    def asks(self, *words: str) -> str:
        """Tells it something and hears the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.hears()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait()


def act(worker: Worker, words: list[str]) -> str:
    """What a worker does with one line."""
    order = Order(bytes.fromhex(words[1]))
    try:
        if words[0] == "save":
            memory = Memory(bytearray.fromhex(words[2]))
            worker.save(order, memory.address, memory.nbytes)
            return "ok"
        memory = Memory(bytearray(order.nbytes))
        worker.load(order, memory.address, memory.nbytes)
        return memory.content.hex()
    except _native.WorkerError as error:
        return str(error)


def main(kind: str, engine_id: str, role: str, rank: str) -> None:
    def says(text: str) -> None:
        print(json.dumps(text), flush=True)

    settings = Settings(transfer_config(role, engine_id), host_address="127.0.0.1")
    try:
        if kind == "node":
            node = Node(settings, model())
        else:
            worker = Worker(settings, model(), rank=int(rank))
    except _native.StartError as error:
        says(str(error))
        return
    says("started")
    for line in sys.stdin:
        says(act(worker, json.loads(line)) if kind == "worker" else str(os.getpid()))
    if kind == "node":
        node.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
