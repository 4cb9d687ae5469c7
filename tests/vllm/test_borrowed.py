"""Requests that rely on what the engine's own encoder cache holds."""

from collections.abc import Callable

import torch
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager

from chiasm.vllm.engine_cache import EngineCache
from tests.vllm.engine import Engine, encoded, image, in_a_row, request

Start = Callable[..., Engine]


def test_an_unannounced_item_without_pixels_that_the_engine_holds_is_admitted(start: Start) -> None:
    consumer = start("ec_consumer")
    consumer.run(request("a", [image("cat")]))
    consumer.run(request("b", [image("cat", data="sizes")]))
    assert consumer.failed == set()
    assert torch.equal(consumer.embeddings["b"][0], encoded("cat", 4))


def test_once_the_engine_has_evicted_it_the_request_fails_alone(start: Start) -> None:
    consumer = start("ec_consumer", cache_embeddings=4)
    consumer.run(request("a", [image("cat")]))
    consumer.run(request("b", [image("dog")]))
    consumer.run(request("c", [image("cat", data="sizes")]))
    assert consumer.failed == {"c"}
    consumer.run(request("d", [image("bird")]))
    assert "d" in consumer.finished


def test_evicted_earlier_in_the_same_step(start: Start) -> None:
    """`free_encoder_mm_hashes` says so only after the step has been scheduled."""
    consumer = start("ec_consumer", cache_embeddings=4)
    consumer.run(request("a", [image("cat")]))
    consumer.run(request("evicts", [image("dog")]), request("b", [image("cat", data="sizes")]))
    assert consumer.failed == {"b"}
    assert "evicts" in consumer.finished


def test_evicted_by_another_item_of_the_same_request(start: Start) -> None:
    consumer = start("ec_consumer", cache_embeddings=8)
    consumer.run(request("a", in_a_row(image("cat", 4), image("bird", 4))))
    consumer.run(request("b", in_a_row(image("dog", 4), image("cat", 4, data="sizes"))))
    assert consumer.failed == {"b"}
    roomy = start("ec_consumer", cache_embeddings=8)
    roomy.run(request("a", [image("cat", 4)]))
    roomy.run(request("b", in_a_row(image("dog", 4), image("cat", 4, data="sizes"))))
    assert torch.equal(roomy.embeddings["b"][1], encoded("cat", 4))


def test_a_reset_of_the_encoder_cache_is_seen(start: Start) -> None:
    """No hook says that it has happened."""
    consumer = start("ec_consumer")
    consumer.run(request("a", [image("cat")]))
    consumer.scheduler.reset_encoder_cache()
    consumer.encoder_cache.clear()
    consumer.run(request("b", [image("cat", data="sizes")]))
    assert consumer.failed == {"b"}


def test_lost_while_the_request_waits(start: Start) -> None:
    consumer = start("ec_consumer", cache_embeddings=4)
    consumer.run(request("a", [image("cat")]))
    waiting = request("b", [image("cat", data="sizes")])
    assert consumer.connector.ensure_cache_available(waiting, 0)
    consumer.run(request("c", [image("dog")]))
    assert not consumer.connector.ensure_cache_available(waiting, 0)
    assert consumer.connector.take_unavailable_requests() == {"b"}
    assert consumer.connector.take_unavailable_requests() == set()


def test_computed_items_are_not_missed(start: Start) -> None:
    consumer = start("ec_consumer", cache_embeddings=4)
    consumer.run(request("a", [image("cat")]))
    waiting = request("b", [image("cat", data="sizes")])
    assert consumer.connector.ensure_cache_available(waiting, 0)
    consumer.run(request("c", [image("dog")]))
    assert consumer.connector.ensure_cache_available(waiting, 5)


def test_without_a_scheduler_to_ask_nothing_is_held() -> None:
    cache = EngineCache()
    assert not cache.is_known
    assert not cache.holds("cat")
    assert not cache.is_referenced("cat")
    assert cache.free_embeddings == 0


def test_a_manager_of_the_operators_own_that_keeps_other_books(start: Start) -> None:
    consumer = start("ec_consumer")
    consumer.run(request("a", [image("cat")]))
    cache = consumer.connector.scheduler_side._cache
    assert cache.is_known
    assert cache.holds("cat")

    class Other(EncoderCacheManager):
        cached = None

        def __init__(self) -> None:
            pass

    consumer.scheduler.encoder_cache_manager = Other()
    assert not cache.holds("cat")
