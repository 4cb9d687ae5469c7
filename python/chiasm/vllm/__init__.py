"""The plug-in for vLLM: `"ec_connector": "ChiasmConnector", "ec_connector_module_path":
"chiasm.vllm"`.

Thin on purpose: it translates between vLLM's hooks and `chiasm._native`, which decides. vLLM and
torch are imported when the class is asked for, not before.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chiasm.vllm.connector import ChiasmConnector

__all__ = ["ChiasmConnector"]


def __getattr__(name: str) -> object:
    if name == "ChiasmConnector":
        from chiasm.vllm.connector import ChiasmConnector

        return ChiasmConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
