"""Python as the program of a NIXL helper process, as a node in Python starts it."""

import socket
import subprocess
import sys

COMMAND = [sys.executable, "-P", "-m", "chiasm._nixl_helper"]


def test_without_a_node_it_says_what_it_is() -> None:
    done = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "a part of Chiasm that a node starts" in done.stderr


def test_a_node_of_another_version_is_told_so() -> None:
    node, helper = socket.socketpair()
    with node, helper:
        process = subprocess.Popen(COMMAND, stdin=helper.fileno(), cwd="/")
        helper.close()
        node.settimeout(60)
        # A set-up of no version: a length, and that many bytes of nothing known.
        node.sendall(b"\x04\x00\x00\x00\xff\xff\xff\xff")
        answer = b"".join(iter(lambda: node.recv(4096), b""))
        assert b"another version of Chiasm" in answer
        assert process.wait(60) == 1


def test_it_ends_with_its_node() -> None:
    node, helper = socket.socketpair()
    with helper:
        process = subprocess.Popen(COMMAND, stdin=helper.fileno(), cwd="/")
        node.close()
    assert process.wait(60) in (0, 1, 2)
