"""The process that has imported vLLM. Each line of its standard input is a driver: a child runs it.

    python -m bench.host        a line: {"module": "bench.upstream.ack", "arguments": [..]}

Runs under the interpreter that has vLLM. Importing that takes seconds, so it is done once; a child
is forked before NIXL has been touched. What a driver says comes out as it is; its end is a line
with its exit status.
"""

import importlib
import json
import os
import sys
import traceback
import warnings
from pathlib import Path

from bench.upstream.common import RUN

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

MODULES = (
    "msgspec",
    "vllm.config",
    "vllm.distributed.ec_transfer.ec_connector.cpu.connector",
    "vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq",
    "vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl",
    "vllm.distributed.ec_transfer.ec_connector.cpu.scheduler",
    "vllm.distributed.ec_transfer.ec_connector.cpu.session",
    "vllm.multimodal.inputs",
    "vllm.v1.core.sched.output",
    "vllm.v1.request",
)


def drive(module: str, arguments: list[str]) -> int:
    """One driver, in this process."""
    try:
        importlib.import_module(module).main(arguments)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def clean(run: str) -> None:
    """Removes the regions of whoever was killed, by the benchmark or by its end."""
    for path in Path("/dev/shm").glob(f"*bench-{run}-*"):
        path.unlink(missing_ok=True)


def main() -> None:
    run = str(os.getpid())
    os.environ[RUN] = run
    warnings.filterwarnings("ignore")
    for module in MODULES:
        importlib.import_module(module)
    print(json.dumps({"ready": True}), flush=True)
    # Not by lines of the buffered stream: a child would inherit what was read ahead.
    while line := sys.stdin.readline():
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            code = drive(order["module"], order["arguments"])
            sys.stdout.flush()
            sys.stderr.flush()
            # NIXL's threads and an interpreter that ends do not always agree.
            os._exit(code)
        _, status = os.waitpid(child, 0)
        clean(run)
        print(json.dumps({"ended": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
