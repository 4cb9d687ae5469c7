"""Two hosts on one machine: each a network and a mount namespace of its own, joined by a wire.

A host has its own addresses, routes and /dev/shm, so that what holds between machines can be tried
on one: shm does not reach, a route can swallow everything, a link can go down. Needs the rights of
root and iproute2, as in CI.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.213.0"
DEVICE = "wire"


@dataclass(frozen=True)
class Host:
    """One of two hosts."""

    holder: int
    address: str

    @property
    def prefix(self) -> list[str]:
        """What runs a command on it."""
        spaces = [f"--{kind}=/proc/{self.holder}/ns/{name}" for kind, name in SPACES.items()]
        return ["nsenter", *spaces, f"--wdns={os.getcwd()}", "--"]

    def ip(self, *arguments: str) -> None:
        """Changes its links, addresses or routes."""
        subprocess.run([*self.prefix, "ip", *arguments], check=True)

    def path(self, path: str) -> Path:
        """A path on it, as seen from outside."""
        return Path(f"/proc/{self.holder}/root{path}")

    def swallow(self, address: str) -> None:
        """From now on nothing that is sent to this address arrives, and nobody is told."""
        self.ip("route", "add", "blackhole", f"{address}/32")

    def link(self, state: str) -> None:
        """Takes its wire `down`, or `up` again."""
        self.ip("link", "set", DEVICE, state)


SPACES = {"mount": "mnt", "net": "net"}


@contextmanager
def two(shm_bytes: int = 256 << 20) -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other and nobody else."""
    assert shutil.which("ip"), "ip is missing: apt install iproute2"
    with _host(1, shm_bytes) as one, _host(2, shm_bytes) as other:
        peer = ["peer", "name", DEVICE, "netns", str(other.holder)]
        one.ip("link", "add", DEVICE, "type", "veth", *peer)
        for host in (one, other):
            host.ip("address", "add", f"{host.address}/24", "dev", DEVICE)
            host.ip("link", "set", "lo", "up")
            host.link("up")
        yield one, other


@contextmanager
def _host(number: int, shm_bytes: int) -> Iterator[Host]:
    mount = f"mount -t tmpfs -o size={shm_bytes} chiasm-test /dev/shm && echo && exec cat"
    holder = subprocess.Popen(
        ["unshare", "--mount", "--net", "sh", "-c", mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"\n", "no namespaces: are these tests run by root?"
        yield Host(holder.pid, f"{NETWORK}.{number}")
    finally:
        holder.stdin.close()
        holder.wait(timeout=60)
        holder.stdout.close()
