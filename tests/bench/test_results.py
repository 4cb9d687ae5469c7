"""What becomes of a run's rows: tables and pictures that say what was measured."""

import xml.etree.ElementTree as ET
from typing import Any

from bench.picture import picture
from bench.tables import markdown, number


def row(what: str, median: float, *, size: int = 1, rounds: int = 1) -> dict[str, Any]:
    values = [median] * rounds
    return {
        "family": "transfers",
        "what": what,
        "case": {"size_bytes": size, "outstanding": 16},
        "metric": "gb_per_s",
        "values": values,
        "median": median,
        "lowest": median / 2,
        "highest": median * 2,
    }


MACHINE = {
    "date": "2026-12-01T00:00:00+00:00",
    "commit": "0123456789abcdef",
    "changed": False,
    "vllm": "0.32.0",
    "cpu": "a cpu",
    "cores": 2,
    "memory_gib": 24.0,
    "kernel": "6.18",
    "load_before": (0.0, 0.0, 0.0),
    "load_after": (1.0, 0.5, 0.1),
    "quick": False,
}


def test_those_of_one_case_stand_in_one_line_with_their_ratio() -> None:
    rows = [row("memcpy", 20), row("chiasm shm", 8, rounds=3), row("upstream", 0.4)]
    table = markdown(MACHINE, [*rows, row("chiasm shm", 9, size=2)]).splitlines()
    head = "| size_bytes | outstanding | memcpy | chiasm shm | upstream | chiasm / upstream |"
    at = table.index(head)
    assert table[at + 2 : at + 4] == [
        "| 1 | 16 | 20 | 8 (4 - 16) | 0.4 | 20 |",
        "| 2 | 16 |  | 9 |  |  |",
    ]


def test_figures_have_three_digits() -> None:
    assert [number(value) for value in (0, 0.001234, 9.876, 99.96, 123.4, 14_001_936)] == [
        "0",
        "0.00123",
        "9.88",
        "100",
        "123",
        "14,001,936",
    ]


def test_a_picture_has_a_bar_for_each_figure_longer_for_more() -> None:
    rows = [row("upstream", 0.4), row("chiasm shm", 8), row("a < b", 0)]
    drawn = ET.fromstring(picture("transfers", rows))
    space = "{http://www.w3.org/2000/svg}"
    _background, *bars = drawn.findall(f"{space}rect")
    lengths = [int(bar.attrib["width"]) for bar in bars]
    assert lengths[1] > lengths[0] > lengths[2] >= 1
    words = [text.text for text in drawn.findall(f"{space}text")]
    assert "a < b" in words
