"""Which worker is which rank, and which has no part in it."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from vllm.distributed import parallel_state
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

from chiasm._native import StartError
from chiasm.vllm import ChiasmConnector, instance
from chiasm.vllm.instance import own_rank, ranks_of
from chiasm.vllm.metadata import ChiasmMetadata
from tests.vllm.engine import vllm_config


def place(monkeypatch: pytest.MonkeyPatch, *, stage: int, context: int, tensor: int) -> None:
    """This process, among 2 pipeline stages x 2 prefill context x 4 tensor parallel ranks."""
    group = SimpleNamespace(is_first_rank=stage == 0)
    monkeypatch.setattr(parallel_state, "get_pp_group", lambda: group)
    context_group = SimpleNamespace(rank_in_group=context)
    monkeypatch.setattr(parallel_state, "get_pcp_group", lambda: context_group)
    monkeypatch.setattr(parallel_state, "get_tensor_model_parallel_rank", lambda: tensor)
    monkeypatch.setattr(parallel_state, "get_tensor_model_parallel_world_size", lambda: 4)


def test_every_rank_of_the_first_stage_has_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vllm_config("ec_both", "ranks", tensor_parallel=4)
    config.parallel_config.prefill_context_parallel_size = 2
    numbers = []
    for context in range(2):
        for tensor in range(4):
            place(monkeypatch, stage=0, context=context, tensor=tensor)
            numbers.append(own_rank())
    assert numbers == list(range(ranks_of(config)))


def test_a_later_stage_has_no_rank_and_its_connector_does_nothing(
    monkeypatch: pytest.MonkeyPatch, engine_id: Callable[[], str]
) -> None:
    place(monkeypatch, stage=1, context=0, tensor=0)
    assert own_rank() is None
    monkeypatch.setattr(instance, "own_rank", own_rank)
    worker = ChiasmConnector(vllm_config("ec_both", engine_id()), ECConnectorRole.WORKER)
    worker.bind_connector_metadata(ChiasmMetadata(saves={"cat": b""}, loads={"cat": b""}))
    cache: dict[str, object] = {}
    worker.start_save_caches(encoder_cache=cache)
    worker.start_load_caches(cache)
    assert worker.get_finished(set()) == (None, None)
    worker.shutdown()
    assert cache == {}


def test_a_rank_that_is_not_on_this_host_is_told_at_the_start(
    engine_id: Callable[[], str],
) -> None:
    config = vllm_config("ec_both", engine_id(), tensor_parallel=2)
    worker = ChiasmConnector(config, ECConnectorRole.WORKER)
    with pytest.raises(StartError, match="no worker of rank 1"):
        ChiasmConnector(config, ECConnectorRole.SCHEDULER)
    worker.shutdown()
