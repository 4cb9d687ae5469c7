"""Copies to and from an accelerator, with a device that is made of host memory."""

import contextlib
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from chiasm.vllm.device_copies import DeviceCopies
from tests.vllm.engine import DTYPE, Engine, encoded, image, in_a_row, request, until

Start = Callable[..., Engine]


class Stream:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_stream(self, other: "Stream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")

    def synchronize(self) -> None:
        self.log.append(f"{self.name} synchronized")


class Event:
    def __init__(self, device: "HostDevice") -> None:
        self.device = device

    def record(self, stream: Stream) -> None:
        self.device.log.append(f"event on {stream.name}")

    def synchronize(self) -> None:
        assert self.device.copies_end.wait(60)
        if self.device.broken:
            raise RuntimeError("device lost")


class HostDevice:
    """Its copies end when the test says so."""

    name = "cpu"

    def __init__(self) -> None:
        self.log: list[str] = []
        self.copies_end = threading.Event()
        self.broken = False
        self.registered: list[int] = []
        self.model = Stream(self.log, "model")
        self.streams = iter(("saves", "loads"))

    def new_stream(self) -> Stream:
        return Stream(self.log, next(self.streams))

    def current_stream(self) -> Stream:
        return self.model

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        self.log.append(f"on {stream.name}")
        yield
        self.log.append(f"off {stream.name}")

    def keep_for(self, stream: Stream, tensor: torch.Tensor) -> None:
        self.log.append(f"kept for {stream.name}")

    def new_event(self) -> Event:
        return Event(self)

    def register(self, address: int, nbytes: int) -> bool:
        assert address % 4096 == 0
        self.registered.append(address)
        return True

    def unregister(self, address: int) -> None:
        self.registered.remove(address)


@pytest.fixture
def device() -> Iterator[HostDevice]:
    device = HostDevice()
    yield device
    device.copies_end.set()


@pytest.fixture
def engine(start: Start, device: HostDevice) -> Engine:
    engine = start("ec_both")
    assert engine.worker is not None
    side = engine.worker.worker_side
    side._copies = DeviceCopies(side._worker, DTYPE, device)
    return engine


def forget(engine: Engine) -> None:
    engine.scheduler.encoder_cache_manager.reset()
    engine.encoder_cache.clear()


def test_a_save_is_reported_when_its_copy_has_ended_and_no_hook_is_needed(
    engine: Engine, device: HostDevice
) -> None:
    engine.run(request("a", [image("cat")]))
    assert engine.node.outstanding == 1
    assert engine.connector.has_pending_push_work()
    device.copies_end.set()
    engine.settle()
    assert device.log == [
        "saves waits for model",
        "on saves",
        "event on saves",
        "off saves",
        "kept for saves",
    ]


def test_a_load_is_ordered_before_the_model_and_pins_until_it_has_ended(
    engine: Engine, device: HostDevice
) -> None:
    device.copies_end.set()
    engine.run(request("a", in_a_row(image("cat", 4), image("dog", 7))))
    engine.settle()
    forget(engine)
    device.log.clear()
    device.copies_end.clear()
    engine.run(request("b", [image("dog", 7)]))
    assert torch.equal(engine.embeddings["b"][0], encoded("dog", 7))
    assert device.log == [
        "on loads",
        "event on loads",
        "off loads",
        "kept for model",
        "model waits for loads",
    ]
    assert engine.node.outstanding == 1
    device.copies_end.set()
    engine.settle()


def test_an_entry_whose_copy_failed_never_becomes_ready(engine: Engine, device: HostDevice) -> None:
    device.broken = True
    engine.run(request("a", [image("cat")]))
    device.copies_end.set()
    engine.settle()
    assert not engine.node.has_entry("cat")


def test_the_region_is_registered_while_it_is_in_use(engine: Engine, device: HostDevice) -> None:
    assert len(device.registered) == 1
    device.copies_end.set()
    engine.shutdown()
    assert device.registered == []
    engine.shutdown()


def test_shutdown_waits_for_what_is_under_way(engine: Engine, device: HostDevice) -> None:
    engine.run(request("a", [image("cat")]))
    ending = threading.Thread(target=lambda: engine.worker and engine.worker.shutdown())
    ending.start()
    assert engine.node.outstanding == 1
    device.copies_end.set()
    ending.join(60)
    assert not ending.is_alive()
    until(lambda: engine.node.outstanding == 0, "the last report was taken", engine.node)
    assert engine.node.has_entry("cat")


def test_a_copy_that_cannot_start_is_reported_after_its_parts_have_ended(
    engine: Engine, device: HostDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(device, "keep_for", fails)
    engine.run(request("a", [image("cat")]))
    engine.settle()
    assert device.log[-1] == "saves synchronized"
    assert not engine.node.has_entry("cat")


def test_no_memory_of_the_region_is_left_mapped(engine: Engine, device: HostDevice) -> None:
    device.copies_end.set()
    name = engine.connector.scheduler_side.settings.region_name
    engine.shutdown()
    assert name not in pathlib.Path("/proc/self/maps").read_text()
