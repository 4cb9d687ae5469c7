"""vLLM's configuration as a connector sees it, and the two connectors made of it.

Only what surrounds a connector is played. The connectors are those that vLLM loads, with the
sockets and the NIXL that they bring.
"""

import os
import socket
from types import SimpleNamespace
from typing import Any

from bench.upstream.common import fresh_name

WHO = ("chiasm", "upstream")

# Rows of 32 numbers of 2 bytes: what counts is how many blocks there are, not how long they are.
WIDTH = 32
BLOCK_BYTES = 2 * WIDTH

EXTRA: dict[str, dict[str, Any]] = {
    "chiasm": {"ec_remote": True, "ec_planes": ["nixl"]},
    "upstream": {"ec_enable_nixl": True},
}
"""What makes a connector serve others and read from them, over NIXL."""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def vllm_config(who: str, role: str, blocks: int, width: int = WIDTH, **extra: Any) -> Any:
    """Of an instance with a name and a port of its own; a block is a row of so many numbers."""
    import torch
    from vllm.config import ECTransferConfig
    from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver

    # There is no model to ask which fields are placeholders.
    PlaceholderMetadataResolver.fields_for = lambda self, modality: {"image_grid_thw"}
    os.environ["VLLM_EC_SIDE_CHANNEL_HOST"] = "127.0.0.1"
    os.environ["VLLM_EC_SIDE_CHANNEL_PORT"] = str(free_port())
    name = fresh_name()
    connector = {
        "chiasm": {"ec_connector": "ChiasmConnector", "ec_connector_module_path": "chiasm.vllm"},
        "upstream": {"ec_connector": "ECCPUConnector"},
    }[who]
    transfer = ECTransferConfig(
        **connector,
        ec_role=role,
        engine_id=name,
        ec_connector_extra_config={"ec_cpu_bytes": blocks * 2 * width, **extra},
    )
    if transfer.is_ec_producer:
        transfer.mm_encoder_output_widths = {"image": width}
    return SimpleNamespace(
        instance_id=name,
        ec_transfer_config=transfer,
        use_v2_model_runner=True,
        device_config=SimpleNamespace(device_type="cpu"),
        model_config=SimpleNamespace(
            model="bench/model",
            dtype=torch.bfloat16,
            is_encoder_decoder=False,
            revision=None,
            quantization=None,
            multimodal_config=None,
            get_inputs_embeds_size=lambda: width,
        ),
        parallel_config=SimpleNamespace(
            data_parallel_index=0,
            tensor_parallel_size=1,
            prefill_context_parallel_size=1,
            nnodes_within_dp=1,
            distributed_executor_backend="uni",
        ),
    )


def scheduler_side(config: Any) -> Any:
    """The connector that vLLM's scheduler holds."""
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
    from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

    return ECConnectorFactory.create_connector(config, ECConnectorRole.SCHEDULER)


def chiasm_worker(config: Any) -> Any:
    """The worker's side of Chiasm in this process: it saves what it is given."""
    from chiasm import _native
    from chiasm.vllm import instance

    return _native.Worker(instance.settings_of(config), instance.model_of(config))


def save(connector: Any, worker: Any, name: str, rows: int) -> None:
    """One entry into the region of either connector, ready to be read."""
    if worker is None:
        cache = connector.connector_scheduler._cache
        assert cache.alloc(name, rows, (rows, WIDTH)) is not None, "there is no room"
        cache.mark_ready(name)
        return
    import ctypes

    from chiasm import _native

    order = connector.scheduler_side._node.dispatch_save(name, rows, WIDTH)
    assert order is not None, "it was not dispatched"
    data = ctypes.create_string_buffer(rows * BLOCK_BYTES)
    worker.save(_native.Order(order), ctypes.addressof(data), rows * BLOCK_BYTES)
