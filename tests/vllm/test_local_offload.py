"""One engine that keeps its own encoder outputs: no network, no peer, no allowlist."""

import logging
from collections.abc import Callable

import pytest
import torch

from tests.vllm.engine import ROW_BYTES, Engine, encoded, image, in_a_row, request

Start = Callable[..., Engine]


def forget(engine: Engine) -> None:
    """What `reset_encoder_cache` does."""
    engine.scheduler.encoder_cache_manager.reset()
    engine.encoder_cache.clear()


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_what_was_encoded_once_is_loaded_and_not_encoded_again(start: Start, runner: str) -> None:
    engine = start("ec_both", runner=runner)
    engine.run(request("a", [image("cat")]))
    assert list(engine.metadata.saves) == ["cat"]
    engine.settle()
    forget(engine)
    engine.run(request("b", [image("cat")]))
    assert engine.encoded == ["cat"]
    assert list(engine.metadata.loads) == ["cat"]
    assert torch.equal(engine.embeddings["b"][0], encoded("cat", 4))
    engine.settle()


def test_it_is_no_hit_before_the_worker_has_reported(start: Start) -> None:
    engine = start("ec_both")
    asked = request("a", [image("cat")])
    assert engine.connector.ensure_cache_available(asked, 0)
    engine.connector.update_state_after_alloc(asked, 0)
    assert engine.node.has_entry("cat")
    assert not engine.connector.has_cache_item("cat")


def test_roles(start: Start) -> None:
    producer, consumer = start("ec_producer"), start("ec_consumer")
    producer.run(request("a", [image("cat")]))
    producer.settle()
    assert producer.node.has_entry("cat")
    assert not producer.connector.has_cache_item("cat"), "a producer loads nothing"
    consumer.run(request("a", [image("cat")]))
    assert consumer.metadata.saves == {}
    assert not consumer.node.has_entry("cat"), "a consumer saves nothing, also where V1 asks it to"


def test_several_items_save_and_load_together(start: Start) -> None:
    engine = start("ec_both")
    names = ["cat", "dog", "bird"]
    engine.run(request("a", in_a_row(*(image(name) for name in names))))
    engine.settle()
    forget(engine)
    engine.run(request("b", in_a_row(*(image(name) for name in names))))
    assert sorted(engine.metadata.loads) == sorted(names)
    assert engine.encoded == names


def test_a_hash_that_two_requests_need_in_one_step_is_loaded_once(start: Start) -> None:
    engine = start("ec_both")
    engine.run(request("a", [image("cat")]))
    engine.settle()
    forget(engine)
    engine.run(request("b", [image("cat")]), request("c", [image("cat")]))
    assert torch.equal(engine.embeddings["c"][0], encoded("cat", 4))
    engine.settle()


def test_pending_work_is_from_dispatch_to_report_and_no_longer(start: Start) -> None:
    engine = start("ec_both")
    pending = engine.connector.has_pending_push_work
    assert not pending()
    asked = request("a", [image("cat")])
    engine.connector.ensure_cache_available(asked, 0)
    engine.connector.update_state_after_alloc(asked, 0)
    assert pending()
    engine.run(request("b", [image("dog")]))
    engine.settle()
    assert not pending()


def test_hazard_d6_an_idle_instance_with_remote_reads_on_has_no_pending_work(
    pair: Callable[..., tuple[Engine, Engine]],
) -> None:
    producer, consumer = pair()
    params = producer.run(request("e", [image("cat")]))["e"]
    consumer.run(request("r", [image("cat", data="sizes")], params))
    for engine in (producer, consumer):
        engine.settle()
        assert not engine.connector.has_pending_push_work()


def test_hazard_b8_larger_than_the_region_is_not_saved_and_nothing_else(start: Start) -> None:
    engine = start("ec_both", ec_cpu_bytes=8 * ROW_BYTES)
    engine.run(request("a", [image("huge", 9)]))
    assert engine.encoded == ["huge"]
    assert engine.metadata.saves == {}
    assert not engine.connector.has_pending_push_work()


def test_hazard_b9_a_modality_without_a_measured_width_is_not_saved(
    start: Start, log: list[logging.LogRecord]
) -> None:
    engine = start("ec_both", widths={"video": 64})
    engine.run(request("a", [image("cat"), image("dog", offset=9)]))
    said = [(r.levelno, r.getMessage()) for r in log if "width" in r.getMessage()]
    assert [level for level, _ in said] == [logging.WARNING], "once, and as no fault"
    assert engine.encoded == ["cat", "dog"]
    assert engine.metadata.saves == {}
    assert not [r for r in log if r.levelno >= logging.ERROR]


def test_a_full_region_never_blocks_a_request(start: Start) -> None:
    engine = start("ec_both", ec_cpu_bytes=4 * ROW_BYTES)
    held = request("held", [image("cat")])
    engine.connector.ensure_cache_available(held, 0)
    engine.connector.update_state_after_alloc(held, 0)
    engine.run(request("b", [image("dog")]))
    assert engine.encoded == ["dog"]
    assert "dog" not in engine.metadata.saves


def test_hazard_a9_a_promised_entry_survives_allocations_of_the_same_step(start: Start) -> None:
    engine = start("ec_both", ec_cpu_bytes=8 * ROW_BYTES)
    engine.run(request("a", [image("cat", 4)]))
    engine.settle()
    forget(engine)
    # The step saves `dog` first, for which only `cat`'s blocks could be evicted, then loads `cat`.
    features = in_a_row(image("dog", 6), image("cat", 4))
    engine.run(request("b", features))
    assert engine.encoded == ["cat", "dog"]
    assert torch.equal(engine.embeddings["b"][1], encoded("cat", 4))


def test_hazard_c3_an_order_that_no_worker_performs_is_given_up(start: Start) -> None:
    engine = start("ec_both")
    asked = request("a", [image("cat", data=None)])
    engine.connector.update_state_after_alloc(asked, 0)
    # The step runs without encoding it.
    engine.run(request("b", [image("dog")]))
    engine.settle()
    assert not engine.node.has_entry("cat")
    assert engine.node.has_entry("dog")


@pytest.mark.parametrize(("times", "width"), [(1, 128), (2, 32), (1, 32)])
def test_an_output_of_another_shape_is_not_saved(
    start: Start, monkeypatch: pytest.MonkeyPatch, times: int, width: int
) -> None:
    """Wider, of as many bytes in other rows, narrower."""
    from tests.vllm import engine as module

    engine = start("ec_producer")
    monkeypatch.setattr(
        module, "encoded", lambda name, rows: encoded(name, times * rows, width=width)
    )
    engine.run(request("a", [image("cat")]))
    engine.settle()
    assert not engine.node.has_entry("cat")


def test_outputs_that_are_not_contiguous_are_saved_as_they_are(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.vllm import engine as module

    engine = start("ec_both")
    right = encoded("cat", 4)
    scattered = torch.zeros(4, 128, dtype=right.dtype)
    scattered[:, ::2] = right
    monkeypatch.setattr(module, "encoded", lambda name, rows: scattered[:, ::2])
    engine.run(request("a", [image("cat")]))
    engine.settle()
    forget(engine)
    engine.run(request("b", [image("cat")]))
    assert torch.equal(engine.embeddings["b"][0], right)


def test_the_region_forgets_the_oldest_first(start: Start) -> None:
    engine = start("ec_both", ec_cpu_bytes=8 * ROW_BYTES)
    for name in ("one", "two", "three"):
        engine.run(request(name, [image(name, 4)]))
        engine.settle()
    assert [engine.node.has_entry(name) for name in ("one", "two", "three")] == [False, True, True]


def test_after_shutdown_every_hook_answers_and_the_region_is_gone(start: Start) -> None:
    import pathlib

    engine = start("ec_both")
    engine.run(request("a", [image("cat")]))
    name = engine.connector.scheduler_side.settings.region_name
    assert list(pathlib.Path("/dev/shm").glob(name + "*"))
    engine.shutdown()
    engine.shutdown()
    assert not list(pathlib.Path("/dev/shm").glob(name + "*"))
    connector = engine.connector
    asked = request("b", [image("dog")])
    assert connector.ensure_cache_available(asked, 0), "it can be encoded"
    assert not connector.has_cache_item("cat")
    connector.update_state_after_alloc(asked, 0)
    assert connector.request_finished(asked) == (False, None)
    assert not connector.has_pending_push_work()
