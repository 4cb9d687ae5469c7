"""Connectors without an engine: built as an engine builds them, and held until standard input ends.

    python connectors.py MODEL

Each line of standard input is a JSON object: `transfer` (what --ec-transfer-config has), and may
have `environment` (set while the connectors are built; null removes a variable) and `rank` (the
data-parallel index). Each is answered with one line: `{"error": null}`, or the text of the error.
"""

import json
import os
import sys
from typing import Any


def lone_rank(config: Any) -> None:
    """Makes this process the only rank of its group, which a worker's connector asks for."""
    from tempfile import mkdtemp

    from vllm.config import set_current_vllm_config
    from vllm.distributed import parallel_state

    with set_current_vllm_config(config):
        parallel_state.init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            distributed_init_method=f"file://{mkdtemp()}/group",
            backend="gloo",
        )
        parallel_state.ensure_model_parallel_initialized(1, 1)


def build(model: str, asked: dict[str, Any]) -> list[Any]:
    """The worker's connector and the scheduler's, in the order of an engine."""
    from vllm.distributed import parallel_state
    from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
    from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
    from vllm.engine.arg_utils import EngineArgs

    config = EngineArgs(
        model=model,
        dtype="float32",
        max_model_len=2048,
        enforce_eager=True,
        ec_transfer_config=asked["transfer"],
    ).create_engine_config()
    config.parallel_config.data_parallel_index = asked.get("rank", 0)
    if not parallel_state.model_parallel_is_initialized():
        lone_rank(config)
    roles = (ECConnectorRole.WORKER, ECConnectorRole.SCHEDULER)
    return [ECConnectorFactory.create_connector(config, role) for role in roles]


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    held = []
    answers.write("ready\n")
    for line in sys.stdin:
        asked = json.loads(line)
        before = dict(os.environ)
        try:
            for name, value in asked.get("environment", {}).items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            held += build(sys.argv[1], asked)
            error = None
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
        finally:
            os.environ.clear()
            os.environ.update(before)
        answers.write(json.dumps({"error": error}) + "\n")
    for connector in held:
        connector.shutdown()


if __name__ == "__main__":
    main()
