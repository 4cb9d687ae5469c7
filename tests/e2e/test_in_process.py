"""The engine's own client, without a server: batches, and requests that are preempted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import environment, fleet
from tests.e2e.apis import Picture, messages
from tests.e2e.engines import InProcess
from tests.e2e.fleet import BUDGETS, Encoded, Fleet, connector, encode
from tests.e2e.listener import Listener

# Of 128 tokens each, as vLLM's build for CPUs cuts them: fewer than the requests below need.
BLOCKS = 8
LONGEST = 896  # tokens, which that many blocks hold


@pytest.fixture(scope="module")
def engine(_fleet: Fleet, engine_logs: Path) -> Iterator[InProcess]:
    """A consumer that may read from the fleet's producer, with very little room for tokens."""
    engine = InProcess(
        "in-process",
        engine_logs,
        environment.model("qwen2_vl"),
        connector=connector(
            "ec_consumer",
            "in-process",
            ec_remote=True,
            ec_allowed_peers=[f"127.0.0.1:{_fleet.ports[0]}"],
            **BUDGETS,
        ),
        environment=fleet.with_plugin(),
        num_gpu_blocks_override=BLOCKS,
        max_model_len=LONGEST,
        limit_mm_per_prompt={"image": 1, "video": 0},
    )
    try:
        yield engine.ready()
    finally:
        engine.stop()


def request(picture: Picture, params: object = None, max_tokens: int = 16) -> dict[str, object]:
    asked = {"messages": messages(picture), "max_tokens": max_tokens, "ignore_eos": True}
    return asked | ({} if params is None else {"params": params})


def test_a_batch_of_which_one_is_refused(
    engine: InProcess, fleet: Fleet, listener: Listener
) -> None:
    good = [encode(fleet.producer, Picture(3000 + n)) for n in range(3)]
    bad, local = encode(fleet.producer, Picture(3010)), encode(fleet.producer, Picture(3011))
    batch = [request(one.named, one.params) for one in good]
    batch.append(request(bad.named, bad.announced(peer_port=listener.port)))
    batch.append(request(local.picture, local.announced(peer_port=listener.port)))
    with engine.watched() as steps:
        results = engine.run(batch)
    assert results[3]["finished"] == "error"
    for one, result in zip([*good, local], results[:3] + results[4:], strict=True):
        expected = fleet.reference(one.picture, max_tokens=16, ignore_eos=True)
        assert result["tokens"] == expected["tokens"]
    assert steps.encoded == 1, "the image whose pixels were there"
    assert listener.connections() == 0
    # The engine goes on: also with the one that failed.
    (again,) = engine.run([request(bad.named, bad.params)])
    expected = fleet.reference(bad.picture, max_tokens=16, ignore_eos=True)
    assert again["tokens"] == expected["tokens"]


def test_requests_that_are_preempted_get_their_images_again(
    engine: InProcess, fleet: Fleet
) -> None:
    many: list[Encoded] = [encode(fleet.producer, Picture(3100 + n)) for n in range(6)]
    with engine.watched() as steps:
        results = engine.run([request(one.named, one.params, 300) for one in many])
    assert steps.preempted > 0, "there was room for all: the test shows nothing"
    assert steps.encoded == 0
    for one, result in zip(many, results, strict=True):
        expected = fleet.reference(one.picture, max_tokens=300, ignore_eos=True)
        assert result["tokens"] == expected["tokens"]
