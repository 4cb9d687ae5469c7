"""Keeps a client's `ec_transfer_params` from the workers.

vLLM hands them on in each new request's sampling parameters, and pickles those for workers in other
processes: a value that is nested some hundred levels deep, which its server lets through, would end
the engine there. Workers need none of it.

It must never change the request's own sampling parameters: they are the client's.
"""

import copy
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

PARAMS = "ec_transfer_params"


def withhold_params(scheduler_output: "SchedulerOutput") -> None:
    """Takes them out of what this step tells the workers, also of requests without any media."""
    for data in scheduler_output.scheduled_new_reqs:
        sampling = data.sampling_params
        extra = sampling.extra_args if sampling is not None else None
        if sampling is None or not extra or PARAMS not in extra:
            continue
        # Shallow: to copy what is nested too deep is no safer than to pickle it.
        told = copy.copy(sampling)
        told.extra_args = {name: value for name, value in extra.items() if name != PARAMS}
        data.sampling_params = told
