#!/usr/bin/env python3
"""Asks about images through an encoder instance and a prefill and decode instance.

    examples/epd/ask.py "What is on these?" first.png second.jpg

Each image goes to the encoder alone, without the text; what it announces of them, merged, goes to
the decoder along with the whole request. That is all a proxy between clients and instances does.
"""

import argparse
import base64
import json
import mimetypes
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("question")
    parser.add_argument("images", nargs="+", type=Path)
    parser.add_argument("--encoder", default="http://127.0.0.1:8001")
    parser.add_argument("--decoder", default="http://127.0.0.1:8002")
    parser.add_argument("--max-tokens", type=int, default=64)
    asked = parser.parse_args()

    media = [as_content(path) for path in asked.images]
    with ThreadPoolExecutor() as pool:
        announced = list(pool.map(lambda item: encode(asked.encoder, item), media))
    # One entry per image, under its identifier: the same image twice is one entry.
    params = {identifier: entry for said in announced for identifier, entry in said.items()}
    for identifier, entry in params.items():
        where = f"{entry['peer_host']}:{entry['peer_port']}" if "peer_host" in entry else "nowhere"
        print(f"{identifier[:12]} can be read at {where}", file=sys.stderr)

    answer = post(
        asked.decoder,
        {
            "model": "model",
            "messages": [
                {"role": "user", "content": [*media, {"type": "text", "text": asked.question}]}
            ],
            "max_tokens": asked.max_tokens,
            "temperature": 0,
            "ec_transfer_params": params,
        },
    )
    print(answer["choices"][0]["message"]["content"])


def as_content(path: Path) -> dict[str, Any]:
    """An image as a chat message holds it."""
    kind = mimetypes.guess_type(path.name)[0] or "image/png"
    data = base64.b64encode(path.read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def encode(encoder: str, item: dict[str, Any]) -> dict[str, Any]:
    """Has one image encoded; its announcement."""
    answer = post(
        encoder,
        {
            "model": "model",
            "messages": [{"role": "user", "content": [item]}],
            "max_tokens": 1,
        },
    )
    return answer.get("ec_transfer_params") or {}


def post(server: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"{server}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except urllib.error.HTTPError as error:
        sys.exit(f"{server} answered {error.code}: {error.read().decode(errors='replace')[:500]}")
    except urllib.error.URLError as error:
        sys.exit(f"{server}: {error.reason}")


if __name__ == "__main__":
    main()
