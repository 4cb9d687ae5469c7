"""What the drivers of upstream's classes have in common."""

import os
import uuid
from typing import Any

from bench import rows

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("NIXL_LOG_LEVEL", "WARN")
os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")

# Bytes of a row of 3584 elements of two bytes: a block.
BLOCK_BYTES = 7168
COMPAT = "c" * 64
# The variable in which the host's process is told to its children.
RUN = "CHIASM_BENCH_RUN"


def row(family: str, case: dict[str, Any], metric: str, value: float) -> None:
    """Says one figure of upstream's."""
    rows.row(family, "upstream", case, metric, value)


def fresh_name() -> str:
    """A name that nobody else has; `bench.host` removes what is left of it in /dev/shm."""
    return f"bench-{os.environ.get(RUN, '0')}-{uuid.uuid4()}"


def region(blocks: int, block_bytes: int = BLOCK_BYTES) -> Any:
    """Upstream's shared region of so many blocks, of a name of its own."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.ec_shared_region import ECSharedRegion

    name = fresh_name()
    return ECSharedRegion(engine_id=name, num_blocks=blocks, block_size_bytes=block_bytes)
