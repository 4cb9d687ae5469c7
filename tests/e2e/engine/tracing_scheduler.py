"""vLLM's scheduler, writing down what it decides, so that a test can see who encoded an image.

    --scheduler-cls tracing_scheduler.TracingScheduler

The file CHIASM_E2E_TRACE gets lines of JSON. The first says which model runner the engine has. Then
there is one for every step in which something of interest happened: `encoded` (by request: the
items whose encoder runs in this step), `new`, `preempted`, `resumed`.
"""

import json
import os
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler


class TracingScheduler(AsyncScheduler):
    """Decides as its base class does."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Line by line: a test reads what has been decided, not what has been flushed.
        self._trace = open(os.environ["CHIASM_E2E_TRACE"], "a", buffering=1)  # noqa: SIM115
        runner = 2 if self.vllm_config.use_v2_model_runner else 1
        self._trace.write(json.dumps({"runner": runner}) + "\n")

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        decided = super().schedule(*args, **kwargs)
        line = {
            "encoded": dict(decided.scheduled_encoder_inputs),
            "new": [request.req_id for request in decided.scheduled_new_reqs],
            "preempted": sorted(decided.preempted_req_ids or ()),
            "resumed": sorted(decided.scheduled_cached_reqs.resumed_req_ids),
        }
        if any(line.values()):
            self._trace.write(json.dumps(line) + "\n")
        return decided
