"""An instance that produces and consumes, with a region that is much too small: what does not
fit is encoded again, what does is not, and the answers are the same.

Its model has encoder outputs that are three times as wide as a block. It may read from others, and
no operator has approved any: what it has saved itself it loads all the same.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import environment, images
from tests.e2e.apis import Picture, messages
from tests.e2e.engines import InProcess, free_ports
from tests.e2e.fleet import connector, listening, with_plugin
from tests.e2e.listener import Listener

ROW = 3 * 128 * 4  # bytes of one row of the encoder's output
FITS = 4  # images of images.SIDE that the region holds
TOKENS = 16


@pytest.fixture(scope="module")
def engine(engine_logs: Path) -> Iterator[InProcess]:
    region = FITS * images.rows(images.SIDE) * ROW
    engine = InProcess(
        "both",
        engine_logs,
        environment.model("qwen3_vl"),
        connector=connector("ec_both", "both", ec_cpu_bytes=region, ec_remote=True),
        environment=listening(free_ports(1)) | with_plugin(),
        # The engine's own encoder cache holds a few images: the region is asked for the others.
        max_num_batched_tokens=512,
    )
    try:
        yield engine.ready()
    finally:
        engine.stop()


def ask(
    engine: InProcess, *requests: tuple[Picture, ...], **extra: object
) -> tuple[list[list[int]], int]:
    """The tokens of these requests, run as one batch, and how many images were encoded for them."""
    asked = [
        {"messages": messages(*pictures), "max_tokens": TOKENS, "ignore_eos": True} | extra
        for pictures in requests
    ]
    with engine.watched() as steps:
        results = engine.run(asked)
    assert all(result["finished"] == "length" for result in results)
    return [result["tokens"] for result in results], steps.encoded


def flush(engine: InProcess, first: int) -> None:
    """Drives every other image out of the engine's own cache, but not out of the region."""
    ask(engine, (Picture(first, images.LARGE),))


def test_an_output_wider_than_a_block_is_saved_and_loaded(engine: InProcess) -> None:
    first, encoded = ask(engine, (Picture(4000),))
    assert encoded == 1
    flush(engine, 4001)
    second, encoded = ask(engine, (Picture(4000),))
    assert second == first
    assert encoded == 0, "it is in the region"


def test_what_is_in_the_region_needs_no_allowlist(engine: InProcess, listener: Listener) -> None:
    picture = Picture(4050)
    first, _ = ask(engine, (picture,))
    asked = {"messages": messages(picture, text=""), "max_tokens": 1}
    (announced,) = engine.run([asked])
    ((name, announcement),) = announced["params"].items()
    assert announcement["shape"] == [images.rows(images.SIDE), ROW // 4]
    flush(engine, 4051)
    foreign = {name: announcement | {"peer_port": listener.port}}
    second, encoded = ask(engine, (picture,), params=foreign)
    assert second == first
    assert encoded == 0, "it is in the region"
    assert listener.connections() == 0


def test_what_nobody_approved_is_encoded_here(engine: InProcess, listener: Listener) -> None:
    picture = Picture(4060)
    asked = {"messages": messages(picture, text=""), "max_tokens": 1}
    (announced,) = engine.run([asked])
    ((name, announcement),) = announced["params"].items()
    foreign = {name: announcement | {"peer_port": listener.port}}
    # Neither the engine nor the region has it any more.
    for other in range(2 * FITS):
        ask(engine, (Picture(4061 + other),))
    flush(engine, 4080)
    second, encoded = ask(engine, (picture,), params=foreign)
    assert encoded == 1
    assert listener.connections() == 0
    flush(engine, 4081)
    assert ask(engine, (picture,))[0] == second


def test_an_output_larger_than_the_region_is_encoded_each_time(engine: InProcess) -> None:
    large = Picture(4100, images.LARGE)
    assert images.rows(images.LARGE) > FITS * images.rows(images.SIDE)
    first, encoded = ask(engine, (large,))
    assert encoded == 1
    flush(engine, 4101)
    second, encoded = ask(engine, (large,))
    assert second == first
    assert encoded == 1


def test_what_was_evicted_is_encoded_and_saved_again(engine: InProcess) -> None:
    first, _ = ask(engine, (Picture(4200),))
    for other in range(2 * FITS):
        ask(engine, (Picture(4201 + other),))
    flush(engine, 4290)
    second, encoded = ask(engine, (Picture(4200),))
    assert second == first
    assert encoded == 1, "the region has given it up"
    flush(engine, 4291)
    third, encoded = ask(engine, (Picture(4200),))
    assert third == first
    assert encoded == 0, "it has been saved again"


def test_many_requests_at_once_under_pressure(engine: InProcess) -> None:
    """Each image in two requests of a batch that needs three times the region."""
    pictures = [Picture(4300 + n) for n in range(3 * FITS)]
    alone = [ask(engine, (picture, other))[0][0] for picture, other in pairs(pictures)]
    for _ in range(3):
        together, _ = ask(engine, *pairs(pictures))
        assert together == alone


def pairs(pictures: list[Picture]) -> list[tuple[Picture, Picture]]:
    return list(zip(pictures, pictures[1:] + pictures[:1], strict=True))
