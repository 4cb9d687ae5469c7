"""An endpoint that no operator has approved is not contacted, whatever an announcement says, and
costs no other request anything. The announcement is a producer's own, with its true hash and shape:
only the port is another, and somebody listens there."""

from typing import Any

import pytest

from tests.e2e import apis
from tests.e2e.apis import APIS, MAX_TOKENS, Api, Picture, generate, rendered
from tests.e2e.engines import Answer
from tests.e2e.fleet import Encoded, Fleet, encode
from tests.e2e.listener import Listener

API = pytest.mark.parametrize("api", APIS, ids=lambda api: str(api.name))


def refused(answer: Answer) -> bool:
    """Whether the request failed as a whole: with a status, or in its stream."""
    if answer.status == 200:
        return any("error" in event for event in apis.events(answer))
    return answer.status == 500


def check_afterwards(
    fleet: Fleet, api: Api, listener: Listener, encoded: Encoded, expected: str
) -> None:
    """Nobody was contacted, and the same engine answers the same picture in every other way."""
    assert fleet.consumer.healthy
    for extra in ({"cache_salt": "other"}, {}):
        assert api.read(api.ask(fleet.consumer, encoded.picture, **extra)) == expected
    assert listener.connections() == 0


@API
def test_with_pixels_the_image_is_encoded_here(fleet: Fleet, api: Api, listener: Listener) -> None:
    picture = Picture(1000 + APIS.index(api))
    encoded = encode(fleet.producer, picture)
    expected = fleet.reference(picture, max_tokens=MAX_TOKENS)["text"]
    foreign = encoded.announced(peer_port=listener.port)
    with fleet.consumer.watched() as steps:
        answer = api.ask(fleet.consumer, picture, ec_transfer_params=foreign)
    assert answer.status == 200, answer
    assert api.read(answer) == expected
    assert steps.encoded == 1
    check_afterwards(fleet, api, listener, encoded, expected)


@pytest.mark.parametrize(
    "api", [api for api in APIS if api.takes_names], ids=lambda api: str(api.name)
)
def test_without_pixels_only_this_request_fails(fleet: Fleet, api: Api, listener: Listener) -> None:
    encoded = encode(fleet.producer, Picture(1100 + APIS.index(api)))
    expected = fleet.reference(encoded.picture, max_tokens=MAX_TOKENS)["text"]
    foreign = encoded.announced(peer_port=listener.port)
    assert refused(api.ask(fleet.consumer, encoded.named, ec_transfer_params=foreign))
    assert listener.connections() == 0
    # The same once more with the endpoint that is approved.
    with fleet.consumer.watched() as steps:
        answer = api.ask(fleet.consumer, encoded.named, ec_transfer_params=encoded.params)
    assert api.read(answer) == expected
    assert steps.encoded == 0
    check_afterwards(fleet, api, listener, encoded, expected)


@API
def test_the_approved_endpoint_is_read_from(fleet: Fleet, api: Api) -> None:
    picture = Picture(1200 + APIS.index(api))
    encoded = encode(fleet.producer, picture)
    with fleet.consumer.watched() as steps:
        answer = api.ask(fleet.consumer, picture, ec_transfer_params=encoded.params)
    assert api.read(answer) == fleet.reference(picture, max_tokens=MAX_TOKENS)["text"]
    assert steps.encoded == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("pixels", [True, False], ids=["pixels", "named"])
def test_tokens_in_tokens_out(fleet: Fleet, listener: Listener, pixels: bool, stream: bool) -> None:
    encoded = encode(fleet.producer, Picture(1300 + 2 * pixels + stream))
    expected = fleet.reference(encoded.picture, max_tokens=MAX_TOKENS)["tokens"]
    body = rendered(fleet.consumer, encoded.picture, pixels=pixels) | {"stream": stream}
    foreign = encoded.announced(peer_port=listener.port)
    with fleet.consumer.watched() as steps:
        answer = generate(fleet.consumer, body, ec_transfer_params=foreign)
    if pixels:
        assert generated(answer) == expected
        assert steps.encoded == 1
    else:
        assert refused(answer), answer
        with fleet.consumer.watched() as steps:
            answer = generate(fleet.consumer, body, ec_transfer_params=encoded.params)
        assert generated(answer) == expected
        assert steps.encoded == 0
    assert listener.connections() == 0
    assert fleet.consumer.healthy


def generated(answer: Answer) -> list[int]:
    """The tokens of a token-in-token-out answer, streamed or not."""
    assert answer.status == 200, answer
    told: list[Any] = apis.events(answer) or [answer.json]
    choices = [choice for event in told for choice in event.get("choices", ())]
    return [token for choice in choices for token in choice["token_ids"] or ()]


def test_a_request_without_images_may_say_what_it_likes(fleet: Fleet, listener: Listener) -> None:
    encoded = encode(fleet.producer, Picture(1400))
    foreign = encoded.announced(peer_port=listener.port)
    body = {"model": "tiny", "prompt": "hi", "max_tokens": MAX_TOKENS, "temperature": 0}
    for stream in (False, True):
        answer = fleet.consumer.post(
            "/v1/completions", body | {"ec_transfer_params": foreign, "stream": stream}
        )
        assert answer.status == 200, answer
    assert listener.connections() == 0


def test_one_of_several_requests_at_once_is_refused_alone(fleet: Fleet, listener: Listener) -> None:
    chat = APIS[0]
    good = [encode(fleet.producer, Picture(1500 + n)) for n in range(3)]
    bad = encode(fleet.producer, Picture(1510))
    bodies = [chat.build(one.named) | {"ec_transfer_params": one.params} for one in good]
    foreign = bad.announced(peer_port=listener.port)
    bodies.insert(1, chat.build(bad.named) | {"ec_transfer_params": foreign})
    answers = fleet.consumer.together(chat.path, bodies)
    assert refused(answers.pop(1))
    for one, answer in zip(good, answers, strict=True):
        expected = fleet.reference(one.picture, max_tokens=MAX_TOKENS)["text"]
        assert chat.read(answer) == expected
    assert listener.connections() == 0
