"""Checks the copies between an accelerator and the region, on a machine that has one.

    /path/to/vllm/python scripts/check_device.py [--device cuda]

Run it with a Python that has torch for the device, vLLM and this package. No model and no engine is
started. It saves and loads encoder outputs as a worker does, frees tensors while their copies are
still queued, compares every byte on the host, and measures both directions beside a copy to
page-locked memory of torch's own. Prints a line per check; exit code 0 if all have passed, 1 if one
has not, 2 without the device.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from chiasm import _native
from chiasm.vllm.device_copies import Device, DeviceCopies, TorchDevice

WIDTH = 1024
ROW_BYTES = 2 * WIDTH
LONG_S = 60.0


class Bench:
    """One instance of one rank: what an engine's scheduler and its worker hold."""

    def __init__(self, device: Device, blocks: int) -> None:
        transfer = {
            "ec_connector": "ChiasmConnector",
            "ec_connector_module_path": "chiasm.vllm",
            "ec_role": "ec_both",
            "engine_id": f"check-device-{os.getpid()}",
            "ec_connector_extra_config": {"ec_cpu_bytes": blocks * ROW_BYTES},
        }
        settings = _native.Settings(json.dumps(transfer))
        model = _native.Model(
            vllm_version="0", model="check", dtype="torch.bfloat16", row_elements=WIDTH
        )
        self.device = device
        self.worker = _native.Worker(settings, model)
        self.node = _native.Node(settings, model)
        self.copies = DeviceCopies(self.worker, torch.bfloat16, device)

    def save(self, name: str, tensor: torch.Tensor) -> None:
        """Orders the save and starts its copy."""
        order = self.node.dispatch_save(name, tensor.shape[0], tensor.shape[1])
        assert order is not None, f"no room for {name}"
        self.copies.save(_native.Order(order), tensor)

    def load(self, name: str, rows: int) -> torch.Tensor:
        """The tensor, on the device; its copy may still be queued."""
        request = f"load of {name}"
        item = (name, rows, rows, WIDTH, True)
        assert self.node.track(request, [item], None, 0) == _native.READY
        assert self.node.has_promised(name), f"{name} is not in the region"
        order = self.node.dispatch_load(name)
        assert order is not None
        tensor = self.copies.load(_native.Order(order))
        self.node.finish(request)
        return tensor

    def settle(self) -> None:
        """Waits until every copy has been reported."""
        end = time.monotonic() + LONG_S
        while True:
            seen = self.node.news
            if not self.node.outstanding:
                return
            assert time.monotonic() < end, f"{self.node.outstanding} copies were never reported"
            self.node.wait(seen, 0.1)

    def end(self) -> None:
        """Safe after a check that has failed."""
        self.copies.shutdown()
        self.worker.shutdown()
        self.node.shutdown()


@contextmanager
def bench(device: Device, blocks: int) -> Iterator[Bench]:
    """A region of so many rows."""
    made = Bench(device, blocks)
    try:
        yield made
    finally:
        made.end()


def encoded(device: Device, rows: int, seed: int) -> torch.Tensor:
    """An encoder output whose bytes depend on the seed, and the same on every device."""
    words = torch.arange(rows * WIDTH, dtype=torch.int32).view(rows, WIDTH)
    mixed = (words * 40503 + seed * 7919) % 32749
    return mixed.to(torch.int16).view(torch.bfloat16).to(device.name)


def same(tensor: torch.Tensor, device: Device, seed: int) -> None:
    """Compares bits on the host: not-a-number is no special case."""
    found = tensor.cpu().view(torch.int16)
    expected = encoded(device, tensor.shape[0], seed).cpu().view(torch.int16)
    assert torch.equal(found, expected), f"{int((found != expected).sum())} elements differ"


def check_round_trips(device: Device) -> None:
    """1, 16, 1000 and 8192 rows come back bit by bit"""
    sizes = [1, 16, 1000, 8192]
    with bench(device, sum(sizes)) as made:
        for seed, rows in enumerate(sizes):
            made.save(f"e{rows}", encoded(device, rows, seed))
        made.settle()
        for seed, rows in enumerate(sizes):
            same(made.load(f"e{rows}", rows), device, seed)
        made.settle()


def check_strided(device: Device) -> None:
    """a tensor that is not contiguous is saved as what it shows"""
    with bench(device, 64) as made:
        wide = torch.cat([encoded(device, 64, 1), encoded(device, 64, 2)], dim=1)
        made.save("view", wide[:, :WIDTH])
        made.settle()
        same(made.load("view", 64), device, 1)
        made.settle()


def check_freed_at_once(device: Device) -> None:
    """a tensor may be freed, and its memory used again, before its copy has run"""
    with bench(device, 64 * 256) as made:
        for seed in range(64):
            tensor = encoded(device, 256, seed)
            made.save(f"e{seed}", tensor)
            del tensor
            # What the allocator has just got back would be written here.
            torch.full((256, WIDTH), -1.0, dtype=torch.bfloat16, device=device.name)
        made.settle()
        for seed in range(64):
            same(made.load(f"e{seed}", 256), device, seed)
        made.settle()


def check_kernel_before_copy(device: Device) -> None:
    """a save waits for the kernels that still make its tensor"""
    with bench(device, 4096) as made:
        tensor = torch.zeros((4096, WIDTH), dtype=torch.bfloat16, device=device.name)
        for _ in range(64):
            tensor += 1
        made.save("sum", tensor)
        made.settle()
        loaded = made.load("sum", 4096)
        made.settle()
        assert bool((loaded.cpu() == 64).all())


def check_used_at_once(device: Device) -> None:
    """kernels behind a load see all of its bytes"""
    with bench(device, 8192) as made:
        made.save("one", torch.ones((8192, WIDTH), dtype=torch.bfloat16, device=device.name))
        made.settle()
        for _ in range(16):
            loaded = made.load("one", 8192)
            total = (loaded == 1).sum()
            del loaded
            assert int(total) == 8192 * WIDTH
        made.settle()


def check_evicted_while_queued(device: Device) -> None:
    """an entry stays where it is until its load has run, however full the region is"""
    with bench(device, 2 * 2048) as made:
        made.save("first", encoded(device, 2048, 1))
        made.settle()
        loads = [made.load("first", 2048) for _ in range(4)]
        for seed in range(2, 10):
            made.save(f"e{seed}", encoded(device, 2048, seed))
            made.settle()
        for loaded in loads:
            same(loaded, device, 1)


def check_scattered(device: Device) -> None:
    """an entry in several extents comes back in order"""
    with bench(device, 64) as made:
        for seed in range(16):
            made.save(f"small{seed}", encoded(device, 4, seed))
        made.settle()
        kept = [made.load(f"small{seed}", 4) for seed in range(1, 16, 2)]
        made.settle()
        assert len(kept) == 8
        # Evicts the oldest, which do not lie side by side any more.
        made.save("large", encoded(device, 32, 99))
        made.settle()
        same(made.load("large", 32), device, 99)
        made.settle()


CHECKS: list[Callable[[Device], None]] = [
    check_round_trips,
    check_strided,
    check_freed_at_once,
    check_kernel_before_copy,
    check_used_at_once,
    check_evicted_while_queued,
    check_scattered,
]


def measure(device: Device, rows: int = 16384, rounds: int = 9) -> str:
    """Median GB/s of both directions, beside page-locked memory of torch's own, taken in turn."""
    nbytes = rows * ROW_BYTES
    tensor = encoded(device, rows, 0)
    pinned = torch.empty((rows, WIDTH), dtype=torch.bfloat16, pin_memory=device.name != "cpu")
    taken: dict[str, list[float]] = {}

    def timed(what: str, copy: Callable[[], Any]) -> None:
        device.current_stream().synchronize()
        start = time.perf_counter()
        copy()
        device.current_stream().synchronize()
        taken.setdefault(what, []).append(time.perf_counter() - start)

    with bench(device, rounds * rows) as made:

        def save(name: str) -> None:
            made.save(name, tensor)
            made.settle()

        def load(name: str) -> None:
            made.load(name, rows)
            made.settle()

        for name in [f"e{turn}" for turn in range(rounds)]:
            timed("to pinned memory", lambda: pinned.copy_(tensor, non_blocking=True))
            timed("save, with its digest", partial(save, name))
            timed("from pinned memory", lambda: tensor.copy_(pinned, non_blocking=True))
            timed("load", partial(load, name))
    lines = [
        f"  {what}: {nbytes / sorted(times)[len(times) // 2] / 1e9:.1f} GB/s"
        for what, times in taken.items()
    ]
    return f"{nbytes >> 20} MiB, median of {rounds}\n" + "\n".join(lines)


def run(device: Device) -> int:
    """All checks; how many have failed."""
    failed = 0
    for check in CHECKS:
        try:
            check(device)
            print(f"ok      {check.__doc__}")
        except Exception as error:
            failed += 1
            print(f"FAILED  {check.__doc__}: {error}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda", help="torch's name of it (default: cuda)")
    name = parser.parse_args().device
    try:
        torch.empty(1, device=name)
        device = TorchDevice(name)
    except (RuntimeError, AssertionError) as error:
        print(f"error: torch has no device {name!r} here: {error}", file=sys.stderr)
        return 2
    print(f"{name}: {torch.get_device_module(name).get_device_name()}, torch {torch.__version__}")
    failed = run(device)
    print(measure(device))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
