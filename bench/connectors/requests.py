"""Requests as vLLM's engine core makes them of what came over HTTP."""

from typing import Any


def feature(name: str, rows: int, offset: int, local: bool) -> Any:
    """One image; without `local` its size is all that is known of it."""
    import torch
    from vllm.multimodal.inputs import (
        MultiModalBatchedField,
        MultiModalFeatureSpec,
        MultiModalFieldElem,
        MultiModalKwargsItem,
        PlaceholderRange,
    )

    names: dict[str, Any] = {"image_grid_thw": torch.tensor([1, rows, 4])}
    if local:
        names["pixel_values"] = torch.zeros(1, 3)
    elements = {
        name: MultiModalFieldElem(data=data, field=MultiModalBatchedField())
        for name, data in names.items()
    }
    return MultiModalFeatureSpec(
        data=MultiModalKwargsItem(elements),
        modality="image",
        identifier=name,
        mm_position=PlaceholderRange(offset=offset, length=rows),
        mm_hash=name,
    )


def request(request_id: str, features: list[Any], params: Any = None) -> Any:
    """A request with these items, and what was announced of them."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    tokens = max(it.mm_position.offset + it.mm_position.length for it in features) + 2
    return Request(
        request_id=request_id,
        prompt_token_ids=list(range(tokens)),
        sampling_params=SamplingParams(
            max_tokens=4, extra_args=None if params is None else {"ec_transfer_params": params}
        ),
        pooling_params=None,
        mm_features=features,
    )


def announced(port: int, rows: int, width: int) -> dict[str, Any]:
    """What a producer on this host has announced of an entry."""
    return {
        "peer_host": "127.0.0.1",
        "peer_port": port,
        "size_bytes": rows * width * 2,
        "shape": [rows, width],
    }
