"""Encoder outputs go from one engine to another, and the answers are those of one engine alone."""

from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm
from tests.e2e import environment, images, stores
from tests.e2e.apis import Picture, messages
from tests.e2e.engines import Answer
from tests.e2e.fleet import REGION_BYTES, Encoded, Fleet, encode

TOKENS = 16


def params_of(*encoded: Encoded) -> dict[str, object]:
    """What a proxy sends on: the announcements of all items in one object."""
    return {name: value for one in encoded for name, value in one.params.items()}


def body(*pictures: Picture, **extra: object) -> dict[str, object]:
    chat = {"model": "tiny", "messages": messages(*pictures), "max_tokens": TOKENS}
    return chat | {"temperature": 0, "ignore_eos": True, "return_token_ids": True} | extra


def ask(fleet: Fleet, *pictures: Picture, **extra: object) -> Answer:
    return fleet.consumer.post("/v1/chat/completions", body(*pictures, **extra))


def alone(fleet: Fleet, *pictures: Picture) -> list[int]:
    """The tokens of the engine that does everything itself."""
    result = fleet.reference(*pictures, max_tokens=TOKENS, ignore_eos=True)
    return list(result["tokens"])


@pytest.mark.parametrize("side", [images.SMALL, images.SIDE, images.LARGE])
@pytest.mark.parametrize("pixels", [True, False], ids=["pixels", "named"])
def test_one_image_is_transferred_whatever_its_size(fleet: Fleet, side: int, pixels: bool) -> None:
    picture = Picture(100 + side + pixels, side)
    encoded = encode(fleet.producer, picture)
    assert encoded.params[encoded.mm_hash]["shape"] == [images.rows(side), 128]
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, picture if pixels else encoded.named, ec_transfer_params=encoded.params)
    assert answer.tokens == alone(fleet, picture)
    assert steps.encoded == 0


def test_several_images_and_one_of_them_twice(fleet: Fleet) -> None:
    pictures = [Picture(200), Picture(201, images.SMALL), Picture(202), Picture(200)]
    encoded = [encode(fleet.producer, picture) for picture in pictures]
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, *pictures, ec_transfer_params=params_of(*encoded))
    assert answer.tokens == alone(fleet, *pictures)
    assert steps.encoded == 0


def test_an_image_that_was_not_announced_is_encoded_beside_one_that_was(fleet: Fleet) -> None:
    there, not_there = Picture(210), Picture(211)
    encoded = encode(fleet.producer, there)
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, there, not_there, ec_transfer_params=encoded.params)
    assert answer.tokens == alone(fleet, there, not_there)
    assert steps.encoded == 1


def test_the_same_request_again_needs_no_encoder_and_no_producer(fleet: Fleet) -> None:
    encoded = encode(fleet.producer, Picture(220))
    expected = alone(fleet, Picture(220))
    for _ in range(3):
        with fleet.consumer.watched() as steps:
            answer = ask(fleet, encoded.named, ec_transfer_params=encoded.params)
        assert answer.tokens == expected
        assert steps.encoded == 0


def test_a_producer_announces_an_image_that_it_has_encoded_before(fleet: Fleet) -> None:
    first, second = (encode(fleet.producer, Picture(230)) for _ in range(2))
    assert first.params == second.params


def test_requests_at_once_share_an_image(fleet: Fleet) -> None:
    shared, own = encode(fleet.producer, Picture(240)), encode(fleet.producer, Picture(241))
    requests = [(shared,), (shared, own), (own, shared), (shared,)]
    bodies = [
        body(*(one.named for one in request), ec_transfer_params=params_of(*request))
        for request in requests
    ]
    with fleet.consumer.watched() as steps:
        answers = fleet.consumer.together("/v1/chat/completions", bodies)
    for request, answer in zip(requests, answers, strict=True):
        assert answer.tokens == alone(fleet, *(one.picture for one in request))
    assert steps.encoded == 0


def test_other_bytes_give_another_answer(fleet: Fleet, chiasm: Chiasm, tmp_path: Path) -> None:
    """That the consumer computes with what it has read, and with nothing else."""
    encoded = encode(fleet.producer, Picture(250))
    store = stores.fetched(chiasm, encoded, tmp_path)
    stores.negate(store)
    producer = stores.produce(chiasm, store, fleet.ports[1])
    params = encoded.announced(peer_port=producer.port)
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, encoded.picture, ec_transfer_params=params)
    assert answer.status == 200
    assert answer.tokens != alone(fleet, encoded.picture)
    assert steps.encoded == 0


def test_what_the_producer_has_evicted_fails_once_and_is_announced_again(fleet: Fleet) -> None:
    encoded = encode(fleet.producer, Picture(260))
    for other in range(REGION_BYTES // (images.rows(images.LARGE) * stores.WIDTH * 4) + 1):
        encode(fleet.producer, Picture(261 + other, images.LARGE))
    assert ask(fleet, encoded.named, ec_transfer_params=encoded.params).status == 500
    # The producer's engine still has the image, so that its encoder does not run: it is saved anew.
    with fleet.producer.watched() as steps:
        again = encode(fleet.producer, encoded.picture)
    assert steps.encoded == 0
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, again.named, ec_transfer_params=again.params)
    assert answer.tokens == alone(fleet, encoded.picture)
    assert steps.encoded == 0


def test_the_engine_is_the_one_that_the_tests_are_written_for(fleet: Fleet) -> None:
    assert fleet.consumer.call("GET", "/version").json["version"] == environment.VERSION
    assert (fleet.producer.runner, fleet.consumer.runner) == (1, 1)
