"""What the scheduler's side sends to every worker in one step: orders, as bytes.

It goes through whatever carries vLLM's scheduler output (pickle between processes), so it holds
nothing but plain data.
"""

from dataclasses import dataclass, field

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorMetadata


@dataclass
class ChiasmMetadata(ECConnectorMetadata):
    """The orders of one step, by identifier."""

    saves: dict[str, bytes] = field(default_factory=dict)
    """For the rank that saves: encoder outputs that it encodes in this step or holds already."""

    loads: dict[str, bytes] = field(default_factory=dict)
    """For every rank."""
