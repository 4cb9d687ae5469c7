"""What the engine's own encoder cache holds, as its scheduler sees it. Read, never changed.

vLLM tells a connector when an entry is allocated, but not when one goes, nor that all went
(`reset_encoder_cache`). Two answers need the truth: may a request run whose item was not announced
and has no pixels (wrongly yes ends the engine), and can an output be saved again without encoding
it. So the scheduler that constructs the connector is looked up once, and its `EncoderCacheManager`
is asked. Where there is none to ask, nothing counts as held (docs/adr/0012).
"""

import sys
import weakref
from typing import Any

from vllm.v1.core.sched.interface import SchedulerInterface

_MAX_FRAMES = 16


class EngineCache:
    """The encoder cache of the scheduler that is constructing its connector right now."""

    def __init__(self) -> None:
        scheduler = _constructing_scheduler()
        self._scheduler = weakref.ref(scheduler) if scheduler is not None else None

    @property
    def is_known(self) -> bool:
        """Whether there is a scheduler to ask."""
        return self._scheduler is not None

    def holds(self, identifier: str) -> bool:
        """Whether the engine holds this output, or has decided in this step to have it encoded or
        loaded. What no request refers to may be evicted as soon as something else needs its
        room."""
        return identifier in self._part("cached")

    def is_referenced(self, identifier: str) -> bool:
        """Whether a live request refers to it, so that it stays."""
        return bool(self._part("cached").get(identifier))

    @property
    def free_embeddings(self) -> int:
        """Room, in embeddings, that is there without any eviction."""
        free = getattr(self._manager(), "num_free_slots", 0)
        return free if isinstance(free, int) else 0

    def _manager(self) -> Any:
        scheduler = self._scheduler() if self._scheduler is not None else None
        return getattr(scheduler, "encoder_cache_manager", None)

    def _part(self, name: str) -> dict[str, Any]:
        # A manager of the operator's own may keep its books otherwise.
        part = getattr(self._manager(), name, None)
        return part if isinstance(part, dict) else {}


def _constructing_scheduler() -> SchedulerInterface | None:
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        found = frame.f_locals.get("self")
        if isinstance(found, SchedulerInterface):
            return found
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None
