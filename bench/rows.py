"""What a driver has to say: one figure, one line of JSON; and how much it is to do."""

import argparse
import json
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")

EFFORTS = ("full", "quick", "smoke")
"""The figures; the order of things; that everything runs."""


class Effort:
    """How much to do."""

    def __init__(self, name: str) -> None:
        self.at = EFFORTS.index(name)

    def choose(self, full: T, quick: T, smoke: T) -> T:
        return (full, quick, smoke)[self.at]

    @property
    def is_smoke(self) -> bool:
        return self.at == EFFORTS.index("smoke")


def parser(text: str | None) -> argparse.ArgumentParser:
    """The arguments that every driver has."""
    made = argparse.ArgumentParser(description=text)
    made.add_argument("--effort", choices=EFFORTS, default="full")
    return made


def row(family: str, what: str, case: dict[str, Any], metric: str, value: float) -> None:
    """Says one figure."""
    line = {"family": family, "what": what, "case": case, "metric": metric, "value": value}
    print(json.dumps(line), flush=True)


def percentile_ms(seconds: Sequence[float], percent: int) -> float:
    """The value below which so many percent lie, in milliseconds."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return ordered[-(-last * percent // 100)] * 1e3
