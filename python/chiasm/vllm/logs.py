"""The way of Chiasm's log lines into vLLM's log.

The native module keeps its lines in a bounded queue, since no Python runs on its threads. The hooks
that vLLM calls in every step empty it, and a thread that looks once a second does where an engine
is idle: a producer has something to say while its own engine has nothing to do.
"""

import logging
import threading

from vllm.logger import init_logger

from chiasm import _native

logger: logging.Logger = init_logger("vllm.chiasm")
"""Below vLLM's own logger, whose handlers and level it has: any other name would be silent."""

PERIOD_S = 1.0
"""How late a line of an idle engine may be."""

_one_at_a_time = threading.Lock()


def shown(text: str) -> str:
    """A name that a client may have chosen, for a log line: on one line, 64 characters at most."""
    return ascii(text[:64])[1:-1] + ("..." if len(text) > 64 else "")


def drain() -> None:
    """Hands over what has been logged since the last call, in its order."""
    with _one_at_a_time:
        for level, target, message in _native.drain_logs():
            logger.log(level, "%s: %s", target, message)


class IdleDrain:
    """Empties the queue while nobody else does, from construction to `stop`."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chiasm-logs", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_S):
            drain()

    def stop(self) -> None:
        """Ends the thread and empties the queue. Safe twice."""
        self._stopped.set()
        self._thread.join()
        drain()
