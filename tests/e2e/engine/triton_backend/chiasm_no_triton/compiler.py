"""The half of a backend that compiles: it says for what it would, and is never asked to."""

from typing import Any

from triton.backends.compiler import BaseBackend

NEVER = "kernels are interpreted here: set TRITON_INTERPRET=1"


class NoCompiler(BaseBackend):
    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "interpreted"

    def parse_options(self, options: Any) -> Any:
        raise RuntimeError(NEVER)

    def add_stages(self, stages: Any, options: Any) -> None:
        raise RuntimeError(NEVER)

    def load_dialects(self, context: Any) -> None:
        raise RuntimeError(NEVER)

    def get_module_map(self) -> dict[str, Any]:
        return {}
