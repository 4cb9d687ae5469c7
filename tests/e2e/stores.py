"""Encoder outputs of a real producer in the hands of `chiasm produce`, which can misbehave."""

from pathlib import Path

import numpy
from safetensors.numpy import load_file, save_file

from tests.cli.chiasm import Chiasm, Producer
from tests.e2e import environment
from tests.e2e.fleet import Encoded

WIDTH = 128  # elements of one row of the tiny model, of 4 bytes each


def identity() -> list[str]:
    """The flags that make the command a peer of the engines."""
    model = environment.model("qwen2_vl")
    flags = [f"--model={model}", f"--engine-version={environment.VERSION}", "--dtype=float32"]
    return [*flags, f"--block={WIDTH * 4}"]


def fetched(chiasm: Chiasm, encoded: Encoded, folder: Path, *flags: str) -> Path:
    """A store with what the producer has announced, read from it."""
    (announced,) = encoded.params.values()
    endpoint = f"{announced['peer_host']}:{announced['peer_port']}"
    store = folder / "store"
    # Its log is what tells of a read that failed.
    done = chiasm.fetch(encoded.params, endpoint, *identity(), "--log=debug", *flags, out=store)
    assert done.code == 0, done
    return store


def negate(store: Path) -> None:
    """Turns every number of the store into its opposite."""
    (file,) = store.glob("*/encoder_cache.safetensors")
    save_file({name: numpy.negative(values) for name, values in load_file(file).items()}, file)


def produce(chiasm: Chiasm, store: Path, port: int, *flags: str) -> Producer:
    """Serves the store at a port that the consumer may read from."""
    return chiasm.produce(store, f"--listen=127.0.0.1:{port}", *identity(), *flags)
