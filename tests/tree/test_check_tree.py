"""`scripts/check-tree` finds what it is there for, and nothing in a tree that is clean."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-tree"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def findings(tree: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    """Exit code and lines of the check over these files, all of them known to git."""
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "add", "--force", "."], cwd=tree, check=True)
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), str(tree)], capture_output=True, text=True, check=False
    )
    return ended.returncode, ended.stderr.splitlines()


def test_a_clean_tree_passes(tree: Path) -> None:
    files = {"a.rs": "fn a() {}\n" * 600, "b.md": "todo!\n" * 601, "scripts/c": "echo\n"}
    assert findings(tree, files) == (0, [])


@pytest.mark.parametrize("name", ["a.rs", "tests/a.py", "scripts/a"])
def test_a_source_file_of_601_lines_is_too_long(tree: Path, name: str) -> None:
    code, lines = findings(tree, {name: "\n" * 601})
    assert code == 1
    assert lines == [f"{name}: 601 lines, at most 600: split it by noun"]


@pytest.mark.parametrize("macro", ["todo", "unimplemented", "dbg"])
def test_a_placeholder_is_found_with_its_line(tree: Path, macro: str) -> None:
    code, lines = findings(tree, {"a.rs": f"fn a() {{\n    {macro}!()\n}}\n"})
    assert code == 1
    assert lines == [f"a.rs:2: {macro}! is not finished code"]


@pytest.mark.parametrize(
    "name", ["target/debug/a", "x/__pycache__/a", "a.pyc", "a.rs.orig", ".venv/bin/python", "a.rs~"]
)
def test_what_tools_make_does_not_belong_into_git(tree: Path, name: str) -> None:
    code, lines = findings(tree, {name: "x"})
    assert code == 1
    assert lines == [f"{name}: is made by a tool and does not belong into git"]


def test_a_file_of_more_than_a_mebibyte_is_too_large(tree: Path) -> None:
    code, lines = findings(tree, {"testdata/a.bin": "x" * ((1 << 20) + 1)})
    assert code == 1
    assert lines == ["testdata/a.bin: 1048577 bytes, at most 1048576"]


def test_conflict_markers_are_found(tree: Path) -> None:
    marker = "<" * 7 + " ours\n"
    code, lines = findings(tree, {"a.md": f"one\n{marker}two\n"})
    assert code == 1
    assert lines == ["a.md: has conflict markers"]
