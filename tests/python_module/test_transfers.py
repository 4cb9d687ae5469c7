"""What the module is there for: an encoder output gets from one instance into another."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chiasm import _native
from chiasm._native import FALLBACK, READY, UNAVAILABLE, WAIT
from tests.python_module.instances import (
    ROW_BYTES,
    ROW_ELEMENTS,
    Instance,
    instance,
    item,
    rows,
    until,
)


def test_local_offload_needs_no_network_no_peer_and_no_allowlist() -> None:
    with instance("ec_both") as both:
        assert (both.node.endpoint, both.node.host, both.node.port) == (None, None, None)
        assert not both.node.has_entry("image")
        both.save("image", rows(4))
        assert both.node.has_entry("image")
        assert both.node.announce("image") is None, "nobody could read it"
        assert not both.node.has_promised("image"), "nobody was told so"
        assert both.node.track("request", [item("image")], None, 0) == READY
        assert both.node.has_promised("image")
        assert both.load("image") == rows(4)
        both.node.release("request", "image")
        assert not both.node.has_promised("image")
        both.node.finish("request")


@pytest.mark.parametrize("plane", ["shm", "tcp"])
def test_a_consumer_reads_from_an_approved_producer(plane: str) -> None:
    extra: dict[str, Any] = {"ec_remote": True, "ec_planes": [f"{plane} required"]}
    with instance("ec_producer", **extra) as producer:
        producer.save("image", rows(8))
        endpoint = producer.node.endpoint
        assert endpoint == f"{producer.node.host}:{producer.node.port}"
        params = producer.params("image")
        assert params["image"]["size_bytes"] == 8 * ROW_BYTES
        assert params["image"]["shape"] == [8, ROW_ELEMENTS]
        with instance("ec_consumer", ec_allowed_peers=[endpoint], **extra) as consumer:
            items = [item("image", count=8)]
            assert consumer.node.ensure("request", 1, 0) is None
            assert consumer.node.track("request", items, params, 0) == WAIT
            assert not consumer.node.has_promised("image")
            assert consumer.decide("request", items, params) == READY
            assert consumer.node.has_promised("image")
            assert consumer.load("image") == rows(8)
            assert consumer.node.ensure("request", 2, 0) is None, "another number of items"
            assert consumer.node.ensure("request", 1, 100) == READY
            metrics = consumer.node.metrics()
            assert metrics[f"chiasm_arrived_bytes_total/{plane}"] == 8 * ROW_BYTES
            assert metrics["chiasm_dispatch_events_total/loaded"] == 1
            assert metrics["chiasm_ack_latency_count_total"] == 1
            assert metrics["chiasm_ack_latency_seconds_total"] > 0
            assert metrics[f"chiasm_read_latency_count_total/{plane}"] == 1
            consumer.node.finish("request")


@pytest.mark.parametrize(
    ("local_input", "decision"), [(True, FALLBACK), (False, UNAVAILABLE)], ids=["pixels", "bare"]
)
def test_a_producer_that_is_not_approved_is_not_contacted(local_input: bool, decision: int) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as foreign,
        instance("ec_consumer", ec_remote=True) as consumer,
    ):
        port = foreign.getsockname()[1]
        size = 4 * ROW_BYTES
        address = {"peer_host": "127.0.0.1", "peer_port": port, "size_bytes": size}
        params = {"image": {**address, "shape": [4, ROW_ELEMENTS]}}
        items = [item("image", local_input=local_input)]
        assert consumer.node.track("request", items, params, 0) == decision
        assert consumer.node.fallbacks("request") == (["image"] if local_input else [])
        failed = [] if local_input else ["request"]
        assert consumer.node.take_unavailable_requests() == failed
        assert consumer.node.take_unavailable_requests() == [], "each once"
        foreign.setblocking(False)
        with pytest.raises(BlockingIOError):
            foreign.accept()
    said = [text for level, _, text in _native.drain_logs() if level == 30]
    assert any(f'add it: ec_allowed_peers: ["127.0.0.1:{port}"]' in text for text in said)


def test_the_allowlist_can_be_replaced_while_it_runs() -> None:
    with instance("ec_producer", ec_remote=True) as producer:
        producer.save("image", rows(4))
        params = producer.params("image")
        with instance("ec_consumer", ec_remote=True) as consumer:
            pixels = [item("image", local_input=True)]
            assert consumer.node.track("before", pixels, params, 0) == FALLBACK
            with pytest.raises(_native.ConfigError, match="entry 2"):
                consumer.node.set_allowed_peers(["10.0.0.5:1", "127.1:5601"])
            assert producer.node.endpoint is not None
            consumer.node.set_allowed_peers([producer.node.endpoint])
            assert consumer.decide("after", [item("image")], params) == READY
            assert consumer.node.ensure("before", 1, 0) == READY, "it is in the region now"


def test_an_allowlist_is_nothing_to_an_instance_that_does_not_read() -> None:
    with instance("ec_producer", ec_remote=True) as producer:
        producer.node.set_allowed_peers(["127.0.0.1:5601"])
        assert any("no effect" in text for _, _, text in _native.drain_logs())


def test_nothing_announced_nothing_here_and_nothing_to_encode_fails_the_request() -> None:
    with instance("ec_consumer") as consumer:
        assert consumer.node.track("bare", [item("image")], None, 0) == UNAVAILABLE
        assert consumer.node.track("pixels", [item("image", local_input=True)], {}, 0) == READY
        assert consumer.node.track("computed", [item("image", end=7)], {}, 7) == READY
        assert consumer.node.take_unavailable_requests() == ["bare"]


class TestSavesThatAreNotMade:
    """None of them concerns the engine: there is no order, and the log says why."""

    @pytest.fixture
    def both(self) -> Iterator[Instance]:
        with instance("ec_both") as running:
            _native.drain_logs()
            yield running

    def test_larger_than_the_region(self, both: Instance) -> None:
        assert both.node.dispatch_save("large", 65, ROW_ELEMENTS) is None
        assert any("raise ec_cpu_bytes" in text for _, _, text in _native.drain_logs())

    @pytest.mark.parametrize(
        ("count", "width", "dtype"),
        [
            (0, 1, None),
            (1, 0, None),
            (2**32, 1, None),
            (1, 2**32, None),
            (2**32 - 1, 2**32 - 1, "torch.float64"),
            (1, 1, "torch.quint8"),
            (2**64 - 1, 2**64 - 1, None),
        ],
    )
    def test_of_no_form(self, both: Instance, count: int, width: int, dtype: str | None) -> None:
        assert both.node.dispatch_save("odd", count, width, dtype) is None
        assert any("nothing of this form" in text for _, _, text in _native.drain_logs())
        assert not both.node.has_entry("odd")

    def test_there_already(self, both: Instance) -> None:
        both.save("image", rows(4))
        assert both.node.dispatch_save("image", 4, ROW_ELEMENTS) is None
        assert _native.drain_logs() == [], "nothing is to be done"

    def test_no_room_now(self, both: Instance) -> None:
        first = both.node.dispatch_save("first", 40, ROW_ELEMENTS)
        assert first is not None
        assert both.node.dispatch_save("second", 40, ROW_ELEMENTS) is None
        assert any("no room" in text for _, _, text in _native.drain_logs())
        both.node.discard(first)
        assert both.node.dispatch_save("second", 40, ROW_ELEMENTS) is not None

    def test_no_worker(self, both: Instance) -> None:
        assert both.node.absent_ranks == []
        both.worker.shutdown()
        assert both.node.absent_ranks == [0]
        assert both.node.dispatch_save("image", 4, ROW_ELEMENTS) is None
        assert any("no worker of rank 0" in text for _, _, text in _native.drain_logs())


def test_an_order_that_is_given_up_is_over() -> None:
    with instance("ec_both") as both:
        order = both.node.dispatch_save("image", 4, ROW_ELEMENTS)
        assert order is not None
        assert both.node.outstanding == 1
        both.node.withdraw(order)
        assert both.node.outstanding == 0
        assert not both.node.has_entry("image")
        assert both.node.metrics()["chiasm_blocks/quarantined"] == 4
        # The worker had begun all the same: its late word frees the blocks.
        both.worker.complete(_native.Order(order), False)
        free = lambda: both.node.metrics()["chiasm_blocks/free"] == 64  # noqa: E731
        until(both.node, "the blocks are free", free)
        both.node.discard(b"no order")
        both.node.withdraw(order)


def test_metrics_are_those_of_the_table() -> None:
    with instance("ec_both", ec_remote=True) as both:
        both.save("image", rows(4))
        found = both.node.metrics()
    assert found["chiasm_dispatch_events_total/saved"] == 1
    assert sum(value for name, value in found.items() if name.startswith("chiasm_blocks/")) == 64
    for key, value in found.items():
        name, *label = key.split("/")
        kind, labelled, meaning = _native.METRICS[name]
        assert name.startswith("chiasm_")
        assert meaning.endswith(".")
        assert (kind == "counter") == name.endswith("_total")
        assert len(label) == (0 if labelled is None else 1)
        assert value >= 0
