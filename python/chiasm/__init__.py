"""Moves encoder outputs between the instances of a multimodal serving fleet.

The plug-in for vLLM is `chiasm.vllm`. Importing this package needs neither vLLM nor torch.
"""

from chiasm._native import __version__

__all__ = ["__version__"]
