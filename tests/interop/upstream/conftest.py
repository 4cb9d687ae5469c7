"""Chiasm and upstream's unmodified classes, over sockets and NIXL; `make test-interop` runs them.

They need the environment of `make vllm`. Unless CHIASM_INTEROP is set they are not collected.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fixtures import chiasm
from tests.interop.nixl.processes import environment
from tests.interop.upstream.instances import Consumer, Engine, Nursery, Producer, Start

__all__ = ["chiasm"]

if "CHIASM_INTEROP" not in os.environ:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def nixl_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds NIXL where the active Python environment has it."""
    monkeypatch.setenv("VIRTUAL_ENV", str(environment()))
    monkeypatch.delenv("UCX_TLS", raising=False)


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """One import of vLLM for all tests."""
    nursery = Nursery(tmp_path_factory.mktemp("upstream"))
    yield nursery
    nursery.close()


@pytest.fixture
def upstream_producer(nursery: Nursery) -> Iterator[Start]:
    """Starts upstream producers, and ends them."""
    started: list[Producer] = []

    def start(*arguments: Any, **settings: Any) -> Producer:
        started.append(producer := Producer(nursery, *arguments, **settings))
        return producer

    yield start
    for producer in started:
        producer.close()


@pytest.fixture
def upstream_consumer(nursery: Nursery) -> Iterator[Start]:
    """Starts upstream consumers, and ends them."""
    started: list[Consumer] = []

    def start(*arguments: Any, **settings: Any) -> Consumer:
        started.append(consumer := Consumer(nursery, *arguments, **settings))
        return consumer

    yield start
    for consumer in started:
        consumer.close()


@pytest.fixture
def upstream_engine(nursery: Nursery) -> Iterator[Start]:
    """Starts upstream's scheduler sides, and ends them."""
    started: list[Engine] = []

    def start(*arguments: Any, **settings: Any) -> Engine:
        started.append(engine := Engine(nursery, *arguments, **settings))
        return engine

    yield start
    for engine in started:
        engine.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"
