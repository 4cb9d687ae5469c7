"""Where a real vLLM is, which models there are for it, and what its processes are given.

`make vllm` makes the environment. Nothing here imports it: it belongs to other processes.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENGINE = Path(__file__).resolve().parent / "engine"
VERSION = "0.32.0"


@cache
def environment() -> Path:
    """The folder of the environment."""
    path = subprocess.run(
        [ROOT / "scripts/setup-vllm", "--path"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    if not (Path(path) / "complete").exists():
        raise RuntimeError(f"there is no {path}: make vllm")
    assert Path(path).name.startswith(f"vllm-{VERSION}-"), path
    return Path(path)


def python() -> Path:
    """The interpreter that has vLLM."""
    return environment() / "bin/python"


@cache
def model(kind: str) -> Path:
    """A tiny model, written once into the environment's folder, so that all name one path."""
    script = ENGINE / "tiny_model.py"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    folder = environment() / "models" / f"{kind}-{digest}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=folder.parent))
        subprocess.run(
            [python(), script, kind, draft], check=True, env=variables(), capture_output=True
        )
        try:
            draft.rename(folder)
        except OSError:  # another run was faster, with the same bytes
            shutil.rmtree(draft)
    return folder


def plugin() -> Path:
    """The folder that has the `chiasm` package for vLLM's interpreter: `make test-e2e` fills it."""
    site = os.environ.get("CHIASM_TEST_SITE")
    if not site:
        raise RuntimeError(
            "CHIASM_TEST_SITE is not set: run `make test-e2e`, or set it to target/site,"
            " where that has put the package"
        )
    return Path(site)


def variables(*, v2: bool = False) -> dict[str, str]:
    """The environment of a process with vLLM: offline, one thread, no GPU, and none of our own."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("VLLM_", "CHIASM_", "PYTHON", "PYTEST_", "TRITON_"))
    }
    own |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ENGINE),
    }
    if v2:
        own["PYTHONPATH"] += f":{ENGINE / 'triton_backend'}"
        own |= {
            "VLLM_USE_V2_MODEL_RUNNER": "1",
            "TRITON_INTERPRET": "1",
            "TRITON_DEFAULT_BACKEND": "cpu",
        }
    return own
