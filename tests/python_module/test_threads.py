"""Threads: every call from any of them, and the GIL where something copies or waits."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from chiasm import _native
from chiasm._native import READY, Order
from tests.python_module.instances import (
    LIMIT_S,
    ROW_BYTES,
    ROW_ELEMENTS,
    Instance,
    Memory,
    instance,
    item,
    rows,
    until,
)


@pytest.fixture
def greedy() -> Iterator[None]:
    """A thread that has the GIL keeps it until it gives it away by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    yield
    sys.setswitchinterval(before)


def test_waiting_lets_other_threads_run(greedy: None) -> None:
    with instance("ec_both") as both:
        seen = both.node.news
        thread = threading.Thread(target=both.node.wait, args=(seen, LIMIT_S))
        thread.start()
        # Only if it does not keep the GIL does this happen before the limit; and it is the news.
        both.node.finish("somebody")
        thread.join(LIMIT_S / 2)
        assert not thread.is_alive()


@pytest.mark.parametrize("call", ["save", "load", "complete_saved"])
def test_copying_lets_other_threads_run(greedy: None, call: str) -> None:
    """Seen from another thread, which runs only when the GIL is given away: in the middle."""
    blocks = 4096
    with instance("ec_both", ec_cpu_bytes=(blocks + 8) * ROW_BYTES) as both:
        memory = Memory(bytearray(blocks * ROW_BYTES))
        inside = threading.Event()
        seen_inside = threading.Event()
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                # The GIL comes back at the next moment at which somebody gives it away.
                inside.wait()
                if inside.is_set() and not over.is_set():
                    seen_inside.set()
                    return

        if call == "load":
            both.save("image", bytes(memory.content))
            assert both.node.track("r", [item("image", count=blocks)], None, 0) == READY
        looker = threading.Thread(target=look)
        looker.start()
        # Each round is one chance for the other thread to wake up in time.
        for round in range(500):
            if seen_inside.is_set():
                break
            if call == "load":
                data = both.node.dispatch_load("image")
            else:
                data = both.node.dispatch_save(f"image {round}", blocks, ROW_ELEMENTS)
            assert data is not None, _native.drain_logs()
            order = Order(data)
            inside.set()
            if call == "save":
                both.worker.save(order, memory.address, memory.nbytes)
            elif call == "load":
                both.worker.load(order, memory.address, memory.nbytes)
            else:
                both.worker.complete_saved(order)
            inside.clear()
            until(both.node, "reported", lambda: both.node.outstanding == 0)
        found = seen_inside.is_set()
        over.set()
        inside.set()
        looker.join()
        assert found


def test_many_threads_call_at_once() -> None:
    with instance("ec_both", ec_remote=True) as both:
        both.save("shared", rows(2))

        def engine(number: int) -> None:
            for round in range(50):
                request, own = f"r{number}-{round}", f"i{number}-{round}"
                items = [item("shared", count=2), item(own, count=1, local_input=True)]
                assert both.node.track(request, items, None, 0) == READY
                assert both.node.ensure(request, 2, 0) == READY
                assert both.node.has_promised("shared")
                data = both.node.dispatch_save(own, 1, ROW_ELEMENTS)
                if data is not None:
                    memory = Memory(bytearray(rows(1, seed=number)))
                    both.worker.save(Order(data), memory.address, memory.nbytes)
                load = both.node.dispatch_load("shared")
                assert load is not None
                memory = Memory(bytearray(2 * ROW_BYTES))
                both.worker.load(Order(load), memory.address, memory.nbytes)
                assert memory.content == rows(2)
                both.node.metrics()
                _native.drain_logs()
                both.node.finish(request)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(engine, range(8)))
        until(both.node, "all reported", lambda: both.node.outstanding == 0)
        metrics = both.node.metrics()
        assert metrics["chiasm_dispatch_events_total/loaded"] == 8 * 50
        assert metrics["chiasm_entries_pinned"] == 0
        assert metrics["chiasm_dispatch_events_total/saved"] > 0


def test_a_shutdown_may_come_at_any_time() -> None:
    for _ in range(10):
        with instance("ec_both", ec_remote=True) as both:
            begun = threading.Barrier(5)

            def engine(both: Instance, begun: threading.Barrier) -> None:
                begun.wait()
                for round in range(200):
                    both.node.track(f"r{round}", [item("x", local_input=True)], None, 0)
                    both.node.ensure(f"r{round}", 1, 0)
                    both.node.finish(f"r{round}")

            threads = [threading.Thread(target=engine, args=(both, begun)) for _ in range(4)]
            for thread in threads:
                thread.start()
            begun.wait()
            both.node.shutdown()
            for thread in threads:
                thread.join()
