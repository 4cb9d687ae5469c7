"""A measurement in a child of its own, so that what it leaves is not in the next one's way."""

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

LIMIT_S = 300

# Whoever runs this has imported what a child needs.
processes = multiprocessing.get_context("fork")


def _run(pipe: Connection, measure: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(measure(*arguments))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    # NIXL's threads and an interpreter that ends do not always agree.
    os._exit(0)


def apart(measure: Callable[..., Any], *arguments: Any) -> Any:
    """What `measure` answers."""
    pipe, other = processes.Pipe()
    child = processes.Process(target=_run, args=(other, measure, arguments))
    child.start()
    other.close()
    try:
        assert pipe.poll(LIMIT_S), f"{measure.__name__} has said nothing for {LIMIT_S} s"
        return pipe.recv()
    finally:
        child.join(5)
        if child.is_alive():
            child.kill()
            child.join()
