"""Every WARN and ERROR line of the source stands in the manual."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "operations.md"
# Longer than any two lines have in common at their start.
COMPARED = 24


def literals(text: str, start: int) -> list[str]:
    """The string literals of the macro call whose arguments begin here."""
    found, depth, at = [], 1, start
    while depth:
        match text[at]:
            case '"':
                string = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(text, at)
                assert string is not None
                found.append(re.sub(r"\\\n\s*", "", string.group(1)))
                at = string.end()
                continue
            case "(" | "[" | "{":
                depth += 1
            case ")" | "]" | "}":
                depth -= 1
        at += 1
    return found


def lines() -> Iterator[tuple[str, str]]:
    """Level and text of every such line; what is put in when it is written is cut off."""
    for path in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        text = path.read_text()
        for call in re.finditer(r"tracing::(warn|error)!\(", text):
            message = literals(text, call.end())[-1].split("{")[0]
            yield call.group(1).upper(), message[:COMPARED].rstrip(" :")


def test_each_is_in_the_table_with_its_level() -> None:
    rows = re.findall(r"^\| (WARN|ERROR) \| ([^|]+) \|", MANUAL.read_text(), re.MULTILINE)
    # A refusal is a sentence about its endpoint from the first word on.
    wanted = {line for line in lines() if line[1]}
    assert len(wanted) > 15, "they are found"
    for level, start in sorted(wanted):
        assert any(at == level and is_row(text, start) for at, text in rows), (level, start)


def is_row(row: str, start: str) -> bool:
    """Whether a line that starts so is the one of the row, which may leave out its end."""
    kept, dots, _ = row.partition("...")
    return kept.startswith(start) or (bool(dots) and start.startswith(kept.rstrip(" :")))
