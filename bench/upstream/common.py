"""What the drivers of upstream's classes have in common: one figure, one line of JSON."""

import json
import os
import uuid
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")
os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")

# Bytes of a row of 3584 elements of two bytes: a block.
BLOCK_BYTES = 7168
COMPAT = "c" * 64


def row(family: str, case: dict[str, Any], metric: str, value: float) -> None:
    """Says one figure."""
    what = "upstream"
    line = {"family": family, "what": what, "case": case, "metric": metric, "value": value}
    print(json.dumps(line), flush=True)


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie, in milliseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return ordered[-(-last * percent // 100)] * 1e3


def region(blocks: int) -> Any:
    """Upstream's shared region of so many blocks, of a name of its own."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.ec_shared_region import ECSharedRegion

    name = f"bench-{uuid.uuid4()}"
    return ECSharedRegion(engine_id=name, num_blocks=blocks, block_size_bytes=BLOCK_BYTES)
