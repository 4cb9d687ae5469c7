"""What becomes of a run's rows: tables and pictures that say what was measured."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import bench.run
from bench.families import FAMILIES, Family
from bench.picture import picture
from bench.programs import Programs, Row
from bench.publish import BEGIN, END, PAGE, replaced, section
from bench.tables import markdown, number
from bench.targets import PARTS, Run, targets


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
    "effort": "full",
    "seconds": 1500,
}


def test_those_of_one_case_stand_in_one_line_with_their_ratio() -> None:
    rows = [row("memcpy", 20), row("chiasm shm", 8, rounds=3), row("upstream", 0.4)]
    table = markdown(MACHINE, [*rows, row("chiasm shm", 9, size=2)]).splitlines()
    head = "| size_bytes | outstanding | memcpy | chiasm shm | upstream | chiasm shm / upstream |"
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


def contact(what: str, metric: str, blocks: int, median: float) -> dict[str, Any]:
    case = {"region_blocks": blocks}
    return {"family": "contact", "what": what, "case": case, "metric": metric, "median": median}


def test_a_target_is_met_missed_or_not_measured() -> None:
    rows = [
        contact("chiasm nixl", "scheduler_cpu_ms", 1_000_000, 4.9),
        contact("upstream", "scheduler_cpu_ms", 1_000_000, 460.0),
        contact("chiasm nixl", "kept_mib", 10_000, 1.0),
        contact("chiasm nixl", "kept_mib", 1_000_000, 3.0),
    ]
    found = {target.what: target for target in targets(rows) if target.value is not None}
    cpu = found["first contact with a producer of 1e6 blocks, scheduler time"]
    assert (cpu.value, cpu.upstream, cpu.word) == (4.9, 460.0, "met")
    kept = found["kept of it per block"]
    assert kept.word == "**missed**"
    assert kept.upstream is None
    assert len(found) == 2
    assert all(target.word == "" for target in targets([]))
    assert len(targets([])) == sum(len(part(Run([]))) for part in PARTS) > 20


def test_a_worst_case_is_not_known_before_all_cases_are() -> None:
    rows = [
        {
            "family": "latency",
            "what": "chiasm",
            "case": {"step_ms": step_ms, "busy_cores": False},
            "metric": "to_ready_p99_ms",
            "median": step_ms / 1000,
        }
        for step_ms in (50, 500, 2000)
    ]
    worst = [target.value for target in targets(rows) if target.what.endswith("worst p99")]
    assert worst == [2.0]
    assert all(target.value is None for target in targets(rows[:2]))


def test_a_run_is_published_between_the_marks_of_the_page() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replaced(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    with pytest.raises(ValueError, match="has no"):
        replaced("before\nafter\n", "new")
    run = {"machine": MACHINE, "rows": [row("chiasm shm", 8)]}
    text = section({"../bench/results/x": run, "../bench/results/y": run})
    assert "All tables of transfers: [tables.md](../bench/results/y/tables.md)" in text
    assert "(../bench/results/x/tables.md)" in text
    assert "load 0.0 before and 1.0 after" in text
    assert replaced(PAGE.read_text(), text).count(text) == 1


@pytest.mark.parametrize(("most_s", "rounds"), [(-1.0, 1), (3600.0, 3)])
def test_no_further_round_is_begun_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, most_s: float, rounds: int
) -> None:
    family = next(family for family in FAMILIES if family.rounds == 3)

    def measure(of: Family, _programs: Programs, _effort: str) -> list[Row]:
        case = {"blocks": 1}
        return [{"family": of.name, "what": "chiasm", "case": case, "metric": "m", "value": 2.0}]

    monkeypatch.setattr(bench.run, "measure", measure)
    monkeypatch.setattr(bench.run, "MOST_S", most_s)
    kept: list[list[Row]] = []
    bench.run.run([family.name], Programs(Path("chiasm")), "full", 3, kept.append)
    assert [row["values"] for row in kept[-1]] == [[2.0] * rounds]


def fleet(what: str, plane: str, metric: str, median: float) -> dict[str, Any]:
    case = {"plane": plane, "killed": 0}
    return {"family": "fleet", "what": what, "case": case, "metric": metric, "median": median}


def test_what_arrived_of_a_fleet_stands_beside_upstreams_over_nixl() -> None:
    rows = [fleet("chiasm", "shm", "asked", 6000), fleet("chiasm", "shm", "ready", 5999)]
    rows += [fleet("chiasm", "nixl", "asked", 6000), fleet("chiasm", "nixl", "ready", 6000)]
    rows += [fleet("upstream", "nixl", "asked", 6000), fleet("upstream", "nixl", "ready", 3000)]
    found = {target.what: target for target in targets(rows) if target.value is not None}
    shm, nixl = (found[f"fleet over {plane}, share that arrived"] for plane in ("shm", "nixl"))
    assert (shm.word, nixl.word) == ("**missed**", "met")
    assert (shm.upstream, nixl.upstream) == (0.5, 0.5)
    assert len(found) == 2
