"""Tests of the helper processes against real NIXL on both sides; `make test-nixl` runs them.

They need the environment of `make vllm` and the driver of a helper process, whose path is in
CHIASM_NIXL_DRIVE. Without it they are not collected.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.nixl.processes import Helper, Lines, Peer, Start

if "CHIASM_NIXL_DRIVE" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def processes() -> Iterator[list[Lines]]:
    """What is running, and is ended."""
    running: list[Lines] = []
    yield running
    for process in reversed(running):
        process.close()


@pytest.fixture
def peer(processes: list[Lines]) -> Start:
    def start(*arguments: Any, **settings: Any) -> Peer:
        processes.append(peer := Peer(*arguments, **settings))
        return peer

    return start


@pytest.fixture
def helper(processes: list[Lines], tmp_path: Path) -> Start:
    def start(role: str, blocks: int, **settings: Any) -> Helper:
        processes.append(helper := Helper(role, tmp_path, blocks, **settings))
        return helper

    return start
