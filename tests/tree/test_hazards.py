"""The page on hazards leaves none out, and each has a test that bears its name."""

import re

import pytest

from tests.tree.pages import ROOT, is_a_test, named_in, path_of

PAGE = ROOT / "docs" / "hazards.md"

# How many hazards each letter has. One may be answered anew, never dropped.
LETTERS = {"A": 10, "B": 10, "C": 19, "D": 9, "E": 6}

# What an approved peer can always do, and what the death of a helper does to upstream's engines.
CONTAINED = {"A6", "A7", "A10", "B3", "D7"}


def rows_of(page: str) -> dict[str, str]:
    """Every hazard with its text on one line."""
    found: dict[str, str] = {}
    for hazard, text in re.findall(
        r"^- \*\*([A-Z]\d+)\*\* (.*?)(?=^- |^#|\Z)", page, re.MULTILINE | re.DOTALL
    ):
        assert hazard not in found, f"{hazard} stands there twice"
        found[hazard] = " ".join(text.split())
    return found


def bears_the_name(function: str, hazard: str) -> bool:
    """`hazard_b1_b2_...` bears the names of both."""
    named = re.match(r"(?:test_)?hazard((?:_[a-z]\d+)+)_", function)
    return named is not None and f"_{hazard.lower()}_" in f"{named.group(1)}_"


@pytest.fixture(scope="module")
def rows() -> dict[str, str]:
    return rows_of(PAGE.read_text())


def test_every_hazard_has_a_row(rows: dict[str, str]) -> None:
    expected = [f"{letter}{n}" for letter, last in LETTERS.items() for n in range(1, last + 1)]
    assert list(rows) == expected


def test_every_row_says_what_is_done(rows: dict[str, str]) -> None:
    silent = [it for it, text in rows.items() if not re.search(r"\*\*(Chiasm:|Contained)", text)]
    assert silent == []
    assert {it for it, text in rows.items() if "**Contained" in text} == CONTAINED


def test_every_hazard_has_a_test_of_its_name(rows: dict[str, str]) -> None:
    without = [
        hazard
        for hazard, text in rows.items()
        if not any(bears_the_name(test.split("::")[1], hazard) for test in named_in(text))
    ]
    assert without == []


def test_every_test_that_is_named_exists(rows: dict[str, str]) -> None:
    named = [test for text in rows.values() for test in named_in(text)]
    assert len(named) > 60, "the page's form has changed and nothing is found any more"
    assert sorted({name for name in named if not is_a_test(*name.split("::", 1))}) == []


def test_every_test_of_a_hazard_is_named(rows: dict[str, str]) -> None:
    """Whoever adds one adds it to the page."""
    named = {(path_of(file), function) for text in rows.values() for file, function in split(text)}
    there = {
        (path, function)
        for pattern in ("crates/*/tests/**/*.rs", "crates/*/src/**/*.rs", "tests/**/*.py")
        for path in ROOT.glob(pattern)
        for function in re.findall(
            r"^ *(?:fn|def) ((?:test_)?hazard_[a-z]\d\w*)\(", path.read_text(), re.MULTILINE
        )
    }
    assert len(there) > 50
    missing = there - named
    assert sorted(f"{path.relative_to(ROOT)}::{function}" for path, function in missing) == []


def split(text: str) -> list[tuple[str, str]]:
    return [(file, function) for file, _, function in (it.partition("::") for it in named_in(text))]


def test_names_are_told_apart() -> None:
    assert bears_the_name("hazard_a1_something", "A1")
    assert bears_the_name("hazard_b1_b2_something", "B2")
    assert bears_the_name("test_hazard_c10_something", "C10")
    assert not bears_the_name("hazard_a10_something", "A1")
    assert not bears_the_name("the_hazard_a1_something", "A1")
    assert not bears_the_name("hazard_a1", "A1")


def test_a_row_that_is_left_out_or_repeated_is_seen() -> None:
    page = "- **A1** One.\n  **Chiasm:** no.\n- **A3** Three.\n\n## B\n\n- **B1** One.\n"
    assert rows_of(page) == {"A1": "One. **Chiasm:** no.", "A3": "Three.", "B1": "One."}
    with pytest.raises(AssertionError, match="A1 stands there twice"):
        rows_of(page + "- **A1** Again.\n")
