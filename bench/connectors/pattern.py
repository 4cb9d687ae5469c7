"""Entries whose bytes are known: saved into blocks of a region, and compared to the last byte."""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes of an entry repeat after so many; not a multiple of a block. As in `chiasm bench`.
PATTERN_BYTES = (1 << 20) + 7

Blocks = NDArray[np.int8]
"""A region: a row is a block."""


class WrongBytesError(Exception):
    """What has arrived is not what was saved."""


class Pattern:
    """Bytes that look random, from which those of all entries are cut."""

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        once = np.random.default_rng(1).integers(-128, 128, PATTERN_BYTES, dtype=np.int8)
        # Twice, so that every piece lies in one piece.
        self.bytes = np.concatenate([once, once])
        self.piece_blocks = PATTERN_BYTES // block_bytes
        self.copy = np.empty((self.piece_blocks, block_bytes), dtype=np.int8)
        self.compare: Any = ctypes.CDLL(None).memcmp
        self.compare.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

    def pieces(self, name: str, ids: Sequence[int]) -> Iterator[tuple[NDArray[np.int64], Blocks]]:
        """Some blocks of the entry `name` after another, and what is in them."""
        all_ids = np.array(ids, dtype=np.int64)
        start = 0
        for byte in name.encode():
            start = (start * 131 + byte) % PATTERN_BYTES
        for at in range(0, len(all_ids), self.piece_blocks):
            some = all_ids[at : at + self.piece_blocks]
            size = len(some) * self.block_bytes
            yield some, self.bytes[start : start + size]
            start = (start + size) % PATTERN_BYTES

    def save(self, blocks: Blocks, ids: Sequence[int], name: str) -> None:
        """Writes the entry `name` into these blocks."""
        for some, piece in self.pieces(name, ids):
            blocks[some] = piece.reshape(-1, self.block_bytes)

    def check(self, blocks: Blocks, ids: Sequence[int], name: str) -> int:
        """Copies the entry `name` out of these blocks, as a worker does, and compares every byte of
        it; how many there are.

        Raises WrongBytesError if one differs.
        """
        total = 0
        for some, piece in self.pieces(name, ids):
            there = self.copy[: len(some)]
            np.take(blocks, some, axis=0, out=there, mode="clip")
            if self.compare(there.ctypes.data, piece.ctypes.data, piece.nbytes):
                raise WrongBytesError(f"{name}: in the piece after {total} bytes")
            total += piece.nbytes
        return total
