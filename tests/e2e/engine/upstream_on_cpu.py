"""Upstream's own ECCPUConnector on a machine without a GPU.

    "ec_connector": "UpstreamOnCpu", "ec_connector_module_path": "upstream_on_cpu"

Everything that it decides and says is upstream's, unchanged. Only its last step is replaced, the
copy between the region and the device, because vLLM's build for CPUs has no such operation: here
the bytes are moved by memmove.
"""

import ctypes
import time
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.cpu.connector import ECCPUConnector


class CopyEvent:
    """Stands for the device's event after a copy that is over when it returns."""

    def __init__(self) -> None:
        self._recorded = 0.0

    def record(self, stream: Any = None) -> None:
        self._recorded = time.perf_counter()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: "CopyEvent") -> float:
        return (later._recorded - self._recorded) * 1e3


class UpstreamOnCpu(ECCPUConnector):
    def _make_worker(self, vllm_config: Any) -> Any:
        # As upstream: only the process that copies loads what copying needs.
        from vllm.distributed.ec_transfer.ec_connector.cpu.worker import ECCPUWorker

        class Worker(ECCPUWorker):
            def _acquire_event(self) -> Any:
                return CopyEvent()

            def _submit_transfer(self, bufs: Any, count: int, direction: Any) -> None:
                moves = zip(bufs.dst_np, bufs.src_np, bufs.sizes_np, strict=True)
                for _, (to, source, size) in zip(range(count), moves, strict=False):
                    ctypes.memmove(int(to), int(source), int(size))

        return Worker(vllm_config)
