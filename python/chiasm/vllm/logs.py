"""The way of Chiasm's log lines into vLLM's log.

The native module keeps its lines in a bounded queue, since no Python runs on its threads; the hooks
that vLLM calls in every step empty it. An idle engine calls none, so a line can be as late as the
next step.
"""

import logging

from vllm.logger import init_logger

from chiasm import _native

logger: logging.Logger = init_logger("vllm.chiasm")
"""Below vLLM's own logger, whose handlers and level it has: any other name would be silent."""


def drain() -> None:
    """Hands over what has been logged since the last call."""
    for level, target, message in _native.drain_logs():
        logger.log(level, "%s: %s", target, message)
