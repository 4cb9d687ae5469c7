"""What this process and its threads have used, as the kernel counts it."""

import os
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def status_kib(field: str) -> int:
    """A field of /proc/self/status in KiB: RssAnon is what a region's pages are not part of."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(field)


def used(pid: int) -> tuple[float, int]:
    """CPU seconds of a process, and times that a thread of it has gone to sleep: each is followed
    by a wake-up."""
    ticks, sleeps = 0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                sleeps += int(line.split()[1])
    return ticks / TICKS_PER_S, sleeps


def children(pid: int, word: bytes) -> list[int]:
    """Children of a process whose command line has this word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(") ", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and word in command:
            found.append(int(path.parent.name))
    return found
