"""What vLLM's configuration means for one instance of Chiasm: settings, model, ranks.

Every process of an instance computes the same from it. What cannot work is refused here, before
anything has been made.
"""

import json
from typing import TYPE_CHECKING

import vllm

from chiasm._native import ConfigError, Model, Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig

TRIED_VERSIONS = ("0.32.", "0.33.")
"""The versions of vLLM whose hooks this plug-in was written for."""

_TRANSFER_FIELDS = ("ec_connector", "ec_connector_module_path", "ec_role", "engine_id")


def settings_of(vllm_config: "VllmConfig") -> Settings:
    """The operator's settings. Raises `ConfigError` with everything that is wrong."""
    transfer = vllm_config.ec_transfer_config
    if transfer is None:
        raise ConfigError("there is no --ec-transfer-config")
    fields = {name: getattr(transfer, name) for name in _TRANSFER_FIELDS}
    said = {name: value for name, value in fields.items() if value is not None}
    said["ec_connector_extra_config"] = transfer.ec_connector_extra_config
    serves_perhaps = bool(transfer.is_ec_producer)
    return Settings(
        json.dumps(said, default=str),
        data_parallel_index=vllm_config.parallel_config.data_parallel_index,
        host_address=_host_address() if serves_perhaps else None,
    )


def model_of(vllm_config: "VllmConfig") -> Model:
    """What both sides of a transfer must have in common."""
    model = vllm_config.model_config
    multimodal = getattr(model, "multimodal_config", None)
    processor = getattr(multimodal, "mm_processor_kwargs", None)
    return Model(
        vllm_version=vllm.__version__,
        model=model.model,
        dtype=str(model.dtype),
        row_elements=model.get_inputs_embeds_size(),
        fingerprint={
            "revision": _text(getattr(model, "revision", None)),
            "quantization": _text(getattr(model, "quantization", None)),
            "mm_processor_kwargs": _text(processor or None),
        },
    )


def vllm_version() -> str:
    """The version of the vLLM that is running."""
    return vllm.__version__


def ranks_of(vllm_config: "VllmConfig") -> int:
    """How many workers load. Only the first pipeline stage holds an encoder cache."""
    parallel = vllm_config.parallel_config
    return parallel.tensor_parallel_size * parallel.prefill_context_parallel_size


def own_rank() -> int | None:
    """This worker's rank among those; None on a later pipeline stage, which has none."""
    from vllm.distributed.parallel_state import (
        get_pcp_group,
        get_pp_group,
        get_tensor_model_parallel_rank,
        get_tensor_model_parallel_world_size,
    )

    if not get_pp_group().is_first_rank:
        return None
    of_tensor = get_tensor_model_parallel_rank()
    return get_pcp_group().rank_in_group * get_tensor_model_parallel_world_size() + of_tensor


def check(vllm_config: "VllmConfig") -> str | None:
    """Refuses what cannot work (`ConfigError`); returns a warning about what was never tried."""
    parallel = vllm_config.parallel_config
    if getattr(vllm_config.model_config, "is_encoder_decoder", False):
        raise ConfigError(
            "ChiasmConnector: encoder-decoder models keep their encoder outputs to themselves, and "
            "vLLM calls no connector for them; remove --ec-transfer-config"
        )
    hosts = getattr(parallel, "nnodes_within_dp", 1)
    if hosts > 1:
        raise ConfigError(
            f"ChiasmConnector: the ranks of one instance share memory, but this one spans {hosts} "
            "hosts; keep tensor and prefill context parallel ranks on one host"
        )
    if parallel.distributed_executor_backend == "external_launcher" and ranks_of(vllm_config) > 1:
        raise ConfigError(
            "ChiasmConnector: with external_launcher every rank schedules for itself and all must "
            "decide alike, which encoder outputs that arrive when they arrive do not allow; use mp"
        )
    if not vllm.__version__.startswith(TRIED_VERSIONS):
        return (
            f"this is vLLM {vllm.__version__}; ChiasmConnector was written for 0.32 and 0.33, and "
            "other versions call it in ways that were not tried"
        )
    return None


def _host_address() -> str | None:
    from vllm.utils.network_utils import get_ip

    return get_ip()


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str)
