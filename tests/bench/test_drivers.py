"""Every family of the benchmark with next to no work: that it runs, and what it says.

`make test-bench` sets CHIASM_BENCH to the folder of what was built, and has built it; without it
these tests are not collected. Not one of them looks at a time.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.families import FAMILIES, Family
from bench.programs import Programs
from bench.run import measure
from tests.interop.nixl.processes import environment

BOTH = {"chiasm", "upstream"}
PLANES = {"chiasm shm", "chiasm tcp", "chiasm nixl"}
EXPECTED = {
    "cache": BOTH,
    "admission": BOTH,
    "ack": {*BOTH, "chiasm, to upstream at first", "chiasm, to upstream later"},
    "transfers": {
        *PLANES,
        "upstream",
        "memcpy",
        "loopback stream",
        "process_vm_readv",
    },
    "nixl": {"chiasm nixl helper", "bare NIXL read", "upstream", "upstream, scattered"},
    "latency": BOTH,
    "contact": {*PLANES, "upstream"},
    "startup": BOTH,
    "fallback": BOTH,
    "idle": BOTH,
    "fleet": BOTH,
}
"""Who is measured in each family."""


@pytest.fixture(scope="module")
def programs() -> Iterator[Programs]:
    target = Path(os.environ["CHIASM_BENCH"])
    programs = Programs(
        target / "release/chiasm",
        environment() / "bin/python",
        target / "bench-site",
        target / "release/examples/drive",
    )
    yield programs
    programs.close()


def test_each_family_is_known() -> None:
    assert {family.name for family in FAMILIES} == EXPECTED.keys()


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_family_says_its_figures(family: Family, programs: Programs) -> None:
    rows = measure(family, programs, "smoke")
    assert {row["what"] for row in rows if row["family"] == family.name} == EXPECTED[family.name]
    for row in rows:
        assert row.keys() == {"family", "what", "case", "metric", "value"}
        assert math.isfinite(row["value"]), row
        assert row["value"] >= 0, row
    once = {(row["what"], str(row["case"]), row["metric"]) for row in rows}
    assert len(once) == len(rows), "no figure is said twice in one round"
    host = programs.host and programs.host.process
    assert not host or [*Path("/dev/shm").glob(f"*bench-{host.pid}-*")] == [], "nothing is left"
