"""Upstream's unmodified ECCPUScheduler, over its own sockets and NIXL, for `peer.py`.

What surrounds it in an engine is played: the steps, a request of one image, and the worker, which
here copies bytes by hand and reports what it has copied. Only the model is asked for nothing: the
fields that are placeholders are told.
"""

import errno
import hashlib
import os
import random
import socket
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import zmq
from vllm.config import ECTransferConfig
from vllm.distributed.ec_transfer.ec_connector.cpu.common import ECCPUWorkerMetadata
from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler import ECCPUScheduler
from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFeatureSpec,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    PlaceholderRange,
)
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ECConnectorOutput
from vllm.v1.request import Request

STEP_SECONDS = 0.002
MODEL = "tests/model"


def image(hash: str, rows: int, local: bool) -> MultiModalFeatureSpec:
    """One image; without `local` its size is all that is known of it."""
    names: dict[str, Any] = {"image_grid_thw": torch.tensor([1, rows, 4])}
    if local:
        names["pixel_values"] = torch.zeros(rows, 3)
    elements = {
        name: MultiModalFieldElem(data=data, field=MultiModalBatchedField())
        for name, data in names.items()
    }
    return MultiModalFeatureSpec(
        data=MultiModalKwargsItem(elements),
        modality="image",
        identifier=hash,
        mm_position=PlaceholderRange(offset=1, length=rows),
        mm_hash=hash,
    )


def request(hash: str, rows: int, local: bool, params: Any) -> Request:
    return Request(
        request_id=f"of-{hash}",
        prompt_token_ids=list(range(rows + 2)),
        sampling_params=SamplingParams(
            max_tokens=4, extra_args=None if params is None else {"ec_transfer_params": params}
        ),
        pooling_params=None,
        mm_features=[image(hash, rows, local)],
    )


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


class Scheduler:
    """A scheduler of upstream's in one of its roles, and its engine's steps."""

    def __init__(self, role: str, agent: str, blocks: int, block: int, port: int = 0) -> None:
        PlaceholderMetadataResolver.fields_for = lambda self, modality: {"image_grid_thw"}
        os.environ["VLLM_EC_SIDE_CHANNEL_HOST"] = "127.0.0.1"
        os.environ["VLLM_EC_SIDE_CHANNEL_PORT"] = str(port or free_port())
        width = block // 2
        transfer = ECTransferConfig(
            ec_connector="ECCPUConnector",
            ec_role=role,
            engine_id=agent,
            ec_connector_extra_config={"ec_cpu_bytes": blocks * block, "ec_enable_nixl": True},
        )
        if transfer.is_ec_producer:
            transfer.mm_encoder_output_widths = {"image": width}
        config = SimpleNamespace(
            instance_id=f"chiasm-interop-{os.getpid()}",
            ec_transfer_config=transfer,
            model_config=SimpleNamespace(
                model=MODEL, dtype=torch.bfloat16, get_inputs_embeds_size=lambda: width
            ),
            parallel_config=SimpleNamespace(
                data_parallel_index=0,
                tensor_parallel_size=1,
                prefill_context_parallel_size=1,
                distributed_executor_backend="uni",
            ),
        )
        self.scheduler = ECCPUScheduler(config)
        region = self.scheduler._region
        self.bytes = np.frombuffer(region._mmap_obj, dtype=np.uint8).reshape(blocks, block)

    def about(self) -> Any:
        return {"compat": self.scheduler._compat_hash, "port": self.scheduler._peer_port}

    def step(self) -> Any:
        """One step of an engine that has nothing else to do."""
        return self.scheduler.build_connector_meta(SchedulerOutput.make_empty())

    def worked(self, **done: Any) -> None:
        """The worker's report."""
        report = ECConnectorOutput(ec_connector_worker_meta=ECCPUWorkerMetadata(**done))
        self.scheduler.update_connector_output(report)

    def encode(self, hash: str, rows: int, reported: bool = True) -> Any:
        """A request is encoded; what it announces."""
        asked = request(hash, rows, local=True, params=None)
        self.scheduler.update_state_after_alloc(asked, 0)
        size = self.bytes.shape[1]
        data = random.Random(hash).randbytes(rows * size)
        for at, index in enumerate(self.step().saves[hash]):
            self.bytes[index] = np.frombuffer(data[at * size : (at + 1) * size], dtype=np.uint8)
        if reported:
            self.report(hash)
        _, announced = self.scheduler.request_finished(asked)
        return announced

    def report(self, hash: str) -> None:
        self.worked(completed_saves=[hash])

    def embed(self, hash: str, rows: int, params: Any, local: bool = False) -> Any:
        """A request waits for its encoding until it has it, or is to do without.

        What comes of it: the digest of what a worker would load, "local" or "aborted".
        """
        asked = request(hash, rows, local, params)
        while not self.scheduler.ensure_cache_available(asked, 0):
            if asked.request_id in self.scheduler.take_unavailable_requests():
                return "aborted"
            self.step()
            time.sleep(STEP_SECONDS)
        if not self.scheduler.has_cache_item(hash):
            return "local"
        self.scheduler.update_state_after_alloc(asked, 0)
        transfer, blocks, shape = self.step().loads[hash]
        data = b"".join(self.bytes[index].tobytes() for index in blocks)
        self.worked(completed_loads=[transfer])
        return hashlib.sha256(data[: shape[0] * shape[1] * 2]).hexdigest()

    def asks(self, hash: str, rows: int, params: Any) -> bool:
        """Whether a step of a request that waits for this asks a producer for it."""
        asked = request(hash, rows, False, params)
        return not self.scheduler.ensure_cache_available(asked, 0) and (
            hash in self.scheduler._in_flight
        )

    def notice(self, port: int) -> None:
        """Steps, with a request that waits for nothing, until it has noticed a producer's end."""
        bystander = request("bystander", 1, True, None)
        while ("127.0.0.1", port) in self.scheduler._sessions:
            assert self.scheduler.ensure_cache_available(bystander, 0)
            self.step()
            time.sleep(STEP_SECONDS)
        self.settle(port)

    def settle(self, port: int) -> None:
        """Waits until libzmq has let go of what watched the connection to this port."""
        self.occupy(port)
        self.vacate()

    def occupy(self, port: int) -> None:
        """Has the name of what watches a connection to this port, as an old one may still."""
        self.occupied = f"inproc://ec-peer-mon-127.0.0.1-{port}"
        self.occupant = self.scheduler._transport._ctx.socket(zmq.PAIR)
        while True:
            try:
                self.occupant.bind(self.occupied)
                return
            except zmq.ZMQError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            time.sleep(STEP_SECONDS)

    def vacate(self) -> None:
        # Unlike a close, this is done when it returns.
        self.occupant.unbind(self.occupied)
        self.occupant.close(linger=0)

    def held(self) -> bool:
        """Whether an entry is pinned or not ready."""
        return bool(self.scheduler._cache.has_held_entries())

    def close(self) -> None:
        del self.bytes
        self.scheduler.shutdown()
