"""Who has bytes of whom waiting in a socket: as far as a read over UCX's tcp shows from outside."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tests.cli.nodes import until


@dataclass(frozen=True)
class Socket:
    """One tcp connection of this host, as one of its ends has it."""

    here: str
    there: str
    unread: int


def sockets(pid: int) -> list[Socket]:
    """The tcp connections of a process."""
    links = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(os.readlink(path))
        except FileNotFoundError:
            continue  # closed meanwhile
    mine = {found[1] for link in links if (found := re.fullmatch(r"socket:\[(\d+)\]", link))}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        Socket(row[1], row[2], int(row[4].partition(":")[2], 16)) for row in rows if row[9] in mine
    ]


def asked(stopped: int, by: int) -> None:
    """Waits until bytes of process `by` wait in a socket of a process that is stopped."""

    def waits() -> bool | None:
        theirs = {socket.here for socket in sockets(by)}
        mine = (it for it in sockets(stopped) if it.there in theirs)
        return any(it.unread for it in mine) or None

    until(waits, "bytes for the process that is stopped")
