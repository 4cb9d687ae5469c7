"""Fixtures of every test that runs the chiasm command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm


@pytest.fixture
def chiasm(tmp_path: Path) -> Iterator[Chiasm]:
    """The command. Whatever a test does with it, nothing is left afterwards."""
    commands = Chiasm(tmp_path)
    try:
        yield commands
    finally:
        commands.close()
