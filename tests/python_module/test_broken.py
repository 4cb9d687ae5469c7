"""A bug of ours stops the connector and never the engine: every call has a careful answer."""

from collections.abc import Iterator

import pytest

from chiasm import _native
from chiasm._native import FALLBACK, READY, UNAVAILABLE
from tests.python_module.instances import (
    ROW_ELEMENTS,
    Instance,
    instance,
    item,
    region_files,
    rows,
    until,
)

ANNOUNCED = {
    "image": {"peer_host": "127.0.0.1", "peer_port": 1, "size_bytes": 4096, "shape": [4, 512]}
}


def assert_careful(running: Instance) -> None:
    """What a node says that does no work any more, to requests that it has not seen."""
    node = running.node
    assert node.is_stopped
    pixels, bare = item("image", local_input=True), item("image")
    assert node.ensure("pixels", 1, 0) is None
    assert node.track("pixels", [pixels], {}, 0) == READY
    assert node.track("announced", [pixels], ANNOUNCED, 0) == FALLBACK
    assert node.track("computed", [bare], ANNOUNCED, 100) == READY
    for _ in range(2):
        assert node.track("bare", [pixels, bare], ANNOUNCED, 0) == UNAVAILABLE
    assert node.take_unavailable_requests() == ["bare"]
    assert node.track("bare", [bare], ANNOUNCED, 0) == UNAVAILABLE
    assert node.take_unavailable_requests() == [], "each once"
    node.finish("bare")
    assert node.track("bare", [bare], ANNOUNCED, 0) == UNAVAILABLE
    assert node.take_unavailable_requests() == ["bare"], "the id was free again"
    assert node.dispatch_save("new", 4, ROW_ELEMENTS) is None
    assert node.announce("image") is None
    node.release("pixels", "image")
    node.discard(b"")
    node.set_allowed_peers(["127.0.0.1:1"])
    assert node.fallbacks("announced") == []
    for request in ("pixels", "announced", "computed", "bare"):
        node.finish(request)


@pytest.fixture
def both() -> Iterator[Instance]:
    with instance("ec_both", ec_remote=True) as running:
        _native.drain_logs()
        yield running


def test_a_panic_is_no_exception_and_is_logged_once(
    both: Instance, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        both.node.break_for_test()
    errors = [text for level, _, text in _native.drain_logs() if level == 40]
    assert len(errors) == 1
    assert "a bug in Chiasm" in errors[0]
    assert "broken for a test" in capfd.readouterr().err, "what to report"
    assert_careful(both)


def test_what_was_promised_before_a_panic_can_still_be_loaded(both: Instance) -> None:
    both.save("image", rows(4))
    both.save("other", rows(4, seed=2))
    assert both.node.track("told", [item("image")], None, 0) == READY
    both.node.break_for_test()
    assert both.node.has_promised("image"), "the engine counts on it"
    assert not both.node.has_promised("other")
    assert both.node.track("told", [item("image")], None, 0) == READY
    assert both.load("image") == rows(4)
    assert both.node.track("new", [item("other")], None, 0) == UNAVAILABLE
    both.node.finish("told")
    assert not both.node.has_promised("image")


def test_a_save_that_is_out_when_it_breaks_ends(both: Instance) -> None:
    order = both.node.dispatch_save("image", 4, ROW_ELEMENTS)
    assert order is not None
    both.node.break_for_test()
    both.worker.complete(_native.Order(order), False)
    until(both.node, "over", lambda: both.node.outstanding == 0)


def test_after_a_shutdown_the_answers_are_careful_and_the_region_is_gone(both: Instance) -> None:
    both.save("image", rows(4))
    assert both.node.track("told", [item("image")], None, 0) == READY
    both.node.shutdown(1.0)
    assert not both.node.has_promised("image")
    assert not both.node.has_entry("image")
    assert both.node.metrics() == {}
    assert (both.node.outstanding, both.node.news) == (0, 0)
    both.node.wait(0, 60.0)
    assert both.node.dispatch_load("image") is None
    assert region_files(both.settings) == []
    both.node.shutdown()
    both.node.break_for_test()
    assert_careful(both)


@pytest.mark.parametrize("limit_s", [0.0, -1.0, float("nan"), 1e308, float("inf")])
def test_no_time_is_too_odd_for_a_shutdown(both: Instance, limit_s: float) -> None:
    both.node.shutdown(limit_s)
    assert both.node.is_stopped
