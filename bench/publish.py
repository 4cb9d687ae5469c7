"""Puts a run's targets into docs/benchmarks.md, with where the rest of it is.

    .venv/bin/python -m bench.publish bench/results/DATE-COMMIT

What stands between the two marks of the page is replaced; the rest of it is written by hand.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from bench.tables import about, target_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN = "<!-- written by bench.publish from here -->"
END = "<!-- to here -->"


def section(folder: str, machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """The last full run, as the page has it."""
    lines = [
        f"All tables: [{folder}]({folder}/tables.md); rows: [results.json]({folder}/results.json).",
        about(machine),
        "",
        *target_table(rows),
    ]
    return "\n".join(lines)


def replaced(page: str, text: str) -> str:
    """The page with this between its marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN!r} or no {END!r} after it")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, help="the folder of a run, below the project's")
    results = parser.parse_args().results.resolve()
    run = json.loads((results / "results.json").read_text())
    folder = f"../{results.relative_to(ROOT)}"
    PAGE.write_text(replaced(PAGE.read_text(), section(folder, run["machine"], run["rows"])))


if __name__ == "__main__":
    main()
