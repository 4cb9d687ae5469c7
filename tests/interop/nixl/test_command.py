"""What the command says about NIXL, where NIXL is."""

import pytest

from tests.cli.chiasm import Chiasm
from tests.cli.fixtures import chiasm
from tests.interop.nixl.processes import environment

__all__ = ["chiasm"]


def test_planes_names_the_library_and_the_backend(
    chiasm: Chiasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(environment()))
    planes = {it["plane"]: it for it in chiasm.run("planes", "--json").json["planes"]}
    nixl = planes["nixl"]
    assert nixl["available"], nixl
    assert nixl["details"]["backend"] == "UCX"
    assert nixl["details"]["library"].startswith(str(environment()))
    assert "UCX has moved bytes" in chiasm.run("planes").out


def test_a_required_plane_is_tried_with_its_settings(
    chiasm: Chiasm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(environment()))
    config = '{"ec_cpu_bytes": "1GiB", "ec_planes": ["nixl required"]%s}'
    assert "nixl is required" not in chiasm.run("config", "check", config % "").err
    nowhere = config % ', "ec_nixl_library": "/nowhere"'
    done = chiasm.run("config", "check", nowhere)
    assert "nixl is required, and on this machine it is not there" in done.err
    assert "/nowhere" in done.err
