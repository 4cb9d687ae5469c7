"""A skipped test passes on a developer's machine and fails in CI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"

SKIPS = {
    "one test": "import pytest\ndef test_it(): pytest.skip('no device')\n",
    "by a mark": "import pytest\n@pytest.mark.skip\ndef test_it(): pass\n",
    "a whole file": "import pytest\npytest.importorskip('no_such_module_')\ndef test_it(): pass\n",
}


def run(directory: Path, source: str, ci: str) -> str:
    """What pytest says at its end about this test file."""
    shutil.copy(CONFTEST, directory)
    (directory / "test_it.py").write_text(source)
    environment = {**os.environ, "CI": ci}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "no:cacheprovider", "."],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout.splitlines()[-1]


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS.keys())
def test_a_skip_is_a_failure_in_ci(tmp_path: Path, source: str) -> None:
    last = run(tmp_path, source, ci="true")
    assert "skipped" not in last
    assert "1 failed" in last or "1 error" in last


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS.keys())
def test_a_skip_is_a_skip_elsewhere(tmp_path: Path, source: str) -> None:
    assert "1 skipped" in run(tmp_path, source, ci="")


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    source = "import pytest\n@pytest.mark.xfail\ndef test_it(): assert False\n"
    assert "1 xfailed" in run(tmp_path, source, ci="true")
