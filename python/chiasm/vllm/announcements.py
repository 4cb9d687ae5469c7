"""The `ec_transfer_params` of a finished request: what vLLM's own connector says, field by field.

It must never name an address for an entry that is not there, nor publish the sizes of its
placeholders then: an orchestrator would rewrite the media away, and nobody could embed anything.
"""

from typing import TYPE_CHECKING, Any

from vllm.distributed.ec_transfer.ec_connector.utils import collect_ec_item_metadata

if TYPE_CHECKING:
    from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver
    from vllm.multimodal.inputs import MultiModalFeatureSpec

    from chiasm._native import Node


def announcements(
    features: "list[MultiModalFeatureSpec]",
    resolver: "PlaceholderMetadataResolver",
    node: "Node",
) -> dict[str, dict[str, Any]]:
    """One announcement per identifier: modality, metadata, every occurrence, and where it can be
    read if this instance holds it, ready or not."""
    said = collect_ec_item_metadata(features, resolver)
    for feature in features:
        said[feature.identifier].setdefault("modality", feature.modality)
    for identifier, announcement in said.items():
        where = node.announce(identifier)
        if where is None:
            announcement["metadata"] = {}
        else:
            announcement.update(where)
    return said
