"""The worker's side: vLLM's worker hooks, turned into copies.

Stateless between steps but for the orders of the step that is running. Every order is answered
exactly once: copied, or failed when the step ends without its encoder output. Completions go
through the region to the node, never through vLLM's worker metadata, which some model runners do
not pass on.
"""

from typing import TYPE_CHECKING

import torch

from chiasm._native import Order, Worker
from chiasm.vllm import instance, logs
from chiasm.vllm.copies import Copies, HostCopies
from chiasm.vllm.device_copies import DeviceCopies, TorchDevice
from chiasm.vllm.logs import logger
from chiasm.vllm.metadata import ChiasmMetadata

if TYPE_CHECKING:
    from vllm.config import VllmConfig

SAVING_RANK = 0
"""All ranks hold the same encoder outputs, so one saves: the first of the tensor parallel and of
the prefill context parallel ones."""


class WorkerSide:
    """One per worker process of the first pipeline stage."""

    def __init__(self, vllm_config: "VllmConfig", rank: int, copies: Copies | None = None) -> None:
        instance.check(vllm_config)
        settings = instance.settings_of(vllm_config)
        self._produces = settings.produces
        self._consumes = settings.consumes
        self._saves: dict[str, Order] = {}
        try:
            self._worker = Worker(settings, instance.model_of(vllm_config), rank=rank)
        finally:
            logs.drain()
        dtype = vllm_config.model_config.dtype
        assert isinstance(dtype, torch.dtype)
        self._copies = copies or _copies_for(
            vllm_config.device_config.device_type, self._worker, dtype
        )

    def begin_step(self, metadata: ChiasmMetadata) -> None:
        """Takes this step's orders to save."""
        self._fail_the_rest()
        if self._worker.rank == SAVING_RANK:
            self._saves = {name: Order(order) for name, order in metadata.saves.items()}

    def save_what_is_held(self, encoder_cache: dict[str, torch.Tensor]) -> None:
        """Saves outputs of earlier steps: this one will not encode them, so nothing else is
        called."""
        for identifier in [name for name in self._saves if name in encoder_cache]:
            self.save(encoder_cache, identifier)

    def save(self, encoder_cache: dict[str, torch.Tensor], identifier: str) -> None:
        """Saves one output, if it was ordered. vLLM calls this on consumers too."""
        if not self._produces:
            return
        order = self._saves.pop(identifier, None)
        tensor = encoder_cache.get(identifier)
        if order is None:
            return
        if tensor is None:
            self._worker.complete(order, False)
            return
        try:
            self._copies.save(order, tensor)
        except Exception:
            logger.exception("the encoder output %s was not saved", logs.shown(identifier[:12]))

    def load(self, metadata: ChiasmMetadata, encoder_cache: dict[str, torch.Tensor]) -> None:
        """Puts every output that the scheduler has promised into the engine's encoder cache."""
        if not self._consumes:
            return
        for identifier, data in metadata.loads.items():
            try:
                encoder_cache[identifier] = self._copies.load(Order(data))
            except Exception:
                logger.exception(
                    "the encoder output %s was not loaded", logs.shown(identifier[:12])
                )

    def end_step(self) -> None:
        """What was ordered and not encoded is not going to be."""
        self._fail_the_rest()
        logs.drain()

    def _fail_the_rest(self) -> None:
        left, self._saves = self._saves, {}
        for identifier, order in left.items():
            name = logs.shown(identifier[:12])
            logger.debug("%s was to be saved, and this step did not encode it", name)
            self._worker.complete(order, False)

    def shutdown(self) -> None:
        """Waits for copies, reports them, lets go of the region. Safe twice."""
        self._copies.shutdown()
        self._worker.shutdown()
        logs.drain()


def _copies_for(device_type: str, worker: Worker, dtype: torch.dtype) -> Copies:
    if device_type == "cpu":
        return HostCopies(worker, dtype)
    return DeviceCopies(worker, dtype, TorchDevice(device_type))
