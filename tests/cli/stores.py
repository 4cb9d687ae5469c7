"""Stores of encoder outputs, written by safetensors itself and compared by sha256sum."""

import random
import subprocess
from pathlib import Path

import numpy as np
from safetensors import TensorSpec, serialize_file

from tests.interop.wire.command import ROOT

REAL = ROOT / "testdata" / "ec-store"
FILE_NAME = "encoder_cache.safetensors"
TENSOR = "ec_cache"

# torch's name of every element type that encoder outputs may have, and its bytes.
DTYPES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "complex64": 8,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}


def write(
    store: Path,
    mm_hash: str,
    shape: tuple[int, ...] = (7, 13),
    dtype: str = "bfloat16",
    tensor: str = TENSOR,
    seed: int = 0,
) -> Path:
    """Writes one encoder output with random bytes and returns its file."""
    count = int(np.prod(shape)) * DTYPES[dtype]
    data = random.Random(f"{mm_hash} {seed}").randbytes(count)
    if dtype == "bool":
        data = bytes(byte & 1 for byte in data)
    buffer = np.frombuffer(data, dtype=np.uint8)
    spec = TensorSpec(
        dtype=dtype, shape=list(shape), data_ptr=buffer.ctypes.data, data_len=buffer.nbytes
    )
    path = store / mm_hash / FILE_NAME
    path.parent.mkdir(parents=True)
    serialize_file({tensor: spec}, path)
    return path


def some(store: Path, **shapes: tuple[int, int]) -> Path:
    """A store of bfloat16 encodings of these shapes."""
    for mm_hash, shape in shapes.items():
        write(store, mm_hash, shape)
    return store


def sha256sums(store: Path) -> dict[str, str]:
    """The hash of every encoding's file in the store, as the outside tool sees it."""
    files = sorted(str(path.relative_to(store)) for path in store.glob(f"*/{FILE_NAME}"))
    assert files, f"nothing in {store}"
    done = subprocess.run(
        ["sha256sum", *files], cwd=store, check=True, stdout=subprocess.PIPE, text=True
    )
    sums = (line.split(maxsplit=1) for line in done.stdout.splitlines())
    return {Path(name).parent.name: digest for digest, name in sums}


def names(directory: Path) -> list[str]:
    """Everything below the directory, hidden files included."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))
