"""The page on conformance leaves no line of upstream's contract out and names tests that exist."""

import re

import pytest

from tests.tree.pages import ROOT, is_a_test, named_in

PAGE = ROOT / "docs" / "conformance.md"

# Lines of upstream's contract by section. A line may be answered anew, never dropped.
LINES = dict(enumerate([5, 25, 12, 10, 13, 11, 10, 21, 14, 10, 4, 4, 5, 10, 1, 15, 3, 3, 2, 2]))

ANSWERS = ("**Same.**", "**Same**", "**Same:**", "**Different.**", "**Not yet:**")


def lines_of(page: str) -> dict[tuple[int, int], str]:
    """Every numbered line with its text on one line."""
    found: dict[tuple[int, int], str] = {}
    for section, number, text in re.findall(
        r"^- \*\*(\d+)\.(\d+)\*\* (.*?)(?=^- |^#|\Z)", page, re.MULTILINE | re.DOTALL
    ):
        key = int(section), int(number)
        assert key not in found, f"{section}.{number} stands there twice"
        found[key] = " ".join(text.split())
    return found


@pytest.fixture(scope="module")
def lines() -> dict[tuple[int, int], str]:
    return lines_of(PAGE.read_text())


def test_no_number_is_missing(lines: dict[tuple[int, int], str]) -> None:
    expected = [(section, n) for section, last in LINES.items() for n in range(1, last + 1)]
    assert list(lines) == expected


def test_every_line_has_an_answer(lines: dict[tuple[int, int], str]) -> None:
    without = [key for key, text in lines.items() if not any(it in text for it in ANSWERS)]
    assert without == []


def test_what_is_the_same_is_tested(lines: dict[tuple[int, int], str]) -> None:
    """A line that says only "the same" needs a test or says why there can be none."""
    untested = [
        key
        for key, text in lines.items()
        if "**Same" in text and not named_in(text) and "No test:" not in text
    ]
    assert untested == []


def test_every_test_that_is_named_exists(lines: dict[tuple[int, int], str]) -> None:
    named = named_in(PAGE.read_text())
    assert len(named) > 200, "the page's form has changed and nothing is found any more"
    missing = sorted({name for name in named if not is_a_test(*name.split("::", 1))})
    assert missing == []


def test_what_is_no_test_is_not_taken_for_one() -> None:
    assert is_a_test("tests/tree/test_conformance.py", "test_no_number_is_missing")
    assert not is_a_test("tests/tree/test_conformance.py", "test_no_number")
    assert not is_a_test("tests/tree/no_such_file.py", "test_no_number_is_missing")
    assert is_a_test("core/conformance_constants.rs", "times_are_upstreams")
    assert not is_a_test("core/conformance_pair.rs", "instance_for_test")


def test_a_number_that_is_left_out_or_repeated_is_seen() -> None:
    page = "- **1.1** One.\n  **Same.**\n- **1.3** Three.\n\n## 2 Next\n\n- **2.1** One.\n"
    assert lines_of(page) == {(1, 1): "One. **Same.**", (1, 3): "Three.", (2, 1): "One."}
    with pytest.raises(AssertionError, match=r"1\.1 stands there twice"):
        lines_of(page + "- **1.1** Again.\n")
