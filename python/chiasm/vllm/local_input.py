"""Whether the engine can encode an item itself.

Decided as vLLM's own connector decides it: pixels, precomputed embeddings and items that lie in
shared memory (an address) are input; fields that only size the placeholder range are not.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from vllm.multimodal.inputs import MultiModalFeatureSpec


class Resolver(Protocol):
    """Names the fields that size the placeholder range of a modality."""

    def fields_for(self, modality: str) -> set[str]:
        """vLLM's `PlaceholderMetadataResolver.fields_for`."""


def has_local_input(feature: "MultiModalFeatureSpec", resolver: Resolver) -> bool:
    """Whether the item carries anything that an encoder can start from."""
    if not feature.data:
        return False
    sizes = resolver.fields_for(feature.modality)
    return any(name not in sizes and value.data is not None for name, value in feature.data.items())
