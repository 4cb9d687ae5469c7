"""Stores come from anywhere: what is wrong with a file is said before anything is served."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm

FILE = stores.FILE_NAME


def write(store: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A file with this header (bytes as they are), and in front of it its length or another one."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = store / "bad" / FILE
    path.parent.mkdir(parents=True)
    length = len(text) if length is None else length
    path.write_bytes(struct.pack("<Q", length) + text + data)
    return path


def refused(chiasm: Chiasm, *paths: Path) -> str:
    done = chiasm.run("produce", *paths, "--for=0", "--announce", chiasm.directory / "params.json")
    assert not (chiasm.directory / "params.json").exists()
    assert chiasm.leftovers() == []
    return done.one_error()


def tensor(dtype: str = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"ec_cache": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def test_a_truncated_file_is_refused_wherever_it_ends(chiasm: Chiasm, tmp_path: Path) -> None:
    whole = (stores.write(tmp_path / "whole", "a", (4, 8), "float32")).read_bytes()
    (header,) = struct.unpack_from("<Q", whole)
    ends = {0, 1, 7, 8, 9, 8 + header // 2, 8 + header - 1, 8 + header, 9 + header, len(whole) - 1}
    for end in sorted(ends):
        path = tmp_path / f"cut-{end}" / "a" / FILE
        path.parent.mkdir(parents=True)
        path.write_bytes(whole[:end])
        error = refused(chiasm, path)
        assert f'"{path}": truncated: {end} bytes of ' in error
    assert f"{len(whole) - 1} bytes of {len(whole)}" in error


LIES: list[tuple[str, Any, bytes, str]] = [
    ("too-long", tensor(), b"x" * 17, "the header describes"),
    ("overlap", tensor() | {"other": tensor()["ec_cache"]}, b"x" * 16, "header is wrong"),
    ("gap", tensor(offsets=(4, 20)), b"x" * 20, "header is wrong"),
    ("reversed", tensor(offsets=(16, 0)), b"x" * 16, "header is wrong"),
    ("too-few-bytes", tensor(offsets=(0, 12)), b"x" * 12, "header is wrong"),
    ("too-many-bytes", tensor(offsets=(0, 20)), b"x" * 20, "header is wrong"),
    ("offsets-past-64-bits", tensor(offsets=(0, 1 << 64)), b"", "header is wrong"),
    ("offsets-near-64-bits", tensor("U8", (1, (1 << 64) - 1), (0, (1 << 64) - 1)), b"", "wrong"),
    ("shape-overflows", tensor(shape=(1 << 40, 1 << 40)), b"x" * 16, "header is wrong"),
    ("negative", tensor(shape=(-2, -2)), b"x" * 16, "header is wrong"),
    ("float-shape", tensor(shape=(2.0, 2)), b"x" * 16, "header is wrong"),
    ("zero-rows", tensor(shape=(0, 4), offsets=(0, 0)), b"", "both must be from 1"),
    ("zero-width", tensor(shape=(4, 0), offsets=(0, 0)), b"", "both must be from 1"),
    ("one-dimension", tensor(shape=(4,)), b"x" * 16, "has 1 dimensions, expected 2"),
    ("three-dimensions", tensor(shape=(1, 2, 2)), b"x" * 16, "has 3 dimensions, expected 2"),
    ("no-dimension", tensor(shape=(), offsets=(0, 4)), b"x" * 4, "has 0 dimensions, expected 2"),
    ("dtype-unknown", tensor("F33"), b"x" * 16, "header is wrong"),
    ("dtype-not-ours", tensor("F4", (2, 2), (0, 2)), b"xx", "F4"),
    ("dtype-number", tensor(7), b"x" * 16, "header is wrong"),  # type: ignore[arg-type]
    ("no-tensor", {}, b"", "no tensor named ec_cache; the file has: nothing"),
    ("other-tensor", {"image": tensor()["ec_cache"]}, b"x" * 16, 'the file has: "image"'),
    ("array", [], b"", "header is wrong"),
    ("null", None, b"", "header is wrong"),
    ("no-json", b"\x00" * 16, b"", "header is wrong"),
    ("no-utf8", b'{"\xff": 1}', b"", "header is wrong"),
    ("deep", b'{"a":' * 100_000, b"", "header is wrong"),
    ("empty", b"", b"", "header is wrong"),
]


@pytest.mark.parametrize(("header", "data", "named"), [lie[1:] for lie in LIES], ids=[
    lie[0] for lie in LIES
])  # fmt: skip
def test_a_header_that_lies_is_refused(
    chiasm: Chiasm, tmp_path: Path, header: Any, data: bytes, named: str
) -> None:
    path = write(tmp_path / "store", header, data)
    error = refused(chiasm, tmp_path / "store")
    assert error.startswith(f'"{path}": ')
    assert named in error
    assert error.isprintable()
    assert len(error) < 700


@pytest.mark.parametrize("length", [(1 << 20) + 1, 1 << 32, 1 << 63, (1 << 64) - 1])
def test_a_header_of_a_giant_length_is_refused(chiasm: Chiasm, tmp_path: Path, length: int) -> None:
    write(tmp_path / "store", tensor(), b"x" * 16, length)
    error = refused(chiasm, tmp_path / "store")
    assert f"a header of {length} bytes, more than the limit of 1048576" in error


def test_a_file_of_another_kind_is_refused(chiasm: Chiasm, tmp_path: Path) -> None:
    path = tmp_path / "store" / "a" / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PK\x03\x04" + os.urandom(1000))
    assert "no safetensors file" in refused(chiasm, path)


def test_every_bad_file_is_named_at_once(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", good=(1, 1), short=(1, 1), other=(1, 1))
    os.truncate(store / "short" / FILE, 20)
    stores.write(store, "named", tensor="image")
    (store / "other" / FILE).write_bytes(b"")
    error = refused(chiasm, store)
    assert error.count("\n") == 2, "one line each"
    for name in ("short", "named", "other"):
        assert str(store / name / FILE) in error
    assert "good" not in error


def test_what_is_no_store_is_named(chiasm: Chiasm, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "empty", tmp_path / "file", tmp_path / "missing"):
        assert str(path) in refused(chiasm, path)
    assert "No such file" in refused(chiasm, tmp_path / "missing")
    assert "encoder_cache.safetensors" in refused(chiasm, tmp_path / "empty")


def test_a_pipe_or_a_directory_in_place_of_a_file_is_refused(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    pipe = tmp_path / "a" / "pipe" / FILE
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    assert "not a regular file" in refused(chiasm, tmp_path / "a")
    (tmp_path / "b" / "dir" / FILE).mkdir(parents=True)
    assert "not a regular file" in refused(chiasm, tmp_path / "b")


def test_one_hash_from_two_stores_is_refused(chiasm: Chiasm, tmp_path: Path) -> None:
    one, two = stores.some(tmp_path / "1", a=(1, 1)), stores.some(tmp_path / "2", a=(2, 2))
    error = refused(chiasm, one, two)
    assert str(one) in error
    assert str(two) in error
    assert "was given by" in error


def test_a_directory_name_that_is_no_text_is_refused(chiasm: Chiasm, tmp_path: Path) -> None:
    stores.some(tmp_path / "store", a=(1, 1))
    os.rename(tmp_path / "store" / "a", os.fsencode(tmp_path / "store") + b"/\xff\xfe")
    assert "not UTF-8" in refused(chiasm, tmp_path / "store")


def test_more_encodings_than_one_announcement_holds_are_refused(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    data = stores.write(tmp_path / "one", "a", (1, 1)).read_bytes()
    for index in range(4097):
        path = tmp_path / "many" / f"{index:04}" / FILE
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
    error = refused(chiasm, tmp_path / "many")
    assert "more than 4096 encodings" in error
    path.unlink()
    done = chiasm.run("produce", tmp_path / "many", "--for=0", "--json")
    assert len(done.json["items"]) == 4096
