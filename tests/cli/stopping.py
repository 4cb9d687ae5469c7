"""SIGSTOP, until it has come to every thread.

The signal has been sent when `kill` returns, and not been heeded: a thread that runs on another
core may still answer what comes next.
"""

import os
import signal
import time
from pathlib import Path

LIMIT_S = 60.0


def stands_still(pid: int) -> None:
    """Waits until no thread of a process that was sent SIGSTOP runs any more, or it is gone."""
    end = time.monotonic() + LIMIT_S
    while not all(state in "TtZX" for state in _states(pid)):
        assert time.monotonic() < end, f"process {pid} was stopped and runs"


def _states(pid: int) -> list[str]:
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.append(path.read_text().rpartition(")")[2].split()[0])
        except OSError:
            continue  # a thread that has ended meanwhile
    return states


def stop(pid: int) -> None:
    """Stops a process that the test has not started itself."""
    os.kill(pid, signal.SIGSTOP)
    stands_still(pid)
