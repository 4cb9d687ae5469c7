"""Copies between an accelerator and the region, on streams of their own.

Not yet run on a GPU: written against torch's stream semantics and tested with a device that is made
of host memory. One copy per extent, from and to the region itself, whose pages are registered with
the driver where it allows that. A thread waits for each copy's event and reports it, so that
nothing waits for the engine's next step.

It must never report before the event has completed, nor let a tensor's memory go back to the
allocator while a copy still uses it.
"""

import ctypes
import queue
import threading
from typing import TYPE_CHECKING, Any, Protocol

import torch

from chiasm.vllm.copies import dtype_of, fits
from chiasm.vllm.logs import logger

if TYPE_CHECKING:
    from chiasm._native import Order, Worker


class Device(Protocol):
    """What is needed of an accelerator; `TorchDevice` is the real one."""

    name: str

    def new_stream(self) -> Any:
        """A stream beside the current one."""

    def current_stream(self) -> Any:
        """The stream that the model runs on."""

    def on(self, stream: Any) -> Any:
        """Context in which work goes to that stream."""

    def keep_for(self, stream: Any, tensor: torch.Tensor) -> None:
        """The tensor's memory is not given to anybody else before that stream's work is done."""

    def new_event(self) -> Any:
        """An event whose `synchronize` sleeps."""

    def register(self, address: int, nbytes: int) -> bool:
        """Page-locks host memory for this device. False if that is not to be had."""

    def unregister(self, address: int) -> None:
        """Takes that back."""


class TorchDevice:
    """A device of torch's: `cuda` (NVIDIA and AMD), `xpu`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._module = torch.get_device_module(name)

    def new_stream(self) -> Any:
        """See `Device`."""
        return self._module.Stream()

    def current_stream(self) -> Any:
        """See `Device`."""
        return self._module.current_stream()

    def on(self, stream: Any) -> Any:
        """See `Device`."""
        return self._module.stream(stream)

    def keep_for(self, stream: Any, tensor: torch.Tensor) -> None:
        """See `Device`."""
        tensor.record_stream(stream)

    def new_event(self) -> Any:
        """See `Device`."""
        if self.name == "cuda":
            return self._module.Event(blocking=True)
        return self._module.Event()

    def register(self, address: int, nbytes: int) -> bool:
        """See `Device`."""
        if self.name != "cuda":
            return False
        # 0: cudaHostRegisterDefault.
        return int(self._module.cudart().cudaHostRegister(address, nbytes, 0)) == 0

    def unregister(self, address: int) -> None:
        """See `Device`."""
        self._module.cudart().cudaHostUnregister(address)


class DeviceCopies:
    """See `copies.Copies`."""

    def __init__(self, worker: "Worker", dtype: torch.dtype, device: Device) -> None:
        self._worker = worker
        self._dtype = dtype
        self._device = device
        address, nbytes = worker.region_address, worker.region_bytes
        memory = (ctypes.c_uint8 * nbytes).from_address(address)
        self._region: torch.Tensor | None = torch.frombuffer(memory, dtype=torch.uint8)
        self._registered = device.register(address, nbytes)
        logger.warning(
            "device copies of ChiasmConnector have not yet been run on a GPU; check outputs "
            "against an engine without it first"
        )
        if not self._registered:
            logger.warning(
                "the region's memory could not be page-locked for %s: copies go through the "
                "driver's own buffers, which is slower",
                device.name,
            )
        self._saves = device.new_stream()
        self._loads = device.new_stream()
        self._under_way: queue.SimpleQueue[tuple[Any, Order, torch.Tensor] | None]
        self._under_way = queue.SimpleQueue()
        self._reporter = threading.Thread(
            target=self._report_all, name="chiasm-copies", daemon=True
        )
        self._reporter.start()

    def save(self, order: "Order", tensor: torch.Tensor) -> None:
        """See `copies.Copies`."""
        if self._region is None or not fits(order, tensor):
            self._worker.complete(order, False)
            return
        try:
            source = tensor.detach().contiguous()
            # The encoder's kernels may still be running.
            self._saves.wait_stream(self._device.current_stream())
            with self._device.on(self._saves):
                self._copy(order, source, into_region=True)
                event = self._device.new_event()
                event.record(self._saves)
            # The engine may evict the tensor at once.
            self._device.keep_for(self._saves, source)
        except Exception:
            self._give_up(order, self._saves)
            raise
        self._under_way.put((event, order, source))

    def load(self, order: "Order") -> torch.Tensor:
        """See `copies.Copies`."""
        try:
            current = self._device.current_stream()
            with self._device.on(self._loads):
                target = torch.empty(
                    (order.rows, order.width),
                    dtype=dtype_of(order, self._dtype),
                    device=self._device.name,
                )
                self._copy(order, target, into_region=False)
                event = self._device.new_event()
                event.record(self._loads)
            # Allocated on the copies' stream, read on the model's.
            self._device.keep_for(current, target)
            current.wait_stream(self._loads)
        except Exception:
            self._give_up(order, self._loads)
            raise
        self._under_way.put((event, order, target))
        return target

    def _copy(self, order: "Order", tensor: torch.Tensor, *, into_region: bool) -> None:
        """One asynchronous copy per extent, on the current stream."""
        region = self._region
        if region is None:
            raise RuntimeError("a copy after shutdown")
        flat = tensor.view(-1).view(torch.uint8)
        done = 0
        for offset, length in self._worker.extents(order):
            here, there = region[offset : offset + length], flat[done : done + length]
            if into_region:
                here.copy_(there, non_blocking=True)
            else:
                there.copy_(here, non_blocking=True)
            done += length

    def _give_up(self, order: "Order", stream: Any) -> None:
        """Reports a copy that did not start as a whole; parts of it may be under way."""
        stream.synchronize()
        self._worker.complete(order, False)

    def shutdown(self) -> None:
        """See `copies.Copies`."""
        if self._region is None:
            return
        self._under_way.put(None)
        self._reporter.join()
        self._region = None
        if self._registered:
            self._device.unregister(self._worker.region_address)

    def _report_all(self) -> None:
        while (copy := self._under_way.get()) is not None:
            event, order, kept = copy
            try:
                event.synchronize()
            except Exception:
                # A device that fails has lost the engine anyway; the entry must not become ready.
                logger.exception("a copy between %s and the region failed", self._device.name)
                self._report(order, failed=True)
            else:
                self._report(order, failed=False)
            del kept, copy

    def _report(self, order: "Order", *, failed: bool) -> None:
        try:
            if order.is_save and not failed:
                self._worker.complete_saved(order)
            else:
                self._worker.complete(order, not failed)
        except Exception:
            logger.exception("the end of a copy could not be reported")
