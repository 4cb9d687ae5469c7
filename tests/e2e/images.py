"""Images made from a number, and the parts of a chat message that carry them."""

import base64
import io
import random
import struct
import zlib
from typing import Any

import numpy

SIDE = 112  # pixels; the tiny models make 16 rows of such an image
LARGE = 560  # 400 rows
SMALL = 56  # 4 rows


def rows(side: int) -> int:
    """Rows of the encoder's output for an image of side x side pixels."""
    return (side // 28) ** 2


def png(seed: int, side: int = SIDE) -> bytes:
    """Random pixels; the same seed makes the same ones."""
    pixels = random.Random(seed).randbytes(3 * side * side)
    lines = b"".join(
        b"\0" + pixels[3 * side * y : 3 * side * (y + 1)]  # each line: no filter, then its pixels
        for y in range(side)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def uri(seed: int, side: int = SIDE) -> str:
    return "data:image/png;base64," + base64.b64encode(png(seed, side)).decode()


def part(seed: int, side: int = SIDE) -> dict[str, Any]:
    """A part of a chat message with an image in it."""
    return {"type": "image_url", "image_url": {"url": uri(seed, side)}}


def named_part(mm_hash: str, side: int = SIDE) -> dict[str, Any]:
    """A part that names an encoder output and has no pixels: only the image's grid of patches."""
    file = io.BytesIO()
    numpy.save(file, numpy.array([1, side // 14, side // 14]))
    grid = base64.b64encode(file.getvalue()).decode()
    return {"type": "image_embeds", "image_embeds": {"image_grid_thw": grid}, "uuid": mm_hash}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
