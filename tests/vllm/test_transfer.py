"""One encoder output from a producer's engine to a consumer's, over real sockets."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.vllm.engine import Engine, encoded, image, in_a_row, request, until

Pair = Callable[..., tuple[Engine, Engine]]


def announced(producer: Engine, *features: Any) -> dict[str, Any]:
    params = producer.run(request("encode", in_a_row(*features)))["encode"]
    producer.settle()
    return params


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_the_consumer_gets_the_producers_bytes_and_encodes_nothing(pair: Pair, runner: str) -> None:
    producer, consumer = pair(runner)
    params = announced(producer, image("cat", 4), image("dog", 7))
    consumer.run(request("r", in_a_row(image("cat", 4), image("dog", 7)), params))
    cat, dog = consumer.embeddings["r"]
    assert torch.equal(cat, encoded("cat", 4))
    assert torch.equal(dog, encoded("dog", 7))
    assert consumer.encoded == []


def test_without_pixels_it_is_the_same(pair: Pair) -> None:
    producer, consumer = pair()
    params = announced(producer, image("cat", 4))
    consumer.run(request("r", [image("cat", 4, data="sizes")], params))
    assert torch.equal(consumer.embeddings["r"][0], encoded("cat", 4))


def test_a_request_waits_without_any_worker_hook(pair: Pair) -> None:
    """Model runner V1 calls no worker in a step without tokens."""
    producer, consumer = pair("v1")
    params = announced(producer, image("cat", 4))
    consumer.add(request("r", [image("cat", 4, data="sizes")], params))
    assert consumer.step() == [], "the first step asks, it does not wait"
    consumer.run(request("text-like", [image("other", 2)]))
    until(lambda: bool(consumer.step()) or "r" in consumer.finished, "it ran", consumer.node)
    assert torch.equal(consumer.embeddings["r"][0], encoded("cat", 4))


def test_two_requests_share_one_image_and_one_transfer(pair: Pair) -> None:
    producer, consumer = pair()
    params = announced(producer, image("cat", 4))
    consumer.run(
        request("a", [image("cat", 4, data="sizes")], params),
        request("b", [image("cat", 4, data="sizes")], params),
    )
    assert torch.equal(consumer.embeddings["a"][0], consumer.embeddings["b"][0])
    assert consumer.encoded == []


def test_one_image_twice_in_a_request(pair: Pair) -> None:
    producer, consumer = pair()
    params = announced(producer, image("cat", 4), image("cat", 4))
    assert params["cat"]["item_indices"] == [0, 1]
    features = in_a_row(image("cat", 4, data="sizes"), image("cat", 4, data="sizes"))
    consumer.run(request("r", features, params))
    assert len(consumer.embeddings["r"]) == 2
    assert list(consumer.metadata.loads) == ["cat"]


def test_an_announcement_before_the_save_has_landed(pair: Pair) -> None:
    """The producer announces at the end of the step that encodes; nothing waits for the report."""
    producer, consumer = pair()
    params = producer.run(request("encode", [image("cat", 4)]))["encode"]
    consumer.run(request("r", [image("cat", 4, data="sizes")], params))
    assert torch.equal(consumer.embeddings["r"][0], encoded("cat", 4))


def test_keys_are_identifiers_and_not_processor_hashes(pair: Pair) -> None:
    producer, _ = pair()
    params = announced(producer, image("cat", 4))
    assert list(params) == ["cat"]
    assert producer.node.has_entry("cat")
    assert not producer.node.has_entry("not-cat")


def test_an_id_is_used_again_after_its_end(pair: Pair) -> None:
    producer, consumer = pair()
    params = announced(producer, image("cat", 4), image("dog", 5))
    consumer.run(request("r", [image("cat", 4, data="sizes")], params))
    del consumer.finished["r"]
    consumer.run(request("r", [image("dog", 5, data="sizes")], params))
    assert torch.equal(consumer.embeddings["r"][0], encoded("dog", 5))


def test_a_preempted_request_gets_its_items_again(pair: Pair) -> None:
    producer, consumer = pair()
    params = announced(producer, image("cat", 4))
    preempted = request("r", [image("cat", 4, data="sizes")], params)
    ensure = consumer.connector.ensure_cache_available
    until(lambda: ensure(preempted, 0), "it is there", consumer.node)
    assert ensure(preempted, 100), "computed"
    assert not consumer.connector.has_cache_item("cat"), "a computed item is not held back"
    until(lambda: ensure(preempted, 0), "it is there", consumer.node)
    assert consumer.connector.has_cache_item("cat")


def test_a_streaming_session_adds_an_image_to_a_live_request(pair: Pair) -> None:
    producer, consumer = pair()
    params = announced(producer, image("cat", 4), image("dog", 5))
    session = request("r", [image("cat", 4, data="sizes")], params)
    ensure = consumer.connector.ensure_cache_available
    until(lambda: ensure(session, 0), "the first is there", consumer.node)
    session.mm_features.append(image("dog", 5, offset=50, data="sizes"))
    until(lambda: ensure(session, 10), "the second is there", consumer.node)
    assert consumer.connector.has_cache_item("dog")


def test_a_request_without_the_scheduler_polling_still_gets_its_bytes(pair: Pair) -> None:
    """No hook is called at all between the first look and the last."""
    producer, consumer = pair()
    params = announced(producer, image("cat", 4))
    consumer.add(request("r", [image("cat", 4, data="sizes")], params))
    consumer.step()
    until(lambda: consumer.node.has_entry("cat"), "the read has landed", consumer.node)
    assert not consumer.connector.has_pending_push_work()
