"""Simulated fleets from outside: seeds, a replay of one, and trying settings."""

import re

import pytest

from tests.cli.chiasm import ROOT, Chiasm


def test_seeds_are_run_and_summed_up(chiasm: Chiasm) -> None:
    report = chiasm.run("sim", "run", "--seeds", "6", "--json").json
    assert report["broken"] == []
    assert report["first_broken"] is None
    assert report["requests"] > 100
    assert report["tally"]["decision ready"] > 10
    text = chiasm.run("sim", "run", "--seeds", "3", "--tally").out
    assert "decision ready" in text
    assert "3 seeds, 0 broken" in text


def test_a_seed_is_the_same_run_every_time(chiasm: Chiasm) -> None:
    once, again = (chiasm.run("sim", "replay", "5", "--json").json for _ in range(2))
    assert once == again
    assert once["violation"] is None
    lines = chiasm.run("sim", "replay", "5").out.splitlines()
    assert len(lines) > 200
    assert once["hash"] in lines[-1]
    without = ("--without", "message-lost,node-killed")
    shorter = chiasm.run("sim", "replay", "5", "--keep", "none", *without, "--json").json
    assert shorter["events"] < once["events"]


def explained(heading: str) -> set[str]:
    """The names that a table of docs/simulation.md explains, up to what stands for many words."""
    page = (ROOT / "docs" / "simulation.md").read_text()
    section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    names = re.findall(r"`([^`]+)`", " ".join(rows))
    return {re.sub(r"[A-Z_]{3,}$", "", name) for name in names}


def test_every_line_of_a_replay_and_every_name_of_the_tally_is_explained(chiasm: Chiasm) -> None:
    lines = explained("The lines of a replay")
    for seed in ("5", "7", "11"):
        for line in chiasm.run("sim", "replay", seed).out.splitlines()[:-1]:
            said = line[15:]
            if said.startswith("  node "):
                continue
            name = re.sub(r"( \d+)+$", "", said)
            assert name in lines or (name.startswith("fault ") and "fault " in lines), line
    names = explained("The names of the tally")
    many = {name for name in names if name.endswith(" ")}
    for name in chiasm.run("sim", "run", "--seeds", "12", "--json").json["tally"]:
        assert name in names or any(name.startswith(start) for start in many), name


def test_what_is_no_seed_or_fault_is_the_input_s_fault(chiasm: Chiasm) -> None:
    for wrong in (["--keep", "9-7"], ["--without", "nonsense"]):
        assert wrong[1] in chiasm.run("sim", "replay", "5", *wrong).one_error()


def test_settings_can_be_tried(chiasm: Chiasm) -> None:
    small = ("--rate", "5", "--duration", "10", "--items", "20")
    report = chiasm.run("sim", "fleet", *small, "--json").json
    assert report["requests"]["arrived"] == 50
    assert report["requests"]["ready"] == 50
    assert report["items"]["hit_rate"] == 1.0
    assert report["bytes"]["tcp"] > 0
    text = chiasm.run("sim", "fleet", *small, "--one-host").out
    assert "hit rate" in text


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("encoder-region", "1KiB"),
        ("consumer-region", "0"),
        ("largest", "8GiB"),
        ("smallest", "20MiB"),
        ("throughput", "0"),
        ("lease", "0"),
        ("step", "0"),
    ],
)
def test_a_setting_outside_its_limits_is_named_with_them(
    setting: str, wrong: str, chiasm: Chiasm
) -> None:
    error = chiasm.run("sim", "fleet", f"--{setting}", wrong).one_error()
    assert error.startswith(f"{setting.replace('-', ' ')} is ")
    assert "can be simulated" in error


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("encoders", "0"),
        ("consumers", "100000"),
        ("items-per-request", "5000"),
        ("popularity", "nan"),
        ("rate", "-3"),
        ("rate", "inf"),
    ],
)
def test_a_count_or_rate_outside_its_limits_is_named_with_them(
    setting: str, wrong: str, chiasm: Chiasm
) -> None:
    error = chiasm.run("sim", "fleet", f"--{setting}", wrong).one_error()
    assert f"--{setting}" in error
    assert "allowed is a" in error
