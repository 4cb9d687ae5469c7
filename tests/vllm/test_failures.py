"""What cannot be had: encode it here, or fail this request alone."""

import pickle
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.vllm.engine import Engine, encoded, image, in_a_row, request

Start = Callable[..., Engine]
BUDGET = {"wait_budget_s": 2, "consumer_ack_timeout_s": 1}


@pytest.fixture
def stranger() -> Any:
    """A socket that somebody listens at whom nobody has approved."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def offer(listening: Any, rows: int = 4, **changed: Any) -> dict[str, Any]:
    from tests.vllm.engine import ROW_BYTES, WIDTH

    said = {
        "modality": "image",
        "metadata": {},
        "item_indices": [0],
        "peer_host": "127.0.0.1",
        "peer_port": listening.getsockname()[1],
        "size_bytes": rows * ROW_BYTES,
        "shape": [rows, WIDTH],
    }
    return {**said, **changed}


def assert_not_contacted(listening: Any) -> None:
    with pytest.raises(BlockingIOError):
        listening.accept()


def test_a_producer_that_is_not_approved_is_not_contacted(start: Start, stranger: Any) -> None:
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["127.0.0.1:1"])
    params = {"cat": offer(stranger)}
    consumer.run(request("pixels", [image("cat")], params))
    consumer.run(request("sizes", [image("dog", data="sizes")], {"dog": offer(stranger)}))
    assert consumer.encoded == ["cat"]
    assert consumer.failed == {"sizes"}
    assert_not_contacted(stranger)
    consumer.run(request("later", [image("bird")]))
    assert torch.equal(consumer.embeddings["later"][0], encoded("bird", 4))


def test_remote_reads_off_never_contact_anybody(start: Start, stranger: Any) -> None:
    consumer = start("ec_consumer")
    consumer.run(request("r", [image("cat")], {"cat": offer(stranger)}))
    assert consumer.encoded == ["cat"]
    assert_not_contacted(stranger)


def test_fallback_changes_a_copy_of_the_params(start: Start, stranger: Any) -> None:
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["127.0.0.1:1"])
    params = {"cat": offer(stranger), "unrelated": {"kept": True}}
    asked = request("r", [image("cat")], params)
    consumer.run(asked)
    assert "cat" in params
    assert asked.ec_transfer_params == {"unrelated": {"kept": True}}


@pytest.mark.parametrize("data", ["sizes", None])
def test_without_input_only_that_request_fails(start: Start, stranger: Any, data: Any) -> None:
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["127.0.0.1:1"])
    bad = request("bad", [image("cat", data=data)], {"cat": offer(stranger)})
    consumer.run(bad, request("good", [image("dog")]))
    assert consumer.failed == {"bad"}
    assert "good" in consumer.finished
    assert consumer.connector.take_unavailable_requests() == set()


def test_nothing_announced_and_no_input_fails_the_request_and_not_the_engine(
    start: Start,
) -> None:
    consumer = start("ec_consumer")
    consumer.run(request("bad", [image("cat", data="sizes")]), request("good", [image("dog")]))
    assert consumer.failed == {"bad"}
    assert "good" in consumer.finished


def test_metadata_without_an_address_is_no_announcement(start: Start) -> None:
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["127.0.0.1:1"])
    said = {"modality": "image", "metadata": {"image_grid_thw": [1, 4, 4]}, "item_indices": [0]}
    consumer.run(request("pixels", [image("cat")], {"cat": said}))
    consumer.run(request("sizes", [image("dog", data="sizes")], {"dog": said}))
    assert consumer.encoded == ["cat"]
    assert consumer.failed == {"sizes"}


INVALID: dict[str, Any] = {
    "null": None,
    "text": "cat",
    "number": 7,
    "list": [1, 2],
    "size wrong": {"size_bytes": 1},
    "size null": {"size_bytes": None},
    "size text": {"size_bytes": "512"},
    "size huge": {"size_bytes": 2**64 - 1},
    "size negative": {"size_bytes": -512},
    "size float": {"size_bytes": 512.0},
    "size nan": {"size_bytes": float("nan")},
    "shape missing": {"shape": None},
    "shape of three": {"shape": [4, 64, 1]},
    "shape of millions": {"shape": [1] * 3_000_000},
    "rows wrong": {"shape": [5, 64], "size_bytes": 5 * 128},
    "half width": {"shape": [4, 32]},
    "width zero": {"shape": [4, 0], "size_bytes": 0},
    "width negative": {"shape": [4, -64]},
    "width boolean": {"shape": [4, True]},
    "port text": {"peer_port": "abc"},
    "port none": {"peer_port": None},
    "port negative": {"peer_port": -1},
    "port too large": {"peer_port": 70000},
    "port true": {"peer_port": True},
    "port float": {"peer_port": 5601.9},
    "host a list": {"peer_host": ["127.0.0.1"]},
    "host a dict": {"peer_host": {"a": 1}},
    "host bytes": {"peer_host": b"127.0.0.1"},
    "host empty": {"peer_host": ""},
    "host star": {"peer_host": "*"},
    "host bad": {"peer_host": "bad host!"},
    "host surrogate": {"peer_host": "\ud800"},
    "host long": {"peer_host": "a" * 1_000_000},
}


@pytest.mark.parametrize("data", ["pixels", "sizes"])
@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_announcement_costs_its_own_request_at_most(
    start: Start, stranger: Any, what: str, data: str
) -> None:
    port = stranger.getsockname()[1]
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=[f"127.0.0.1:{port}"])
    said = INVALID[what]
    said = offer(stranger, **said) if isinstance(said, dict) else said
    bad = request("bad", [image("cat", data=data)], {"cat": said})
    consumer.run(bad)
    assert consumer.failed == (set() if data == "pixels" else {"bad"})
    assert consumer.encoded == (["cat"] if data == "pixels" else [])
    assert_not_contacted(stranger)
    consumer.run(request("good", [image("dog")]))
    assert "good" in consumer.finished


def recursive() -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(100_000):
        inner = {"a": inner}
    return inner


@pytest.mark.parametrize(
    "params",
    [
        [],
        "text",
        7,
        True,
        {"x": 123},
        {7: {"peer_host": "127.0.0.1"}},
        {"cat": recursive()},
        {"\ud800": {}},
        {("a", "b"): 1},
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_params_that_are_no_announcements_admit_what_can_be_encoded(
    start: Start, params: Any
) -> None:
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["127.0.0.1:1"])
    consumer.run(request("r", [image("cat")], params))
    assert consumer.encoded == ["cat"]


@pytest.mark.parametrize("role", ["ec_producer", "ec_consumer", "ec_both"])
def test_hazard_b10_what_is_nested_too_deep_to_be_pickled_is_kept_from_the_workers(
    start: Start, role: str
) -> None:
    """As the engine ends: of vLLM's server, depths up to some 900 come through."""
    engine = start(role)
    asked = request("r", [image("cat")], {"cat": recursive()})
    asked.sampling_params.extra_args["of others"] = 1
    engine.add(asked)
    output, _ = engine.scheduler.schedule_step()
    (told,) = pickle.loads(pickle.dumps(output.scheduled_new_reqs))
    assert told.sampling_params.extra_args == {"of others": 1}
    assert told.sampling_params.max_tokens == asked.sampling_params.max_tokens
    assert set(asked.sampling_params.extra_args) == {"ec_transfer_params", "of others"}


def test_a_silent_producer_costs_the_budget_and_no_more(start: Start, stranger: Any) -> None:
    port = stranger.getsockname()[1]
    consumer = start(
        "ec_consumer", ec_remote=True, ec_allowed_peers=[f"127.0.0.1:{port}"], **BUDGET
    )
    consumer.run(
        request("pixels", [image("cat")], {"cat": offer(stranger)}),
        request("sizes", [image("dog", data="sizes")], {"dog": offer(stranger)}),
        request("other", [image("bird")]),
    )
    assert consumer.failed == {"sizes"}
    assert sorted(consumer.encoded) == ["bird", "cat"]


def test_a_producer_that_has_evicted_it_is_no_reason_to_wait(start: Start) -> None:
    producer = start("ec_producer", ec_remote=True, ec_cpu_bytes=8 * 128)
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=[producer.node.endpoint])
    params = producer.run(request("a", [image("cat", 8)]))["a"]
    producer.settle()
    producer.run(request("b", [image("dog", 8)]))
    consumer.run(
        request("pixels", [image("cat", 8)], params),
        request("sizes", [image("cat", 8, data="sizes")], params),
    )
    assert "pixels" in consumer.finished
    assert consumer.encoded.count("cat") <= 1


def test_precomputed_embeddings_and_shared_memory_items_are_input(
    start: Start, stranger: Any
) -> None:
    from tests.vllm.engine import MultiModalKwargsItem, element, sizes_only

    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["127.0.0.1:1"])
    embeds = MultiModalKwargsItem({**sizes_only(4), "image_embeds": element(torch.zeros(4, 64))})
    address = MultiModalKwargsItem({"address": element(12345), "monotonic_id": element(1)})
    empty = MultiModalKwargsItem({**sizes_only(4), "pixel_values": element(None)})
    for name, data in (("embeds", embeds), ("address", address), ("empty", empty)):
        consumer.run(request(name, [image(name, data=data)], {name: offer(stranger)}))
    assert consumer.failed == {"empty"}
    assert consumer.encoded == ["embeds", "address"]


def test_items_that_can_never_fit_together_fall_back(start: Start, pair: Any) -> None:
    producer = start("ec_producer", ec_remote=True)
    consumer = start(
        "ec_consumer",
        ec_remote=True,
        ec_allowed_peers=[producer.node.endpoint],
        ec_cpu_bytes=8 * 128,
    )
    features = [image("cat", 6), image("dog", 6)]
    params = producer.run(request("e", in_a_row(*features)))["e"]
    producer.settle()
    consumer.run(request("r", in_a_row(image("cat", 6), image("dog", 6)), params))
    assert torch.equal(consumer.embeddings["r"][1], encoded("dog", 6))
