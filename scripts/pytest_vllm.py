"""Runs pytest inside the environment that has vLLM (`make vllm`), with the chiasm of `.venv`.

    "$(scripts/setup-vllm --path)/bin/python" scripts/pytest_vllm.py tests/vllm

pytest and chiasm are found in `.venv`, behind everything that vLLM's environment has itself: its
packages stay the ones that vLLM was made for, and nothing is installed into it.
"""

import sys
from pathlib import Path


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    minor = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = root / ".venv" / "lib" / minor / "site-packages"
    if not site.is_dir():
        print(f"error: {site} is missing: make setup, with the Python of vLLM", file=sys.stderr)
        return 2
    # Not the folder of this file: the tests are `tests.vllm`.
    sys.path[0] = str(root)
    sys.path.append(str(site))
    import pytest

    # torch warns of itself when vLLM imports it.
    return int(pytest.main(["-W", "ignore::DeprecationWarning:torch.jit._script", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
