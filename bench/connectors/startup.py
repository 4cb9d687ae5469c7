"""What it costs to start the scheduler's side of a connector that serves and reads over NIXL, and
what it keeps per block of its region, the region itself left out.
"""

import logging
import subprocess
import sys
import time
from statistics import median

from bench.apart import apart
from bench.connectors.config import EXTRA, WHO, chiasm_worker, scheduler_side, vllm_config
from bench.connectors.memory import status_kib
from bench.rows import Effort, parser, row

REGIONS = (10_000, 100_000, 1_000_000)
IMPORT = "import time; t = time.perf_counter(); import chiasm; print(time.perf_counter() - t)"


def start(who: str, blocks: int) -> tuple[float, float]:
    """Seconds until it is there, and KiB that it keeps."""
    config = vllm_config(who, "ec_both", blocks, **EXTRA[who])
    # vLLM starts the workers first.
    worker = chiasm_worker(config) if who == "chiasm" else None
    before = status_kib("RssAnon")
    started = time.perf_counter()
    connector = scheduler_side(config)
    took = time.perf_counter() - started
    kept = status_kib("RssAnon") - before
    connector.shutdown()
    if worker is not None:
        worker.shutdown()
    return took, kept


def main(arguments: list[str]) -> None:
    made = parser(__doc__)
    made.add_argument("who", choices=WHO)
    chosen = made.parse_args(arguments)
    effort = Effort(chosen.effort)
    logging.disable(logging.CRITICAL)
    for blocks in REGIONS[: effort.choose(3, 3, 1)]:
        found = [apart(start, chosen.who, blocks) for _ in range(effort.choose(3, 1, 1))]
        case = {"region_blocks": blocks}
        row("startup", chosen.who, case, "start_ms", median(took for took, _ in found) * 1e3)
        kept = median(kib for _, kib in found) * 1024
        row("startup", chosen.who, case, "kept_mib", kept / (1 << 20))
        row("startup", chosen.who, case, "kept_bytes_per_block", kept / blocks)
    if chosen.who == "chiasm":
        times = []
        for _ in range(effort.choose(7, 3, 1)):
            command = [sys.executable, "-c", IMPORT]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            times.append(float(done.stdout) * 1e3)
        row("startup", "chiasm", {}, "import_ms", median(times))
