"""The fixtures of the tests in this directory."""

from tests.cli.fixtures import chiasm

__all__ = ["chiasm"]
