"""`drain_logs`: bounded, and each line once."""

import logging
from collections.abc import Iterator

import pytest

from chiasm import _native
from tests.python_module.instances import ROW_ELEMENTS, Instance, instance


@pytest.fixture
def both() -> Iterator[Instance]:
    with instance("ec_both") as running:
        _native.drain_logs()
        yield running


def test_lines_have_the_levels_of_logging_and_come_once(both: Instance) -> None:
    both.node.dispatch_save("x" * 64, 65, ROW_ELEMENTS)
    ((level, target, text),) = _native.drain_logs()
    assert level == logging.WARNING
    assert target.startswith("_native")
    assert text.startswith("not saved: 65 blocks are more than the region's 64: raise ec_cpu_bytes")
    assert text.endswith(" mm_hash=xxxxxxxxxxxx")
    assert _native.drain_logs() == []


def test_the_queue_is_bounded_and_says_what_it_dropped(both: Instance) -> None:
    for number in range(1500):
        both.node.dispatch_save(str(number), 65, ROW_ELEMENTS)
    lines = _native.drain_logs()
    assert len(lines) == 1025
    assert lines[-1] == (
        logging.WARNING,
        "chiasm",
        "476 more lines were dropped: nobody had asked for them in time",
    )
    assert _native.drain_logs() == []


def test_a_line_of_a_client_is_one_line_and_short(both: Instance) -> None:
    both.node.dispatch_save("a\nb\x1b[31m\u202e" + "c" * 100, 65, ROW_ELEMENTS)
    ((_, _, text),) = _native.drain_logs()
    assert text.isprintable()
    assert len(text) < 300
