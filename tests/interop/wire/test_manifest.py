"""The chiasm command shows every recorded message as the manifest has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.wire import command

VECTORS = command.ROOT / "testdata" / "wire"
ROWS = json.loads((VECTORS / "manifest.json").read_text())


def recorded(row: dict[str, Any]) -> Path:
    return VECTORS / f"{row['name']}.hex"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_decode_gives_the_recorded_verdict_and_value(row: dict[str, Any]) -> None:
    verdict = command.decode(row["kind"], bytes.fromhex(recorded(row).read_text()))
    if row["expect"] == "ok":
        assert verdict.value == row["value"]
    else:
        assert verdict.reason is not None


def complete(row: dict[str, Any]) -> bool:
    """Whether the row was made by upstream's encoder and shows all that is in the message."""
    if row["source"] != "encoder":
        return False
    if isinstance(row["value"], list):
        return True
    summaries = [part for part in row["value"].values() if isinstance(part, dict)]
    return "rows" not in row["value"] and all(part.get("bin_len") == 0 for part in summaries)


@pytest.mark.parametrize("row", [row for row in ROWS if complete(row)], ids=lambda row: row["name"])
def test_encode_gives_the_recorded_bytes(row: dict[str, Any]) -> None:
    value = row["value"]
    if isinstance(value, dict):
        value = {k: {"hex": ""} if isinstance(v, dict) else v for k, v in value.items()}
    assert command.encode(row["kind"], value) == bytes.fromhex(recorded(row).read_text())
