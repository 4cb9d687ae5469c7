"""The stub says what the module is: names, arguments, defaults, classes."""

import subprocess
import sys
from pathlib import Path

import chiasm

ROOT = Path(__file__).resolve().parents[2]


def test_the_stub_is_that_of_the_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "chiasm._native"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_is_typed_and_complete() -> None:
    installed = Path(chiasm.__file__).parent
    for name in ("py.typed", "_native.pyi", "__init__.py"):
        assert (installed / name).read_text() == (ROOT / "python/chiasm" / name).read_text()
