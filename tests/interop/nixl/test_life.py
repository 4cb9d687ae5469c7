"""How helper processes come and go."""

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.interop.nixl.processes import BLOCK, Start, environment, pattern

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
    defined = {"FUNCTION": function, "NAME": f'"{function}"', "FROM": f'"{dir}/from"'}
    return before(real, NOT_REAL, dir, **defined, STATUS=str(status))


# NIXL's library as one whose device takes no memory that cannot be written: it writes the first
# byte of each range onto itself.
TAKES_NO_READ_ONLY = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

typedef int add(void *, uintptr_t, size_t, uint64_t, const void *, size_t);

int nixl_capi_reg_dlist_add_desc(
    void *list, uintptr_t at, size_t bytes, uint64_t device, const void *more, size_t more_bytes) {
    add *real = (add *)dlsym(RTLD_NEXT, "nixl_capi_reg_dlist_add_desc");
    int memory = open("/proc/self/mem", O_RDONLY);
    ssize_t written = pread(memory, (void *)at, 1, (off_t)at);
    close(memory);
    return written == 1 ? real(list, at, bytes, device, more, more_bytes) : -1;
}
"""


def before(real: Path, source: str, dir: Path, **defined: str) -> Path:
    """Builds a library whose functions stand before those of NIXL's."""
    file, library = dir / "before.c", dir / "libbefore.so"
    file.write_text(source)
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-o", library, file]
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


def test_where_read_only_memory_is_not_taken_it_is_served_writable_and_said(
    helper: Start, peer: Start, tmp_path: Path, real: Path
) -> None:
    library = before(real, TAKES_NO_READ_ONLY, tmp_path)
    serving = helper("serve:vision_dp0", 8, library=str(library))
    assert "registered for writing too" in serving.event("Warning")["text"]
    assert not serving.up().ready["read_only"]
    serving.blocks[:] = pattern(8)
    serving.say({"Live": True})
    reader = peer("reader", 8)
    reader.ask("load", metadata=bytes(serving.ready["agent_metadata"]).hex())
    done = reader.ask(
        "transfer",
        operation="READ",
        agent="vision_dp0",
        local=[(0, 8 * BLOCK)],
        remote=[(serving.ready["base_address"], 8 * BLOCK)],
        note="session:hash",
    )
    assert done["state"] == "DONE", done
    assert reader.bytes(8 * BLOCK) == pattern(8)


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
