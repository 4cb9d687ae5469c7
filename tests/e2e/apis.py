"""The ways in which a client can hand images and announcements to vLLM's server, in one shape.

Each way builds its body from the same image and text, and reads the answer's text back, so that one
scenario runs through all of them.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e import images
from tests.e2e.engines import Answer, Server

TEXT = "hi"
MAX_TOKENS = 12


@dataclass(frozen=True)
class Picture:
    """An image as a request carries it: by its pixels, or by its mm_hash alone."""

    seed: int
    side: int = images.SIDE
    mm_hash: str | None = None

    @property
    def part(self) -> dict[str, Any]:
        if self.mm_hash is not None:
            return images.named_part(self.mm_hash, self.side)
        return images.part(self.seed, self.side)


def messages(*pictures: Picture, text: str = TEXT) -> list[dict[str, Any]]:
    """One message of a user: the pictures, then the text."""
    parts = [picture.part for picture in pictures]
    return [{"role": "user", "content": [*parts, *([images.text_part(text)] if text else [])]}]


@dataclass(frozen=True)
class Api:
    """One way in."""

    name: str
    path: str
    build: Callable[[Picture], dict[str, Any]]
    read: Callable[[Answer], str]
    # Whether it takes an item without pixels.
    takes_names: bool = False

    def ask(self, server: Server, picture: Picture, **extra: Any) -> Answer:
        return server.post(self.path, self.build(picture) | extra)


def events(answer: Answer) -> list[Any]:
    """The events of a stream."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _chat(picture: Picture) -> dict[str, Any]:
    body = {"messages": messages(picture), "max_tokens": MAX_TOKENS}
    return {"model": "tiny", "temperature": 0, **body}


def _chat_text(answer: Answer) -> str:
    (choice,) = answer.json["choices"]
    return str(choice["message"]["content"])


def _chat_stream_text(answer: Answer) -> str:
    choices = [choice for event in events(answer) for choice in event.get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def _batch(picture: Picture) -> dict[str, Any]:
    return _chat(picture) | {"messages": [messages(picture)]}


def _responses(picture: Picture) -> dict[str, Any]:
    image = {"type": "input_image", "image_url": images.uri(picture.seed, picture.side)}
    content = [image | {"detail": "auto"}, {"type": "input_text", "text": TEXT}]
    body = {"input": [{"role": "user", "content": content}], "max_output_tokens": MAX_TOKENS}
    return {"model": "tiny", "temperature": 0, **body}


def _responses_text(answer: Answer) -> str:
    parts = [part for item in answer.json["output"] for part in item.get("content", ())]
    return "".join(part["text"] for part in parts)


def _responses_stream_text(answer: Answer) -> str:
    deltas = [e for e in events(answer) if e.get("type") == "response.output_text.delta"]
    return "".join(event["delta"] for event in deltas)


def _anthropic(picture: Picture) -> dict[str, Any]:
    _, data = images.uri(picture.seed, picture.side).split(",")
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "image", "source": source}, images.text_part(TEXT)]
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": MAX_TOKENS}
    return {"model": "tiny", "temperature": 0, **body}


def _anthropic_text(answer: Answer) -> str:
    return "".join(block["text"] for block in answer.json["content"])


def _anthropic_stream_text(answer: Answer) -> str:
    deltas = [e["delta"] for e in events(answer) if e.get("type") == "content_block_delta"]
    return "".join(delta.get("text", "") for delta in deltas)


def _streamed(build: Callable[[Picture], dict[str, Any]]) -> Callable[[Picture], dict[str, Any]]:
    return lambda picture: build(picture) | {"stream": True}


APIS = [
    Api("chat", "/v1/chat/completions", _chat, _chat_text, takes_names=True),
    Api("chat, streamed", "/v1/chat/completions", _streamed(_chat), _chat_stream_text, True),
    Api("batch", "/v1/chat/completions/batch", _batch, _chat_text, takes_names=True),
    Api("invocations", "/invocations", _chat, _chat_text, takes_names=True),
    Api("responses", "/v1/responses", _responses, _responses_text),
    Api("responses, streamed", "/v1/responses", _streamed(_responses), _responses_stream_text),
    Api("messages", "/v1/messages", _anthropic, _anthropic_text),
    Api("messages, streamed", "/v1/messages", _streamed(_anthropic), _anthropic_stream_text),
]


def rendered(server: Server, picture: Picture, *, pixels: bool) -> dict[str, Any]:
    """The body for the token-in-token-out endpoint that the server itself renders for this picture,
    with the pixels or with the image's metadata only."""
    answer = server.post("/v1/chat/completions/render", _chat(picture))
    assert answer.status == 200, answer
    body: dict[str, Any] = answer.json
    body.pop("request_id", None)
    if not pixels:
        body["features"]["kwargs_data"] = None
    return body


def generate(server: Server, body: dict[str, Any], **extra: Any) -> Answer:
    """Asks the token-in-token-out endpoint."""
    return server.post("/inference/v1/generate", body | extra)
