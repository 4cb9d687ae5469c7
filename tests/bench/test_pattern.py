"""What arrives in upstream's fleet is compared to the last byte."""

import numpy as np
import pytest

from bench.connectors.pattern import PATTERN_BYTES, Pattern, WrongBytesError

BLOCK_BYTES = 7168
# More than the pattern is long, and more than one piece.
BLOCKS = PATTERN_BYTES // BLOCK_BYTES + 10


@pytest.fixture
def pattern() -> Pattern:
    return Pattern(BLOCK_BYTES)


@pytest.mark.parametrize("byte", [0, 5 * BLOCK_BYTES + 3, BLOCKS * BLOCK_BYTES - 1])
def test_one_wrong_byte_is_found_wherever_it_is(pattern: Pattern, byte: int) -> None:
    region = np.zeros((2 * BLOCKS, BLOCK_BYTES), dtype=np.int8)
    ids = [*range(BLOCKS, 2 * BLOCKS - 20), *range(20)]
    pattern.save(region, ids, "one")
    assert pattern.check(region, ids, "one") == BLOCKS * BLOCK_BYTES
    region[ids[byte // BLOCK_BYTES], byte % BLOCK_BYTES] ^= 1
    with pytest.raises(WrongBytesError, match="one"):
        pattern.check(region, ids, "one")


def test_the_bytes_of_another_entry_or_of_another_block_are_wrong(pattern: Pattern) -> None:
    region = np.zeros((4, BLOCK_BYTES), dtype=np.int8)
    pattern.save(region, [0, 1], "one")
    with pytest.raises(WrongBytesError):
        pattern.check(region, [0, 1], "other")
    with pytest.raises(WrongBytesError):
        pattern.check(region, [1, 0], "one")
