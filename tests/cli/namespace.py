"""A mount namespace of the test's own: its /dev/shm and its files in /etc are nobody else's.

Needs the rights of root, as in CI.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Namespace:
    """Where commands can be run in a private mount namespace."""

    holder: int

    @property
    def prefix(self) -> list[str]:
        """What runs a command in it."""
        return ["nsenter", f"--mount=/proc/{self.holder}/ns/mnt", f"--wdns={os.getcwd()}", "--"]

    def path(self, path: str) -> Path:
        """A path in it, as seen from outside."""
        return Path(f"/proc/{self.holder}/root{path}")

    def run(self, *command: str) -> None:
        """Changes something in it."""
        subprocess.run([*self.prefix, *command], check=True)


@contextmanager
def private(shm_bytes: int = 64 << 20) -> Iterator[Namespace]:
    """A namespace with an empty /dev/shm of this size."""
    mount = f"mount -t tmpfs -o size={shm_bytes} chiasm-test /dev/shm && echo && exec cat"
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"\n", "no mount namespace: are these tests run by root?"
        yield Namespace(holder.pid)
    finally:
        holder.stdin.close()
        holder.wait(timeout=60)
        holder.stdout.close()
