"""The checks that `scripts/check_device.py` runs where there is an accelerator, on a stand-in."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from chiasm.vllm.device_copies import DeviceCopies
from tests.vllm.test_device_copies import HostDevice, Stream


def load() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "check_device.py"
    spec = importlib.util.spec_from_file_location("check_device", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_device = load()


class ReadyDevice(HostDevice):
    """Its copies have ended when they begin, and any number of instances may use it."""

    def __init__(self) -> None:
        super().__init__()
        self.copies_end.set()

    def new_stream(self) -> Stream:
        return Stream(self.log, "beside")


@pytest.mark.parametrize("check", check_device.CHECKS, ids=lambda check: check.__name__)
def test_a_check_passes_on_a_device_of_host_memory(check: object) -> None:
    assert callable(check)
    check(ReadyDevice())


def test_a_copy_that_goes_wrong_fails_the_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(
        self: DeviceCopies, order: object, tensor: torch.Tensor, *, into_region: bool
    ) -> None:
        # Not nothing: what is loaded into may be memory that has the right bytes from before.
        if not into_region:
            tensor.fill_(-2)

    monkeypatch.setattr(DeviceCopies, "_copy", wrong)
    assert check_device.run(ReadyDevice()) == len(check_device.CHECKS)
    assert "FAILED" in capsys.readouterr().out


def test_the_figures_have_both_directions() -> None:
    text = check_device.measure(ReadyDevice(), rows=64, rounds=1)
    for what in ("save", "load", "to pinned memory", "from pinned memory"):
        assert what in text
