"""The demo shows the main job, and what is refused, and ends in order."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.chiasm import MAX_SECONDS, Chiasm, binary

pytestmark = pytest.mark.slow

KEYS = {
    "mm_hash",
    "what",
    "bytes",
    "plane",
    "ms",
    "gb_per_s",
    "verdict",
    "expected",
    "reason",
    "identical",
}


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory in which the demo makes its own."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


def test_everything_goes_as_it_should(chiasm: Chiasm, temporary: Path) -> None:
    done = chiasm.run("demo", "--json")
    assert done.code == 0, done
    assert done.err == ""
    report = done.json
    assert report["as_expected"] is True
    assert all(line.keys() == KEYS for line in report["items"])
    moved = [line for line in report["items"] if line["expected"] == "fetched"]
    planes = [line["plane"] for line in moved]
    assert (planes.count("shm"), planes.count("tcp"), len(moved)) == (8, 4, 12)
    assert all(line["verdict"] == "fetched" and line["identical"] for line in moved)
    assert max(line["bytes"] for line in moved) > 41_000_000
    rest = {line["verdict"]: line["reason"] for line in report["items"] if line not in moved}
    assert rest == {
        "refused": "not_allowed",
        "unavailable": "nack_missing",
        "fallback": "refused",
    }
    assert os.listdir(temporary) == []


def test_a_newcomer_is_shown_a_table(chiasm: Chiasm, temporary: Path) -> None:
    done = chiasm.run("demo")
    assert done.code == 0, done
    assert done.err == "", "no progress bar without a terminal"
    lines = done.out.splitlines()
    assert len([line for line in lines if " fetched " in line and "identical" in line]) == 12
    for words in (" refused (not_allowed)", " unavailable (nack_missing)", " fallback (refused)"):
        assert len([line for line in lines if words in line]) == 1
    assert "Everything went as it should." in done.out
    assert "\x1b" not in done.out
    assert os.listdir(temporary) == []


def on_a_terminal(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output, and what a terminal on standard error has seen."""
    main, side = pty.openpty()
    try:
        process = subprocess.Popen(
            [str(binary()), *map(str, arguments)], stdout=subprocess.PIPE, stderr=side
        )
        os.close(side)
        seen = b""
        while True:
            try:
                seen += os.read(main, 1 << 16)
            except OSError:  # how Linux says that nobody has the other side any more
                break
        out, _ = process.communicate(timeout=MAX_SECONDS)
    finally:
        os.close(main)
    return process.returncode, out.decode(), seen.decode()


def test_a_terminal_is_shown_progress(temporary: Path) -> None:
    code, out, seen = on_a_terminal("demo", "--json")
    assert code == 0, seen
    assert "generating [" in seen
    assert "moving encodings to the other process" in seen
    assert "generating" not in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda it: it.name)
def test_a_signal_ends_it_and_all_that_it_started(
    chiasm: Chiasm, temporary: Path, number: signal.Signals
) -> None:
    demo = chiasm.watch(chiasm.start("demo", "--json"))
    children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children")
    # Its first child is the producer.
    while not (started := children.read_text().split()):
        assert demo.is_alive()
    demo.signal(number)
    done = demo.wait()
    assert done.code == 1
    assert done.error_text() == "stopped by a signal"
    assert os.listdir(temporary) == []
    assert not Path(f"/proc/{started[0]}").exists()
