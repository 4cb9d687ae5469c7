"""The class that vLLM loads: routes each hook to the scheduler's or the worker's side.

No hook raises (`guard`); construction does, with what the operator has to change.
"""

import atexit
from typing import TYPE_CHECKING, Any

import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole

from chiasm.vllm import instance, metrics
from chiasm.vllm.guard import guarded, log_fault
from chiasm.vllm.metadata import ChiasmMetadata
from chiasm.vllm.scheduler import SchedulerSide
from chiasm.vllm.worker import WorkerSide

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorMetadata
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request


class ChiasmConnector(ECConnectorBase):
    """Moves encoder outputs between vLLM instances, and between an engine and its host's memory."""

    scheduler_side: SchedulerSide | None = None
    worker_side: WorkerSide | None = None

    def __init__(self, vllm_config: "VllmConfig", role: ECConnectorRole) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        if role == ECConnectorRole.SCHEDULER:
            self.scheduler_side = SchedulerSide(vllm_config)
        elif (rank := instance.own_rank()) is not None:
            self.worker_side = WorkerSide(vllm_config, rank)
        # vLLM does not shut every process's connector down by itself.
        atexit.register(self.shutdown)

    # Worker.

    @guarded(lambda self, connector_metadata: None)
    def bind_connector_metadata(self, connector_metadata: "ECConnectorMetadata") -> None:
        """A step begins."""
        super().bind_connector_metadata(connector_metadata)
        if self.worker_side is not None and isinstance(connector_metadata, ChiasmMetadata):
            self.worker_side.begin_step(connector_metadata)

    @guarded(lambda self, **kwargs: None)
    def start_save_caches(self, **kwargs: Any) -> None:
        """Producers, before the encoder runs."""
        encoder_cache = kwargs.get("encoder_cache")
        if self.worker_side is not None and encoder_cache is not None:
            self.worker_side.save_what_is_held(encoder_cache)

    @guarded(lambda self, encoder_cache, **kwargs: None)
    def start_load_caches(self, encoder_cache: dict[str, torch.Tensor], **kwargs: Any) -> None:
        """Consumers, before the embeddings are gathered."""
        metadata = self._connector_metadata
        if self.worker_side is not None and isinstance(metadata, ChiasmMetadata):
            self.worker_side.load(metadata, encoder_cache)

    @guarded(lambda self, encoder_cache, mm_hash, **kwargs: None)
    def save_caches(
        self, encoder_cache: dict[str, torch.Tensor], mm_hash: str, **kwargs: Any
    ) -> None:
        """After each encoder output (model runner V1) or all of a step (V2)."""
        if self.worker_side is not None:
            self.worker_side.save(encoder_cache, mm_hash)

    @guarded(lambda self, finished_req_ids: (None, None))
    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """The end of a step. No request is ever held back for a transfer."""
        if self.worker_side is not None:
            self.worker_side.end_step()
        return None, None

    # Scheduler.

    def ensure_cache_available(self, request: "Request", num_computed_tokens: int) -> bool:
        """Whether the request may run in this step."""
        # Guarded by hand: this is called for every waiting request in every step.
        side = self.scheduler_side
        if side is None:
            return True
        try:
            return side.ensure_cache_available(request, num_computed_tokens)
        except Exception:
            log_fault("ChiasmConnector.ensure_cache_available")
            return side.degraded(request)

    @guarded(lambda self: self.scheduler_side.own_failures() if self.scheduler_side else set())
    def take_unavailable_requests(self) -> set[str]:
        """Requests that fail."""
        return self._scheduler.take_unavailable_requests()

    @guarded(lambda self, identifier: False)
    def has_cache_item(self, identifier: str) -> bool:
        """Whether the engine can load this."""
        return self._scheduler.has_cache_item(identifier)

    @guarded(lambda self, request, index: None)
    def update_state_after_alloc(self, request: "Request", index: int) -> None:
        """The engine has room for an item: orders its load or its save."""
        self._scheduler.update_state_after_alloc(request, index)

    @guarded(lambda self, scheduler_output: ChiasmMetadata())
    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> ChiasmMetadata:
        """This step's orders."""
        return self._scheduler.build_connector_meta(scheduler_output)

    @guarded(lambda self, request: (False, None))
    def request_finished(self, request: "Request") -> tuple[bool, dict[str, Any] | None]:
        """What a producer announces."""
        return self._scheduler.request_finished(request)

    @guarded(lambda self: False)
    def has_pending_push_work(self) -> bool:
        """Whether workers have orders."""
        return self._scheduler.has_pending_push_work()

    @property
    def _scheduler(self) -> SchedulerSide:
        assert self.scheduler_side is not None, "a scheduler's hook of a worker's connector"
        return self.scheduler_side

    # Metrics.

    @guarded(lambda self: None)
    def get_ec_connector_stats(self) -> metrics.ChiasmStats | None:
        """What has changed since the last step; the workers have nothing to add."""
        return self.scheduler_side.stats() if self.scheduler_side is not None else None

    @classmethod
    def build_ec_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> metrics.ChiasmStats | None:
        """In the API server: the stats that `get_ec_connector_stats` has sent."""
        return metrics.ChiasmStats(data=dict(data or {}))

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: "VllmConfig",
        metric_types: dict[type, type],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> metrics.ChiasmPromMetrics | None:
        """In the API server, at its start."""
        return metrics.ChiasmPromMetrics(
            vllm_config, metric_types, labelnames, per_engine_labelvalues
        )

    # Both.

    @guarded(lambda self: None)
    def shutdown(self) -> None:
        """Lets go of everything. Safe twice, and on what was only half constructed."""
        if self.scheduler_side is not None:
            self.scheduler_side.shutdown()
        if self.worker_side is not None:
            self.worker_side.shutdown()
        atexit.unregister(self.shutdown)
