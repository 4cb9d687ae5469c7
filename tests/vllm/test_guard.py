"""A fault of ours in a hook: said once, and the engine goes on."""

import logging
from collections.abc import Callable
from typing import Any

from tests.vllm.engine import Engine, image, request

Start = Callable[..., Engine]


class Broken:
    """Whatever is asked of it, it raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("broken on purpose")


def test_an_engine_whose_connector_is_broken_serves_what_it_can(start: Start) -> None:
    engine = start("ec_both", ec_remote=True)
    side = engine.connector.scheduler_side
    node, side._node = side._node, Broken()
    side._readings._node = side._node
    side._ensure = side._node.__getattr__
    try:
        engine.run(request("pixels", [image("cat")]), request("sizes", [image("b", data="sizes")]))
        assert engine.encoded == ["cat"]
        assert engine.finished == {"pixels": None}
        assert not engine.connector.has_pending_push_work()
        assert engine.connector.get_ec_connector_stats() is None
    finally:
        side._node = node


def test_a_fault_is_logged_once_with_its_traceback(
    start: Start, log: list[logging.LogRecord]
) -> None:
    engine = start("ec_both")
    side = engine.connector.scheduler_side
    node, side._node = side._node, Broken()
    try:
        for _ in range(3):
            assert engine.connector.has_cache_item("cat") is False
    finally:
        side._node = node
    faults = [record for record in log if "has_cache_item" in record.getMessage()]
    assert len(faults) == 1
    assert faults[0].exc_info


def test_a_broken_worker_costs_its_save_and_not_the_engine(start: Start) -> None:
    engine = start("ec_producer")
    assert engine.worker is not None
    engine.worker.worker_side._copies = Broken()
    engine.run(request("r", [image("cat")]))
    assert engine.encoded == ["cat"]
    engine.worker.worker_side._copies = type("Nothing", (), {"shutdown": lambda self: None})()


def test_hooks_of_the_other_side_do_nothing(start: Start) -> None:
    engine = start("ec_both")
    assert engine.worker is not None
    assert engine.worker.has_cache_item("cat") is False
    assert engine.worker.take_unavailable_requests() == set()
    assert engine.worker.get_ec_connector_stats() is None
    assert engine.connector.get_finished(set()) == (None, None)
    engine.connector.save_caches({}, "cat")
