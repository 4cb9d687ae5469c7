"""Two sides meet only if they are of one kind, and that kind can be a vLLM's."""

import hashlib
import json
import os
from pathlib import Path

import pytest
import zmq

from tests.cli import stores
from tests.cli.chiasm import Chiasm
from tests.interop.wire import upstream

VLLM = {
    "--engine-version": "0.33.0",
    "--model": "Qwen/Qwen2-VL-7B-Instruct",
    "--dtype": "bfloat16",
    "--block": "7168",
}


def flags(**changes: str) -> list[str]:
    """The flags of a vLLM, with changes."""
    given = VLLM | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return [f"{name}={value}" for name, value in given.items()]


def vllm_hash(version: str, model: str, dtype: str, block: int) -> str:
    """The compatibility hash as vLLM's connector computes it."""
    text = json.dumps([version, model, dtype, block], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def asked_with(chiasm: Chiasm, *arguments: str) -> upstream.XferReq:
    """The request that a fetch sends with these flags."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        port = router.bind_to_random_port("tcp://127.0.0.1")
        announcement = {
            "peer_host": "127.0.0.1",
            "peer_port": port,
            "size_bytes": 7168,
            "shape": [1, 3584],
        }
        running = chiasm.start_fetch({"a": announcement}, f"127.0.0.1:{port}", *arguments)
        assert router.poll(60_000)
        identity, _, payload = router.recv_multipart()
        request = upstream.decode("req", payload)
        nack = upstream.XferAck(request.mm_hash, upstream.AckStatus.MISSING)
        router.send_multipart([identity, b"", upstream.encode(nack)])
        assert running.wait().verdicts() == {"a": ("unavailable", "nack_missing")}
    assert isinstance(request, upstream.XferReq)
    return request


def test_equal_flags_meet(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(5, 3584))
    producer = chiasm.produce(store, *flags())
    done = chiasm.fetch(producer.announced, producer.endpoint, *flags(), out=tmp_path / "copy")
    assert done.code == 0, done
    assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(store)


@pytest.mark.parametrize(
    "changes",
    [{"model": "Qwen/Qwen2-VL-7B"}, {"engine_version": "0.32.0"}, {"dtype": "float16"}],
    ids=lambda changes: next(iter(changes)),
)
def test_another_kind_is_refused_by_the_producer(
    chiasm: Chiasm, tmp_path: Path, changes: dict[str, str]
) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(5, 3584)), *flags())
    done = chiasm.fetch(producer.announced, producer.endpoint, *flags(**changes))
    assert done.code == 1
    assert done.verdicts() == {"a": ("unavailable", "nack_incompat")}
    assert "compat_hash" in done.only()["detail"]


def test_without_flags_nobody_meets_a_vllm(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(5, 3584)), *flags())
    done = chiasm.fetch(producer.announced, producer.endpoint, "--block=7168")
    assert done.verdicts() == {"a": ("unavailable", "nack_incompat")}


def test_another_block_size_shows_in_the_announcement(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(5, 3584)), *flags())
    done = chiasm.fetch(producer.announced, producer.endpoint, *flags(block="4096"))
    assert done.verdicts() == {"a": ("unavailable", "invalid")}
    assert "4096" in done.only()["detail"]
    assert done.json["connects"] == []


def test_another_block_size_is_refused_by_the_producer(chiasm: Chiasm, tmp_path: Path) -> None:
    # 14336 is a whole number of blocks for both: only the producer can tell.
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(4, 3584)), *flags())
    done = chiasm.fetch(producer.announced, producer.endpoint, *flags(block="14336"))
    assert done.verdicts() == {"a": ("unavailable", "nack_incompat")}


@pytest.mark.parametrize(
    "model", ["Qwen/Qwen2-VL-7B-Instruct", 'a"b\\c', "/mnt/modèles/視覚 🖼", "tab\there\x7f"]
)
def test_the_compatibility_hash_is_that_of_a_vllm(chiasm: Chiasm, model: str) -> None:
    request = asked_with(chiasm, *flags(model=model))
    assert request.compatibility_hash == vllm_hash("0.33.0", model, "torch.bfloat16", 7168)
    assert request.connector_version == 2


def test_the_compatibility_hash_can_be_given(chiasm: Chiasm) -> None:
    theirs = os.urandom(32).hex()
    given = [f"--compat-hash={theirs.upper()}", "--block=7168"]
    assert asked_with(chiasm, *given).compatibility_hash == theirs


def test_a_given_hash_meets_the_same_hash_only(chiasm: Chiasm, tmp_path: Path) -> None:
    theirs = vllm_hash("0.33.0", VLLM["--model"], "torch.bfloat16", 7168)
    store = stores.some(tmp_path / "store", a=(5, 3584))
    producer = chiasm.produce(store, f"--compat-hash={theirs}", "--block=7168")
    assert chiasm.fetch(producer.announced, producer.endpoint, *flags()).code == 0
    other = [f"--compat-hash={theirs[:-1]}x", "--block=7168"]
    assert "--compat-hash" in chiasm.fetch(producer.announced, "", *other).err
    other = ["--compat-hash=" + "0" * 64, "--block=7168"]
    done = chiasm.fetch(producer.announced, producer.endpoint, *other)
    assert done.verdicts() == {"a": ("unavailable", "nack_incompat")}


def test_another_dtype_of_the_same_size_shows_in_the_ack(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(5, 3584)))
    done = chiasm.fetch(producer.announced, producer.endpoint, "--dtype=float16")
    assert done.verdicts() == {"a": ("unavailable", "ack_mismatch")}
    assert "dtype bfloat16 granted, float16 expected" in done.only()["detail"]


def test_another_dtype_of_another_size_shows_in_the_announcement(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(5, 3584)))
    done = chiasm.fetch(producer.announced, producer.endpoint, "--dtype=float32")
    assert done.verdicts() == {"a": ("unavailable", "invalid")}
    assert "float32" in done.only()["detail"]
    assert done.json["connects"] == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--compat-hash=abc"], '--compat-hash "abc" is not 64 hexadecimal digits'),
        (["--compat-hash=" + "g" * 64], "is not 64 hexadecimal digits"),
        (["--compat-hash=" + "0" * 64, "--model=m"], "cannot be used with"),
        (["--dtype=float31"], "float31"),
        (["--dtype=torch.torch.bfloat16"], "torch.torch.bfloat16"),
        (["--model=m", "--dtype=half"], "half"),
        (["--block=0"], "'0' for '--block <BYTES>': allowed is a whole number from 1"),
        (["--block=-1"], "--block"),
        (["--block=4KiB"], "--block"),
        (["--block=99999999999999999999"], "--block"),
    ],
)
@pytest.mark.parametrize("command", ["produce", "fetch"])
def test_flags_that_say_nothing_are_refused_by_both_sides(
    chiasm: Chiasm, command: str, given: list[str], named: str
) -> None:
    needed: dict[str, list[str | Path]] = {
        "produce": ["produce", stores.REAL, "--for=0"],
        "fetch": ["fetch", "--params", chiasm.params({}), "--out", "copy"],
    }
    error = chiasm.run(*needed[command], *given).one_error()
    assert named in error
    assert not (chiasm.directory / "copy").exists()
