"""These tests run inside an environment with vLLM, against its own classes; `make test-vllm`."""

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver

from chiasm.vllm import guard, instance
from tests.vllm.engine import Engine, vllm_config

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No distributed groups, no model to ask for its fields, a host that is this one."""
    monkeypatch.setattr(instance, "own_rank", lambda: 0)
    sizes = {"image": {"image_grid_thw"}, "audio": {"audio_num_tokens"}}
    monkeypatch.setattr(
        PlaceholderMetadataResolver, "fields_for", lambda self, modality: sizes.get(modality, set())
    )
    monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_HOST", "127.0.0.1")
    monkeypatch.delenv("VLLM_EC_SIDE_CHANNEL_PORT", raising=False)
    monkeypatch.setattr(guard, "_said", set())


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """What the plug-in logs."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Keep()
    logger = logging.getLogger("vllm.chiasm")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture
def engine_id() -> Callable[[], str]:
    """Names of regions that no other test run has."""
    return lambda: f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def start(engine_id: Callable[[], str]) -> Iterator[Callable[..., Engine]]:
    """Starts engines and ends them."""
    engines: list[Engine] = []

    def start(
        role: str, *, runner: str = "v1", cache_embeddings: int = 1000, **extra: Any
    ) -> Engine:
        config = vllm_config(role, extra.pop("engine_id", None) or engine_id(), **extra)
        engines.append(Engine(config, runner=runner, cache_embeddings=cache_embeddings))
        return engines[-1]

    yield start
    for engine in engines:
        engine.shutdown()


@pytest.fixture
def pair(start: Callable[..., Engine]) -> Callable[..., tuple[Engine, Engine]]:
    """A producer and a consumer that has approved it, with their own sockets."""

    def pair(runner: str = "v1", **of_consumer: Any) -> tuple[Engine, Engine]:
        producer = start("ec_producer", runner=runner, ec_remote=True)
        consumer = start(
            "ec_consumer",
            runner=runner,
            ec_remote=True,
            ec_allowed_peers=[producer.node.endpoint],
            **of_consumer,
        )
        return producer, consumer

    return pair
