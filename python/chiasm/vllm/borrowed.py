"""Items that a request takes from the engine's own encoder cache.

A client may leave out the pixels of an image that the engine still holds, and announce nothing.
Such an item is neither in the region nor on its way, and all the same the request may run: but only
while the engine holds it for certain. One that was admitted and whose output is gone ends the
engine, so it is looked at in every step, and a request that cannot be sure fails alone.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chiasm.vllm.engine_cache import EngineCache

if TYPE_CHECKING:
    from vllm.v1.request import Request

    from chiasm._native import Node


@dataclass(frozen=True)
class _Item:
    identifier: str
    end: int
    """Index of the token after its last one."""


class Borrowed:
    """The borrowed items of all live requests."""

    def __init__(self, cache: EngineCache) -> None:
        self._cache = cache
        self._of: dict[str, list[_Item]] = {}

    def may_borrow(self, identifier: str) -> bool:
        """Whether the engine holds this output now."""
        return self._cache.holds(identifier)

    def note(self, request_id: str, items: Iterable[tuple[str, int]]) -> None:
        """Remembers what a request borrows: (identifier, end)."""
        found = [_Item(identifier, end) for identifier, end in items]
        if found:
            self._of[request_id] = found

    def forget(self, request_id: str) -> None:
        """The request has ended."""
        self._of.pop(request_id, None)

    def lost(self, request: "Request", computed: int, node: "Node") -> str | None:
        """The item that this request would miss if it ran in this step; None if it may run.

        Room for an item of the same request may be made by evicting another one that it borrows, if
        nobody refers to that and there is no room without.
        """
        items = self._of.get(request.request_id)
        if items is None:
            return None
        needed = [
            item.identifier
            for item in items
            if item.end > computed and not node.has_promised(item.identifier)
        ]
        for identifier in needed:
            if not self._cache.holds(identifier):
                return identifier
        unsafe = [name for name in needed if not self._cache.is_referenced(name)]
        if unsafe and self._room_for_the_rest(request, computed) > self._cache.free_embeddings:
            return unsafe[0]
        return None

    def _room_for_the_rest(self, request: "Request", computed: int) -> int:
        """Embeddings of the request's other items that the engine has to make room for."""
        rest = {
            feature.identifier: feature.mm_position.get_num_embeds()
            for feature in request.mm_features
            if feature.mm_position.offset + feature.mm_position.length > computed
            and not self._cache.holds(feature.identifier)
        }
        return sum(rest.values())
