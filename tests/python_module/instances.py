"""Instances of an engine that consist of a node and workers alone, for tests of the module."""

import ctypes
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chiasm import _native
from chiasm._native import Model, Node, Order, Settings, Worker

SHM = Path("/dev/shm")

ROW_ELEMENTS = 512
"""Numbers of two bytes in a row, which is a block: 1024 bytes."""

ROW_BYTES = 2 * ROW_ELEMENTS

LIMIT_S = 60.0
"""Far above what anything here takes: what does not come in this time never comes."""


def transfer_config(role: str, engine_id: str | None, **extra: Any) -> str:
    """The object of `--ec-transfer-config`, as JSON."""
    whole: dict[str, Any] = {
        "ec_connector": "ChiasmConnector",
        "ec_connector_module_path": "chiasm.vllm",
        "ec_role": role,
        "ec_connector_extra_config": {"ec_cpu_bytes": 64 * ROW_BYTES, **extra},
    }
    if engine_id is not None:
        whole["engine_id"] = engine_id
    return json.dumps(whole)


def settings(role: str, engine_id: str | None = None, *, index: int = 0, **extra: Any) -> Settings:
    """Settings of an instance that no other test has, reachable on loopback."""
    engine_id = engine_id or f"test-{os.getpid()}-{secrets.token_hex(4)}"
    text = transfer_config(role, engine_id, **extra)
    return Settings(text, data_parallel_index=index, host_address="127.0.0.1")


def model(**other: Any) -> Model:
    given: dict[str, Any] = {
        "vllm_version": "0.33.0",
        "model": "a-model",
        "dtype": "torch.bfloat16",
        "row_elements": ROW_ELEMENTS,
    }
    return Model(**{**given, **other})


def region_files(settings: Settings) -> list[str]:
    """Everything in /dev/shm that belongs to this instance."""
    return sorted(path.name for path in SHM.glob(f"{settings.region_name}*"))


@dataclass
class Memory:
    """Bytes of this process that have an address."""

    content: bytearray
    view: Any = field(init=False)

    def __post_init__(self) -> None:
        self.view = (ctypes.c_char * len(self.content)).from_buffer(self.content)

    @property
    def address(self) -> int:
        return ctypes.addressof(self.view)

    @property
    def nbytes(self) -> int:
        return len(self.content)


def rows(count: int, seed: int = 1) -> bytes:
    """An "encoder output" of so many rows, unlike that of another seed."""
    return bytes((seed * 31 + i * 7 + i // 251) % 256 for i in range(count * ROW_BYTES))


def until(node: Node, what: str, holds: Callable[[], bool]) -> None:
    """Waits for what the node's thread or a worker brings about."""
    while True:
        seen = node.news
        if holds():
            return
        node.wait(seen, LIMIT_S)
        if node.news == seen and not holds():
            raise AssertionError(f"it does not come: {what}; {_native.drain_logs()}")


@dataclass
class Instance:
    """One node and its one worker, in this process."""

    settings: Settings
    model: Model
    node: Node
    worker: Worker

    def save(self, identifier: str, content: bytes) -> None:
        """Saves and waits until it is ready."""
        count = len(content) // ROW_BYTES
        data = self.node.dispatch_save(identifier, count, ROW_ELEMENTS)
        assert data is not None, _native.drain_logs()
        memory = Memory(bytearray(content))
        self.worker.save(Order(data), memory.address, memory.nbytes)
        until(self.node, "saved", lambda: self.node.outstanding == 0)

    def load(self, identifier: str) -> bytes:
        """Loads what was promised and waits until the node knows that it is done."""
        data = self.node.dispatch_load(identifier)
        assert data is not None, _native.drain_logs()
        order = Order(data)
        memory = Memory(bytearray(order.nbytes))
        self.worker.load(order, memory.address, memory.nbytes)
        until(self.node, "loaded", lambda: self.node.outstanding == 0)
        return bytes(memory.content)

    def params(self, *identifiers: str) -> dict[str, Any]:
        """`ec_transfer_params` of these entries."""
        found = {}
        for index, identifier in enumerate(identifiers):
            address = self.node.announce(identifier)
            assert address is not None
            found[identifier] = {"modality": "image", "item_indices": [index], **address}
        return found

    def decide(
        self, request: str, items: list[tuple[str, int, int | None, int | None, bool]], params: Any
    ) -> int:
        """The decision on a new request in the end."""
        decision = self.node.track(request, items, params, 0)

        def is_decided() -> bool:
            nonlocal decision
            found = self.node.ensure(request, len(items), 0)
            assert found is not None
            decision = found
            return decision != _native.WAIT

        until(self.node, "a decision", is_decided)
        return decision

    def shutdown(self) -> None:
        self.node.shutdown()
        self.worker.shutdown()


@contextmanager
def instance(role: str, engine_id: str | None = None, **extra: Any) -> Iterator[Instance]:
    """A running instance; afterwards nothing of it is left."""
    found = settings(role, engine_id, **extra)
    its_model = model()
    worker = Worker(found, its_model)
    running = Instance(found, its_model, Node(found, its_model), worker)
    try:
        yield running
    finally:
        running.shutdown()
    assert region_files(found) == []


def item(
    identifier: str,
    *,
    count: int = 4,
    end: int = 100,
    width: int | None = None,
    local_input: bool = False,
) -> tuple[str, int, int | None, int | None, bool]:
    """An item of so many rows."""
    return (identifier, end, count, width, local_input)
