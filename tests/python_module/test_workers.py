"""Workers: bounds, reports, and processes of their own."""

from collections.abc import Iterator

import pytest

from chiasm import _native
from chiasm._native import READY, Node, Order, StartError, Worker, WorkerError
from tests.python_module.instances import (
    ROW_BYTES,
    ROW_ELEMENTS,
    Instance,
    Memory,
    instance,
    item,
    model,
    region_files,
    rows,
    settings,
    until,
)
from tests.python_module.processes import Child


@pytest.fixture
def both() -> Iterator[Instance]:
    with instance("ec_both") as running:
        yield running


def save_order(both: Instance, identifier: str, count: int) -> Order:
    data = both.node.dispatch_save(identifier, count, ROW_ELEMENTS)
    assert data is not None
    return Order(data)


def test_an_order_says_what_is_to_be_done(both: Instance) -> None:
    data = both.node.dispatch_save("image", 4, ROW_ELEMENTS)
    assert data is not None
    order = Order(data)
    assert order.is_save
    assert (order.rows, order.width, order.nbytes) == (4, ROW_ELEMENTS, 4 * ROW_BYTES)
    assert order.dtype == "torch.bfloat16"
    other = both.node.dispatch_save("floats", 1, ROW_ELEMENTS, "torch.float32")
    assert other is not None
    assert (Order(other).dtype, Order(other).nbytes) == ("torch.float32", 2 * ROW_BYTES)
    assert Order(other).dispatch != order.dispatch


@pytest.mark.parametrize("length", [0, 1, 10, -1])
def test_bytes_that_are_no_order_are_refused(both: Instance, length: int) -> None:
    data = both.node.dispatch_save("image", 4, ROW_ELEMENTS)
    assert data is not None
    with pytest.raises(WorkerError):
        Order(data[:length])
    with pytest.raises(WorkerError):
        Order(data + b"x")


def test_a_device_copies_to_the_extents_and_the_digest_is_of_what_landed(both: Instance) -> None:
    order = save_order(both, "image", 5)
    extents = both.worker.extents(order)
    assert sum(length for _, length in extents) == 5 * ROW_BYTES
    assert both.worker.region_bytes == 64 * ROW_BYTES
    assert both.worker.region_address % 4096 == 0
    # The part of the device is played by the region's file, seen from elsewhere: its blocks are its
    # last bytes, which fill whole pages here.
    content, path = rows(5), f"/dev/shm/{both.settings.region_name}"
    with open(path, "r+b") as file:
        blocks_at = file.seek(0, 2) - both.worker.region_bytes
        done = 0
        for offset, length in extents:
            file.seek(blocks_at + offset)
            file.write(content[done : done + length])
            done += length
    both.worker.complete_saved(order)
    until(both.node, "saved", lambda: both.node.outstanding == 0)
    assert both.node.track("r", [item("image", count=5)], None, 0) == READY
    assert both.load("image") == content


def test_extents_end_with_the_encoder_output_not_with_its_last_block(both: Instance) -> None:
    data = both.node.dispatch_save("odd", 3, ROW_ELEMENTS - 1)
    assert data is not None
    extents = both.worker.extents(Order(data))
    assert sum(length for _, length in extents) == 3 * 2 * (ROW_ELEMENTS - 1)


def failed_saves(both: Instance) -> float:
    return both.node.metrics()["chiasm_dispatch_events_total/failed_save"]


@pytest.mark.parametrize("wrong", [-1, 1])
def test_memory_of_another_length_is_an_error_and_the_order_has_failed(
    both: Instance, wrong: int
) -> None:
    order = save_order(both, "image", 4)
    memory = Memory(bytearray(order.nbytes + 1))
    with pytest.raises(WorkerError, match="bytes for an encoder output of"):
        both.worker.save(order, memory.address, order.nbytes + wrong)
    until(both.node, "failed", lambda: failed_saves(both) == 1)
    assert not both.node.has_entry("image")


@pytest.mark.parametrize(("address", "nbytes"), [(0, 4096), (2**64 - 1, 4096), (4096, 2**63)])
def test_memory_that_cannot_be_is_never_touched(both: Instance, address: int, nbytes: int) -> None:
    order = save_order(both, "image", 4)
    with pytest.raises(WorkerError, match="no memory"):
        both.worker.save(order, address, nbytes)
    until(both.node, "failed", lambda: failed_saves(both) == 1)


def test_a_save_is_no_load_and_a_load_is_no_save(both: Instance) -> None:
    both.save("image", rows(4))
    assert both.node.track("r", [item("image")], None, 0) == READY
    data = both.node.dispatch_load("image")
    assert data is not None
    load = Order(data)
    save = save_order(both, "other", 4)
    memory = Memory(bytearray(4 * ROW_BYTES))
    with pytest.raises(WorkerError, match="Load"):
        both.worker.save(load, memory.address, memory.nbytes)
    with pytest.raises(WorkerError, match="Save"):
        both.worker.load(save, memory.address, memory.nbytes)
    assert both.node.outstanding == 2, "neither was reported for it"
    both.worker.complete(load, False)
    both.worker.complete(save, False)
    until(both.node, "both over", lambda: both.node.outstanding == 0)
    assert both.node.metrics()["chiasm_dispatch_events_total/failed_load"] == 1


def test_a_second_report_changes_nothing(both: Instance) -> None:
    order = save_order(both, "image", 4)
    memory = Memory(bytearray(rows(4)))
    both.worker.save(order, memory.address, memory.nbytes)
    both.worker.complete(order, False)
    ignored = lambda: both.node.metrics()["chiasm_dispatch_events_total/ignored_report"] == 1  # noqa: E731
    until(both.node, "ignored", ignored)
    assert both.node.has_entry("image")


def test_after_its_shutdown_a_worker_does_nothing(both: Instance) -> None:
    order = save_order(both, "image", 4)
    memory = Memory(bytearray(rows(4)))
    both.worker.shutdown()
    both.worker.shutdown()
    for call in (
        lambda: both.worker.save(order, memory.address, memory.nbytes),
        lambda: both.worker.extents(order),
        lambda: both.worker.complete(order, True),
        lambda: both.worker.complete_saved(order),
    ):
        with pytest.raises(WorkerError, match="shut down"):
            call()
    lost = lambda: both.node.metrics()["chiasm_dispatch_events_total/lost_save"] == 1  # noqa: E731
    until(both.node, "lost", lost)


def test_a_rank_has_one_worker(both: Instance) -> None:
    with pytest.raises(StartError, match="rank 0"):
        Worker(both.settings, both.model)
    Worker(both.settings, both.model, rank=1).shutdown()


@pytest.mark.parametrize("rank", [16, 65535])
def test_there_is_no_seventeenth_rank(rank: int) -> None:
    with pytest.raises(_native.ConfigError, match="rank"):
        Worker(settings("ec_both"), model(), rank=rank)
    with pytest.raises(_native.ConfigError, match="rank"):
        Node(settings("ec_both"), model(), ranks=rank + 1)
    with pytest.raises(_native.ConfigError, match="rank"):
        Node(settings("ec_both"), model(), ranks=0)


def test_another_shape_of_the_region_is_refused(both: Instance) -> None:
    with pytest.raises(StartError):
        Worker(both.settings, model(row_elements=2 * ROW_ELEMENTS), rank=1)
    assert both.node.absent_ranks == []


def test_two_ranks_in_processes_of_their_own() -> None:
    """Workers first, as vLLM has it; each rank's load is released by itself."""
    found, its_model = settings("ec_both"), model()
    with Child.worker(found, 0) as first, Child.worker(found, 1) as second:
        node = Node(found, its_model, ranks=2)
        assert node.absent_ranks == []
        data = node.dispatch_save("image", 4, ROW_ELEMENTS)
        assert data is not None
        assert first.asks("save", data.hex(), rows(4).hex()) == "ok"
        until(node, "saved", lambda: node.outstanding == 0)
        assert node.track("r", [item("image")], None, 0) == READY
        data = node.dispatch_load("image")
        assert data is not None
        assert first.asks("load", data.hex()) == rows(4).hex()
        assert node.outstanding == 1, "the other rank has not reported"
        assert second.asks("load", data.hex()) == rows(4).hex()
        until(node, "loaded", lambda: node.outstanding == 0)

        # A save is for rank 0 alone.
        data = node.dispatch_save("other", 4, ROW_ELEMENTS)
        assert data is not None
        assert "not for rank 1" in second.asks("save", data.hex(), rows(4).hex())
        assert node.outstanding == 1

        # A worker that is killed with an order out: its blocks rest, all else goes on.
        first.kill()
        lost = lambda: node.metrics()["chiasm_dispatch_events_total/lost_save"] == 1  # noqa: E731
        until(node, "the order is lost", lost)
        assert node.absent_ranks == [0]
        assert node.metrics()["chiasm_blocks/quarantined"] == 4
        assert node.dispatch_save("again", 4, ROW_ELEMENTS) is None
        node.shutdown()
    assert region_files(found) == []
