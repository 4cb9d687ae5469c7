"""Puts a run's targets into docs/benchmarks.md, with where the rest of it is.

    .venv/bin/python -m bench.publish bench/results/DATE-COMMIT [ANOTHER]

Several runs of some families each are one table; what two of them have is taken from the first.
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


def section(runs: dict[str, dict[str, Any]]) -> str:
    """The last run, or runs, by folder, as the page has it."""
    lines = []
    for folder, run in runs.items():
        families = ", ".join(dict.fromkeys(row["family"] for row in run["rows"]))
        lines += [
            f"All tables of {families}: [tables.md]({folder}/tables.md); their rows:"
            f" [results.json]({folder}/results.json). {about(run['machine'])}",
            "",
        ]
    rows = [row for run in runs.values() for row in run["rows"]]
    return "\n".join([*lines, *target_table(rows)])


def replaced(page: str, text: str) -> str:
    """The page with this between its marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN!r} or no {END!r} after it")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="the folder of a run, in the project")
    runs = {
        f"../{folder.resolve().relative_to(ROOT)}": json.loads(
            (folder / "results.json").read_text()
        )
        for folder in parser.parse_args().results
    }
    PAGE.write_text(replaced(PAGE.read_text(), section(runs)))


if __name__ == "__main__":
    main()
