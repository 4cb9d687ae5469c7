"""How helper processes come and go."""

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.interop.nixl.processes import Start, environment

ROLES = pytest.mark.parametrize("role", ["read", "serve:a_dp0"])


@ROLES
def test_a_helper_ends_when_its_node_is_killed(helper: Start, role: str) -> None:
    running = helper(role, 8).up()
    running.signal(signal.SIGKILL)
    assert running.has_ended()


@ROLES
def test_a_helper_ends_when_its_node_is_killed_before_it_is_up(helper: Start, role: str) -> None:
    running = helper(role, 8)
    running.signal(signal.SIGKILL)
    assert running.has_ended()


@ROLES
def test_a_stopped_helper_can_be_killed(helper: Start, role: str) -> None:
    running = helper(role, 8).up()
    running.signal_helper(signal.SIGSTOP)
    running.say("kill")
    assert running.event("Ended")["signal"] == signal.SIGKILL
    assert running.has_ended()


@ROLES
def test_a_killed_helper_is_an_event(helper: Start, role: str) -> None:
    running = helper(role, 8).up()
    running.signal_helper(signal.SIGKILL)
    assert running.event("Ended")["signal"] == signal.SIGKILL


@ROLES
def test_signals_for_the_node_do_not_end_its_helpers(helper: Start, role: str) -> None:
    running = helper(role, 8).up()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        running.signal_helper(number)
    running.say("kill")
    # By that, and not by what came before.
    assert running.event("Ended")["signal"] == signal.SIGKILL


@ROLES
def test_a_helper_sees_little_of_its_nodes_environment(
    helper: Start, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHIASM_SECRET", "of the node")
    monkeypatch.setenv("NIXL_ETCD_ENDPOINTS", "http://nowhere:2379")
    monkeypatch.setenv("FI_PROVIDER", "tcp")
    running = helper(role, 8, ports=[42000, 42100], interfaces="lo").up()
    entries = Path(f"/proc/{running.id}/environ").read_bytes().split(b"\0")
    seen = dict(entry.split(b"=", 1) for entry in entries if entry)
    allowed = {b"LD_LIBRARY_PATH", b"PATH", b"HOME", b"LANG", b"CUDA_VISIBLE_DEVICES"}
    assert {name for name in seen if not name.startswith((b"UCX_", b"NIXL_", b"FI_"))} <= allowed
    assert seen[b"CUDA_VISIBLE_DEVICES"] == b""
    assert b"NIXL_ETCD_ENDPOINTS" not in seen
    assert seen[b"FI_PROVIDER"] == b"tcp", "transports are tuned as ever"
    assert seen[b"UCX_MEM_EVENTS"] == b"n"
    assert seen[b"UCX_TCP_PORT_RANGE"] == b"42000-42100"
    assert seen[b"UCX_NET_DEVICES"] == b"lo"


def test_ucx_listens_where_it_is_told_to(helper: Start) -> None:
    running = helper("serve:a_dp0", 8, tls="tcp", ports=[42000, 42100], interfaces="lo").up()
    inodes = set()
    for descriptor in Path(f"/proc/{running.id}/fd").iterdir():
        target = os.readlink(descriptor)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                listening.append((address, int(port, 16)))
    assert listening, "it listens nowhere"
    assert all(42000 <= port <= 42100 for _, port in listening), listening
    assert all(address == "0100007F" for address, _ in listening), listening


@pytest.mark.parametrize("role", ["probe", "read", "serve:a_dp0"])
def test_without_nixl_there_is_a_reason(helper: Start, tmp_path: Path, role: str) -> None:
    running = helper(role, 8, python_prefixes=[str(tmp_path)])
    reason = running.event("Refused")["reason"]
    assert str(tmp_path) in reason
    assert "pip install" in reason
    assert running.event("Ended")["code"] == 1


def test_a_backend_that_is_not_there_is_named(helper: Start) -> None:
    running = helper("probe", 8, backend="LIBFABRIC")
    reason = running.event("Refused")["reason"]
    assert "LIBFABRIC" in reason
    assert running.event("Ended")["code"] == 1


# NIXL's library, of which one function is not the real one's once a file is there.
NOT_REAL = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

int FUNCTION(void *agent, void *first, void *second) {
    int (*real)(void *, void *, void *) = dlsym(RTLD_NEXT, NAME);
    return access(FROM, F_OK) == 0 ? STATUS : real(agent, first, second);
}
"""


def not_real(dir: Path, real: Path, function: str, status: int) -> Path:
    """Builds that library; the file is `from` in the same directory."""
    source, library = dir / "not_real.c", dir / "libnot_real.so"
    source.write_text(NOT_REAL)
    defined = {"FUNCTION": function, "NAME": f'"{function}"', "FROM": f'"{dir}/from"'}
    defined["STATUS"] = str(status)
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-o", library, source]
    command += [f"-D{name}={value}" for name, value in defined.items()]
    subprocess.run([*command, "-Wl,--no-as-needed", real, f"-Wl,-rpath,{real.parent}"], check=True)
    return library


@pytest.fixture
def real(helper: Start) -> Path:
    """NIXL's library."""
    probe = helper("probe", 8)
    probe.event("Warning")
    return Path(probe.event("Ready")["library"])


def test_nixl_that_fails_at_work_ends_its_helper_with_a_reason(
    helper: Start, tmp_path: Path, real: Path
) -> None:
    library = not_real(tmp_path, real, "nixl_capi_get_notifs", -1)
    serving = helper("serve:a_dp0", 8, library=str(library)).up()
    (tmp_path / "from").touch()
    serving.say({"Live": True})
    # Not a refusal: that would take NIXL from the node for good.
    ended = serving.event("Ended")
    assert (ended["code"], ended["signal"]) == (3, None)
    assert "ended with code 3; its last words: " in ended["text"], "there is a reason"


@pytest.mark.parametrize("role", ["probe", "read", "serve:a_dp0"])
def test_a_self_test_that_takes_too_long_is_no_refusal(
    helper: Start, tmp_path: Path, real: Path, role: str
) -> None:
    # No notification ever comes.
    library = not_real(tmp_path, real, "nixl_capi_get_notifs", 0)
    (tmp_path / "from").touch()
    ended = helper(role, 8, library=str(library)).event("Ended")
    assert (ended["code"], ended["signal"]) == (3, None)
    assert "its self test did not end in time" in ended["text"]


def test_a_probe_says_what_there_is(helper: Start) -> None:
    running = helper("probe", 8)
    assert "UCX" in running.event("Warning")["text"]
    ready = running.event("Ready")
    assert ready["backend"] == "UCX"
    assert Path(ready["library"]).is_relative_to(environment())
    assert running.event("Ended")["code"] == 0


@ROLES
def test_an_idle_helper_sleeps(helper: Start, role: str) -> None:
    running = helper(role, 8).up()

    def switches() -> int:
        status = Path(f"/proc/{running.id}/status").read_text()
        return int(status.split("voluntary_ctxt_switches:")[1].split()[0])

    # A quarter of a second in which nothing is expected from it; reading from the driver waits.
    before = switches()
    select.select([running.process.stdout], [], [], 0.25)
    assert switches() - before <= 5
