"""Two worker processes of one instance: one saves, both load, each reports for itself."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.vllm.engine import (
    LONG_S,
    OneStepScheduler,
    encoded,
    image,
    request,
    until,
    vllm_config,
)

# Another process finds modules where this one does.
START = f"import sys; sys.path[:] = {sys.path!r}; from tests.vllm.rank import main; main()"


class Rank:
    def __init__(self, rank: int, said: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(rank), pickle.dumps(said).hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> Any:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                return pickle.loads(bytes.fromhex(line))
            except ValueError:
                continue  # A line of vLLM's own.
        raise AssertionError("the rank has ended")

    def step(self, metadata: Any, encode: Any = (), *, load: bool = True) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(pickle.dumps((metadata, list(encode), load)).hex() + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        """Its standard input ends, and so does it."""
        self.process.communicate(timeout=LONG_S)


@pytest.fixture
def two(engine_id: Callable[[], str]) -> Iterator[tuple[OneStepScheduler, list[Rank]]]:
    said: dict[str, Any] = {"role": "ec_both", "engine_id": engine_id(), "tensor_parallel": 2}
    ranks = [Rank(index, said) for index in range(2)]
    for rank in ranks:
        assert rank.answer() == "ready"
    scheduler = OneStepScheduler(vllm_config(**said), 1000)
    yield scheduler, ranks
    for rank in ranks:
        rank.end()
    scheduler.ec_connector.shutdown()


def test_one_rank_saves_and_both_load_and_each_releases(
    two: tuple[OneStepScheduler, list[Rank]],
) -> None:
    scheduler, ranks = two
    node = scheduler.ec_connector.scheduler_side._node
    scheduler.waiting_now.append(request("a", [image("cat")]))
    output, _ = scheduler.schedule_step()
    metadata = output.ec_connector_metadata
    ranks[1].step(metadata, [("cat", 4)])
    assert node.outstanding == 1, "rank 1 saves nothing"
    ranks[0].step(metadata, [("cat", 4)])
    until(lambda: node.outstanding == 0, "rank 0 has saved", node)

    scheduler.encoder_cache_manager.reset()
    scheduler.ec_connector.request_finished(request("a", [image("cat")]))
    scheduler.waiting_now.append(request("b", [image("cat")]))
    output, _ = scheduler.schedule_step()
    metadata = output.ec_connector_metadata
    assert list(metadata.loads) == ["cat"]
    right = encoded("cat", 4).float().sum().item()
    assert ranks[0].step(metadata) == {"cat": right}
    # Its report is in; the other rank still needs the bytes.
    assert node.outstanding == 1
    assert ranks[1].step(metadata) == {"cat": right}
    until(lambda: node.outstanding == 0, "both have loaded", node)


def test_a_second_process_of_a_rank_is_refused(
    two: tuple[OneStepScheduler, list[Rank]],
) -> None:
    scheduler, _ = two
    said = {
        "role": "ec_both",
        "engine_id": scheduler.vllm_config.ec_transfer_config.engine_id,
        "tensor_parallel": 2,
    }
    second = Rank(0, said)
    second.end()
    assert second.process.returncode == 1
