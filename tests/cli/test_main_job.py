"""Encodings go from one process to another and are the same."""

import json
import re
from pathlib import Path

import pytest

from tests.cli import stores
from tests.cli.chiasm import ROOT, Chiasm

FETCH_KEYS = {
    "mm_hash",
    "bytes",
    "shape",
    "dtype",
    "plane",
    "ms",
    "verdict",
    "reason",
    "detail",
}


def test_real_encodings_arrive_byte_for_byte(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.REAL)
    done = chiasm.fetch(producer.announced, producer.endpoint, out=tmp_path / "copy")
    assert done.code == 0, done
    assert done.err == ""
    sums = stores.sha256sums(stores.REAL)
    assert len(sums) == 4
    assert stores.sha256sums(tmp_path / "copy") == sums
    assert done.verdicts() == dict.fromkeys(sums, ("fetched", None))
    assert done.json["connects"] == [producer.endpoint]


def test_every_dtype_arrives_byte_for_byte(chiasm: Chiasm, tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    for dtype in stores.DTYPES:
        stores.write(store, dtype, dtype=dtype)
    producer = chiasm.produce(store)
    done = chiasm.fetch(producer.announced, producer.endpoint, out=copy)
    assert done.code == 0, done
    assert {name: item["dtype"] for name, item in done.items().items()} == {
        dtype: dtype for dtype in stores.DTYPES
    }
    assert stores.sha256sums(copy) == stores.sha256sums(store)


def test_every_shape_arrives_byte_for_byte(chiasm: Chiasm, tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    shapes = {
        "one": (1, 1),
        "odd": (7, 13),
        "block": (1, 2048),
        "block-less-one": (1, 2047),
        "block-and-one": (1, 2049),
        "wide": (1, 100_003),
        "tall": (100_003, 1),
        "42MB": (5859, 3584),
    }
    for name, shape in shapes.items():
        stores.write(store, name, shape)
    producer = chiasm.produce(store)
    done = chiasm.fetch(producer.announced, producer.endpoint, out=copy)
    assert done.code == 0, done
    found = {name: (tuple(item["shape"]), item["bytes"]) for name, item in done.items().items()}
    assert found == {
        name: ((rows, width), rows * width * 2) for name, (rows, width) in shapes.items()
    }
    assert stores.sha256sums(copy) == stores.sha256sums(store)


@pytest.mark.parametrize("block", [1, 7, 4096, 100_000])
def test_any_block_size_that_both_sides_have_works(
    chiasm: Chiasm, tmp_path: Path, block: int
) -> None:
    store, copy = stores.some(tmp_path / "store", a=(7, 13), b=(64, 64)), tmp_path / "copy"
    producer = chiasm.produce(store, f"--block={block}")
    assert producer.params["a"]["size_bytes"] == -(-7 * 13 * 2 // block) * block
    done = chiasm.fetch(producer.announced, producer.endpoint, f"--block={block}", out=copy)
    assert done.code == 0, done
    assert stores.sha256sums(copy) == stores.sha256sums(store)


def test_stores_directories_and_files_can_be_named(chiasm: Chiasm, tmp_path: Path) -> None:
    store, copy = stores.some(tmp_path / "store", a=(1, 8), b=(2, 8), c=(3, 8)), tmp_path / "copy"
    other = stores.some(tmp_path / "other", d=(4, 8), e=(5, 8))
    producer = chiasm.produce(store / "a", store / "b" / stores.FILE_NAME, other)
    assert sorted(producer.params) == ["a", "b", "d", "e"]
    assert chiasm.fetch(producer.announced, producer.endpoint, out=copy).code == 0
    both = stores.sha256sums(store) | stores.sha256sums(other)
    del both["c"]
    assert stores.sha256sums(copy) == both


def test_an_announcement_has_the_keys_of_a_vllm_producer(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(
        stores.some(tmp_path / "store", a=(3, 5000), b=(1, 1)), "--modality=audio"
    )
    assert producer.params == {
        "a": {
            "modality": "audio",
            "metadata": {},
            "item_indices": [0],
            "peer_host": "127.0.0.1",
            "peer_port": producer.port,
            "size_bytes": 8 * 4096,
            "shape": [3, 5000],
        },
        "b": {
            "modality": "audio",
            "metadata": {},
            "item_indices": [1],
            "peer_host": "127.0.0.1",
            "peer_port": producer.port,
            "size_bytes": 4096,
            "shape": [1, 1],
        },
    }


def test_without_a_file_the_announcement_goes_to_standard_output(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    done = chiasm.run("produce", stores.REAL, "--for=0")
    assert done.code == 0
    assert list(done.json) == sorted(stores.sha256sums(stores.REAL))
    assert re.match(r"ready 127\.0\.0\.1:\d+\nstopped: ", done.err), done.err


def test_produce_says_in_json_what_it_serves(chiasm: Chiasm, tmp_path: Path) -> None:
    announced = tmp_path / "params.json"
    stores.write(tmp_path / "store", "a", (3, 5), "float8_e4m3fn")
    done = chiasm.run("produce", tmp_path / "store", "--for=0", "--json", "--announce", announced)
    assert done.code == 0
    summary = done.json
    assert summary.keys() == {
        "endpoint",
        "region",
        "block_size_bytes",
        "items",
        "ec_transfer_params",
    }
    assert done.err.startswith(f"ready {summary['endpoint']}\n")
    assert summary["region"].startswith("/dev/shm/chiasm-")
    assert summary["block_size_bytes"] == 4096
    assert summary["items"] == [
        {"mm_hash": "a", "bytes": 15, "shape": [3, 5], "dtype": "float8_e4m3fn"}
    ]
    assert summary["ec_transfer_params"] == json.loads(announced.read_text())


def test_fetch_reports_in_json(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(2, 8), b=(1, 1)))
    del (params := producer.params)["b"]["peer_host"]
    done = chiasm.fetch(params, producer.endpoint, "--planes=tcp")
    assert done.code == 1, "not all were fetched"
    assert done.json.keys() == {"items", "connects", "retries"}
    assert isinstance(done.json["retries"], int)
    assert [item["mm_hash"] for item in done.json["items"]] == ["a", "b"]
    fetched, missing = done.json["items"]
    assert fetched.keys() == missing.keys() == FETCH_KEYS
    assert fetched.pop("ms") > 0
    assert fetched == {
        "mm_hash": "a",
        "bytes": 32,
        "shape": [2, 8],
        "dtype": "bfloat16",
        "plane": "tcp",
        "verdict": "fetched",
        "reason": None,
        "detail": None,
    }
    assert "not announced" in missing.pop("detail")
    assert missing == {
        "mm_hash": "b",
        "bytes": None,
        "shape": None,
        "dtype": None,
        "plane": None,
        "ms": 0.0,
        "verdict": "unavailable",
        "reason": "not_announced",
    }


def test_fetch_reports_in_a_table(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(600, 1024), b=(1, 1)))
    del (params := producer.params)["b"]["peer_host"]
    tcp = "--planes=tcp"
    arguments = chiasm.fetch_arguments(params, producer.endpoint, tcp, out=tmp_path / "copy")
    done = chiasm.run(*(argument for argument in arguments if argument != "--json"))
    assert done.code == 1
    head, first, second, sentence = done.out.splitlines()
    assert head.split() == ["mm_hash", "shape", "dtype", "size", "plane", "ms", "verdict"]
    assert re.fullmatch(r" a +\[600, 1024\] +bfloat16 +1\.17 MiB +tcp +\d+\.\d +fetched *", first)
    assert re.fullmatch(r" b +0\.0 +unavailable not_announced *", second)
    assert sentence.startswith("b: it is not announced")


def test_produce_shows_a_table_next_to_a_file(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(600, 1024))
    done = chiasm.run("produce", store, "--for=0", "--announce", tmp_path / "params.json")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["mm_hash", "shape", "dtype", "size"],
        ["a", "[600,", "1024]", "bfloat16", "1.17", "MiB"],
    ]


def test_params_come_from_standard_input_too(chiasm: Chiasm, tmp_path: Path) -> None:
    producer = chiasm.produce(stores.REAL)
    allow = f"--allow={producer.endpoint}"
    text = producer.announced.read_text()
    done = chiasm.run("fetch", "--params", "-", "--out", tmp_path / "copy", allow, text=text)
    assert done.code == 0, done
    assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(stores.REAL)


def test_nothing_announced_is_nothing_to_do(chiasm: Chiasm, tmp_path: Path) -> None:
    done = chiasm.fetch({}, out=tmp_path / "copy")
    assert done.code == 0
    assert done.json == {"items": [], "connects": [], "retries": 0}


def test_a_fetch_in_windows_needs_no_more_than_its_region(chiasm: Chiasm, tmp_path: Path) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    for index in range(40):
        stores.write(store, f"item-{index:02}", (16 + index, 1024))
    producer = chiasm.produce(store)
    done = chiasm.fetch(producer.announced, producer.endpoint, "--region=128KiB", out=copy)
    assert done.code == 0, done
    assert stores.sha256sums(copy) == stores.sha256sums(store)


def test_an_item_larger_than_the_region_is_alone_in_that(chiasm: Chiasm, tmp_path: Path) -> None:
    store, copy = stores.some(tmp_path / "store", large=(33, 2048), small=(32, 2048)), tmp_path
    producer = chiasm.produce(store)
    done = chiasm.fetch(producer.announced, producer.endpoint, "--region=128KiB", out=copy / "copy")
    assert done.code == 1
    assert done.verdicts() == {
        "large": ("unavailable", "never_fits"),
        "small": ("fetched", None),
    }
    detail = done.items()["large"]["detail"]
    assert "33 blocks" in detail
    assert "32" in detail
    assert list(stores.sha256sums(copy / "copy")) == ["small"]


def test_help_teaches(chiasm: Chiasm) -> None:
    for command in ("produce", "fetch", "demo", "endpoint", "wire"):
        done = chiasm.run(command, "--help")
        assert done.code == 0
        assert "--json" in done.out
    assert "chiasm fetch --params params.json --allow" in chiasm.run("produce", "--help").out
    assert (
        "Exit codes: 0 done, 1 the work failed, 2 the input was wrong" in chiasm.run("--help").out
    )


def test_the_readme_of_the_real_encodings_is_no_encoding(chiasm: Chiasm) -> None:
    assert (ROOT / "testdata" / "ec-store" / "README.md").exists()
    done = chiasm.run("produce", stores.REAL, "--for=0", "--json")
    assert len(done.json["items"]) == 4
