"""An engine without a model: vLLM's own scheduling of encoder inputs, its request and metadata
classes, and an encoder that makes bytes of an identifier.

Only the forward pass is missing. Where a real engine would end in an assertion, `EngineDiedError`
is raised.
"""

import pickle
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import ECTransferConfig
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)
from vllm.sampling_params import SamplingParams
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager
from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

WIDTH = 64
DTYPE = torch.bfloat16
ROW_BYTES = WIDTH * 2


LONG_S = 60.0
"""Far above what anything here needs: it turns a hang into a failure."""


def until(happened: Callable[[], bool], what: str, node: Any) -> None:
    """Returns when it has happened; looks whenever this node has news."""
    end = time.monotonic() + LONG_S
    while True:
        seen = node.news
        if happened():
            return
        assert time.monotonic() < end, f"waited in vain until {what}"
        node.wait(seen, 0.1)


class EngineDiedError(AssertionError):
    """What a real engine does when a needed encoder output is not in its cache."""


def vllm_config(role: Any, engine_id: Any, **extra: Any) -> Any:
    """What a connector sees of vLLM's configuration: the transfer part is vLLM's own class."""
    tensor_parallel = extra.pop("tensor_parallel", 1)
    index = extra.pop("data_parallel_index", 0)
    widths = extra.pop("widths", {"image": WIDTH})
    model = extra.pop("model", "tests/model")
    transfer = ECTransferConfig(
        ec_connector="ChiasmConnector",
        ec_connector_module_path="chiasm.vllm",
        ec_role=role,
        engine_id=engine_id,
        ec_connector_extra_config={"ec_cpu_bytes": 64 * ROW_BYTES, **extra},
    )
    if transfer.is_ec_producer:
        transfer.mm_encoder_output_widths = widths
    return SimpleNamespace(
        ec_transfer_config=transfer,
        use_v2_model_runner=False,
        device_config=SimpleNamespace(device_type="cpu"),
        model_config=SimpleNamespace(
            model=model,
            dtype=DTYPE,
            is_encoder_decoder=False,
            revision=None,
            quantization=None,
            multimodal_config=None,
            get_inputs_embeds_size=lambda: WIDTH,
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=index,
            tensor_parallel_size=tensor_parallel,
            prefill_context_parallel_size=1,
            nnodes_within_dp=1,
            distributed_executor_backend="mp" if tensor_parallel > 1 else "uni",
        ),
    )


def element(data: Any) -> MultiModalFieldElem:
    return MultiModalFieldElem(data=data, field=MultiModalBatchedField())


def pixels(rows: int) -> MultiModalKwargsItem:
    """An item that can be encoded here."""
    return MultiModalKwargsItem(
        {
            "pixel_values": element(torch.zeros(rows, 3)),
            "image_grid_thw": element(torch.tensor([1, rows, 4])),
        }
    )


def sizes_only(rows: int) -> MultiModalKwargsItem:
    """An item of which only the placeholder's size is known."""
    return MultiModalKwargsItem({"image_grid_thw": element(torch.tensor([1, rows, 4]))})


def image(
    identifier: str,
    rows: int = 4,
    *,
    offset: int = 1,
    data: MultiModalKwargsItem | str | None = "pixels",
) -> MultiModalFeatureSpec:
    """One image; `data` is "pixels", "sizes", None or an item of the test's own."""
    made = {"pixels": pixels, "sizes": sizes_only}[data](rows) if isinstance(data, str) else data
    return MultiModalFeatureSpec(
        data=made,
        modality="image",
        identifier=identifier,
        mm_position=PlaceholderRange(offset=offset, length=rows),
        mm_hash="not-" + identifier,
    )


def in_a_row(*features: MultiModalFeatureSpec) -> list[MultiModalFeatureSpec]:
    """The features, one after the other in the prompt."""
    offset = 1
    for feature in features:
        feature.mm_position = PlaceholderRange(offset=offset, length=feature.mm_position.length)
        offset += feature.mm_position.length + 1
    return list(features)


def request(request_id: str, features: list[MultiModalFeatureSpec], params: Any = None) -> Request:
    """A request as the engine core makes it of what came over HTTP."""
    tokens = max(f.mm_position.offset + f.mm_position.length for f in features) + 2
    return Request(
        request_id=request_id,
        prompt_token_ids=list(range(tokens)),
        sampling_params=SamplingParams(
            max_tokens=4, extra_args=None if params is None else {"ec_transfer_params": params}
        ),
        pooling_params=None,
        mm_features=features,
    )


def encoded(identifier: str, rows: int, width: int = WIDTH) -> torch.Tensor:
    """The encoder's output: the same for one identifier, whoever encodes it."""
    seed = sum(identifier.encode()) + 31 * len(identifier)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=generator).to(DTYPE)


class OneStepScheduler(Scheduler):
    """vLLM's scheduler as far as encoder inputs go: whoever fits runs whole, in one step."""

    def __init__(self, config: Any, cache_embeddings: int) -> None:
        self.vllm_config = config
        self.ec_connector = ECConnectorFactory.create_connector(config, ECConnectorRole.SCHEDULER)
        self.encoder_cache_manager = EncoderCacheManager(cache_embeddings)
        self.encoder_cache_mismatch_reqs: set[str] = set()
        self.is_encoder_decoder = False
        self.num_prefill_lookahead = 0
        self.scheduler_config = SimpleNamespace(disable_chunked_mm_input=False)
        self.waiting_now: list[Request] = []

    def schedule_step(self) -> tuple[SchedulerOutput, list[Request]]:
        output = SchedulerOutput.make_empty()
        scheduled = []
        for waiting in list(self.waiting_now):
            if self._ec_transfer_pending(waiting, waiting.num_computed_tokens):
                continue
            new_tokens = waiting.num_tokens - waiting.num_computed_tokens
            encode, fit, _, load, duplicates = self._try_schedule_encoder_inputs(
                waiting, waiting.num_computed_tokens, new_tokens, 1_000_000
            )
            if fit != new_tokens:
                continue
            self._allocate_encoder_inputs(waiting, [*encode, *load], duplicates)
            output.scheduled_new_reqs.append(NewRequestData.from_request(waiting, ([],)))
            output.scheduled_encoder_inputs[waiting.request_id] = encode
            scheduled.append(waiting)
            self.waiting_now.remove(waiting)
        output.free_encoder_mm_hashes = self.encoder_cache_manager.get_freed_mm_hashes()
        output.total_num_scheduled_tokens = sum(r.num_tokens for r in scheduled)
        output.ec_connector_metadata = self.ec_connector.build_connector_meta(output)
        return output, scheduled


class Engine:
    """One engine of one process: a scheduler, one worker, an encoder cache.

    `runner`: the order in which vLLM's model runners call a worker, "v1" or "v2".
    """

    def __init__(
        self, config: Any, *, runner: str = "v1", cache_embeddings: int = 1000, worker: bool = True
    ) -> None:
        self.runner = runner
        self.worker: ECConnectorBase | None = None
        if worker:
            self.worker = ECConnectorFactory.create_connector(config, ECConnectorRole.WORKER)
        try:
            self.scheduler = OneStepScheduler(config, cache_embeddings)
        except BaseException:
            if self.worker is not None:
                self.worker.shutdown()
            raise
        # Kept, for tests that take it away from the connector.
        self._node = self.connector.scheduler_side._node
        self.encoder_cache: dict[str, torch.Tensor] = {}
        self.encoded: list[str] = []
        self.steps = 0
        self.failed: set[str] = set()
        self.finished: dict[str, Any] = {}
        self.embeddings: dict[str, list[torch.Tensor]] = {}
        self.metadata: Any = None

    @property
    def connector(self) -> ECConnectorBase:
        return self.scheduler.ec_connector

    @property
    def node(self) -> Any:
        return self._node

    def add(self, *requests: Request) -> None:
        self.scheduler.waiting_now.extend(requests)

    def step(self) -> list[str]:
        """One engine step; the ids of the requests that ran in it."""
        self.steps += 1
        output, scheduled = self.scheduler.schedule_step()
        self.metadata = output.ec_connector_metadata
        if scheduled or self.runner == "v2":
            self._run_worker(output, scheduled)
        self._update(scheduled)
        return [ran.request_id for ran in scheduled]

    def run(self, *requests: Request) -> dict[str, Any]:
        """Steps until these requests have ended; what they announced."""
        self.add(*requests)
        ids = {each.request_id for each in requests}

        def ended() -> bool:
            self.step()
            return ids <= self.finished.keys() | self.failed

        until(ended, f"{ids} ended", self.node)
        return self.finished

    def settle(self) -> None:
        """Until workers have reported everything that is out."""
        until(lambda: self.node.outstanding == 0, "nothing is out", self.node)

    def _run_worker(self, output: SchedulerOutput, scheduled: list[Request]) -> None:
        worker = self.worker
        if worker is None:
            return
        for gone in output.free_encoder_mm_hashes:
            self.encoder_cache.pop(gone, None)
        # As it comes to another process.
        pickle.dumps(output.scheduled_new_reqs)
        worker.bind_connector_metadata(pickle.loads(pickle.dumps(output.ec_connector_metadata)))
        if worker.is_producer:
            worker.start_save_caches(encoder_cache=self.encoder_cache)
        if worker.is_consumer:
            worker.start_load_caches(self.encoder_cache)
        before = set(self.encoder_cache)
        try:
            for feature in self._to_encode(output, scheduled):
                self._encode(feature)
                if self.runner == "v1":
                    worker.save_caches(encoder_cache=self.encoder_cache, mm_hash=feature.identifier)
            if worker.is_consumer:
                self._gather(scheduled)
            if self.runner == "v2" and worker.is_producer:
                for identifier in self.encoder_cache.keys() - before:
                    worker.save_caches(encoder_cache=self.encoder_cache, mm_hash=identifier)
        finally:
            worker.get_finished(set())
            worker.build_connector_worker_meta()
            worker.clear_connector_metadata()

    def _to_encode(
        self, output: SchedulerOutput, scheduled: list[Request]
    ) -> Iterator[MultiModalFeatureSpec]:
        for ran in scheduled:
            for index in output.scheduled_encoder_inputs[ran.request_id]:
                yield ran.mm_features[index]

    def _encode(self, feature: MultiModalFeatureSpec) -> None:
        if feature.data is None or set(feature.data) == {"image_grid_thw"}:
            return  # Nothing to encode: a real runner passes over it, and dies when it gathers.
        self.encoded.append(feature.identifier)
        rows = feature.mm_position.get_num_embeds()
        self.encoder_cache[feature.identifier] = encoded(feature.identifier, rows)

    def _gather(self, scheduled: list[Request]) -> None:
        for ran in scheduled:
            gathered = []
            for feature in ran.mm_features:
                output = self.encoder_cache.get(feature.identifier)
                if output is None or output.shape[0] != feature.mm_position.get_num_embeds():
                    raise EngineDiedError(f"{ran.request_id}: {feature.identifier}")
                gathered.append(output.clone())
            self.embeddings[ran.request_id] = gathered

    def _update(self, scheduled: list[Request]) -> None:
        connector = self.connector
        ended = {ran.request_id: ran for ran in scheduled}
        failed = connector.take_unavailable_requests()
        assert not failed & self.failed, "a failure was reported twice"
        self.failed |= failed
        for waiting in [r for r in self.scheduler.waiting_now if r.request_id in failed]:
            self.scheduler.waiting_now.remove(waiting)
            connector.request_finished(waiting)
        for request_id, ran in ended.items():
            delay, params = connector.request_finished(ran)
            assert delay is False
            self.finished[request_id] = params
            self.scheduler.encoder_cache_manager.free(ran)

    def shutdown(self) -> None:
        self.connector.shutdown()
        if self.worker is not None:
            self.worker.shutdown()
