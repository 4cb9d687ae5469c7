"""The same under vLLM's second model runner: there are one producer and one consumer with it.

Its kernels run in Triton's interpreter here, which takes seconds for a few tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e import environment, images
from tests.e2e.apis import Picture, messages
from tests.e2e.engines import InProcess, free_ports
from tests.e2e.fleet import BUDGETS, ENCODER, Fleet, connector, listening, with_plugin
from tests.e2e.listener import Listener

TOKENS = 4


@dataclass
class Pair:
    producer: InProcess
    consumer: InProcess

    def encode(self, picture: Picture) -> dict[str, dict[str, object]]:
        (result,) = self.producer.run([{"messages": messages(picture, text=""), "max_tokens": 1}])
        params: dict[str, dict[str, object]] = result["params"]
        return params

    def ask(self, picture: Picture, params: object) -> dict[str, object]:
        asked = {"messages": messages(picture), "max_tokens": TOKENS, "params": params}
        (result,) = self.consumer.run([asked])
        return dict(result)


@pytest.fixture(scope="module")
def pair(engine_logs: Path) -> Iterator[Pair]:
    model, port = environment.model("qwen2_vl"), free_ports(1)
    settings = {"ec_allowed_peers": [f"127.0.0.1:{port}"], **BUDGETS}
    producer = InProcess(
        *("producer-v2", engine_logs, model),
        connector=connector("ec_producer", "encoder-v2", ec_remote=True),
        v2=True,
        environment=listening(port) | with_plugin(),
        **ENCODER,
    )
    consumer = InProcess(
        *("consumer-v2", engine_logs, model),
        connector=connector("ec_consumer", "decode-v2", ec_remote=True, **settings),
        v2=True,
        environment=with_plugin(),
    )
    try:
        pair = Pair(producer.ready(), consumer.ready())
        assert (producer.runner, consumer.runner) == (2, 2)
        yield pair
    finally:
        producer.stop()
        consumer.stop()


@pytest.mark.parametrize("pixels", [True, False], ids=["pixels", "named"])
def test_an_image_is_transferred(pair: Pair, fleet: Fleet, pixels: bool) -> None:
    picture = Picture(5000 + pixels)
    params = pair.encode(picture)
    (name,) = params
    assert params[name]["shape"] == [images.rows(images.SIDE), 128]
    with pair.consumer.watched() as steps:
        asked = picture if pixels else Picture(picture.seed, picture.side, name)
        result = pair.ask(asked, params)
    assert result["tokens"] == fleet.reference(picture, max_tokens=TOKENS)["tokens"]
    assert steps.encoded == 0


def test_an_endpoint_that_nobody_approved(pair: Pair, fleet: Fleet, listener: Listener) -> None:
    picture = Picture(5010)
    params = pair.encode(picture)
    (name,) = params
    foreign = {name: params[name] | {"peer_port": listener.port}}
    assert pair.ask(Picture(5010, mm_hash=name), foreign)["finished"] == "error"
    expected = fleet.reference(picture, max_tokens=TOKENS)["tokens"]
    with pair.consumer.watched() as steps:
        assert pair.ask(picture, foreign)["tokens"] == expected
    assert steps.encoded == 1
    assert listener.connections() == 0
