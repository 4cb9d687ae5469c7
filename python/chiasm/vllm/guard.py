"""Hooks that never raise.

What leaves a hook of a connector ends the whole engine. So a fault of ours is logged, once per hook
with its traceback, and answered with what costs least: encode it yourself, nothing to save, nothing
to announce. Start-up is not guarded: there an error belongs to the operator.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from chiasm.vllm.logs import logger

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

_said: set[str] = set()


def log_fault(hook: str) -> None:
    """Logs the exception that is being handled, once per hook."""
    if hook in _said:
        return
    _said.add(hook)
    logger.exception(
        "a fault in %s, which is a bug of Chiasm's. The engine goes on; what this hook was to do "
        "is left out. Further faults of it are not logged.",
        hook,
    )


def guarded(
    answer: Callable[..., Any],
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """Decorates a hook; `answer` is called with its arguments if it raises."""

    def decorate(hook: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        name = hook.__qualname__

        @functools.wraps(hook)
        def never_raises(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return hook(self, *args, **kwargs)
            except Exception:
                log_fault(name)
                careful: T = answer(self, *args, **kwargs)
                return careful

        return never_raises

    return decorate
