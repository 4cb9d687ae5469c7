"""Engines that several scenarios share: starting one costs a quarter of a minute of a core."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.cli.fixtures import chiasm
from tests.e2e import fleet as fleets
from tests.e2e.engines import RUNNING, Server
from tests.e2e.fleet import Fleet
from tests.e2e.listener import Listener

__all__ = ["chiasm"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what the engines have said last."""
    report = yield
    if report.failed:
        for engine in RUNNING:
            report.sections.append((f"log of {engine.name}", engine.said()[-6000:]))
    return report


@pytest.fixture(scope="session")
def engine_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="session")
def _fleet(engine_logs: Path) -> Iterator[Fleet]:
    fleet = fleets.start(engine_logs)
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def fleet(_fleet: Fleet) -> Iterator[Fleet]:
    """The fleet. Whatever a test does to it, all of its engines serve afterwards."""
    yield _fleet
    assert _fleet.alive, "an engine has ended"


@pytest.fixture
def consumer(fleet: Fleet) -> Server:
    return fleet.consumer


@pytest.fixture
def listener() -> Iterator[Listener]:
    """A socket outside the allowlist."""
    listener = Listener()
    try:
        yield listener
    finally:
        listener.close()
