"""The bound that one system call sets: bytes out of another process with process_vm_readv.

As `memcpy` in `chiasm bench transfers`: pieces of one size, 256 MiB in all, one after another, into
a private buffer. Nothing is looked up, asked for or hashed.
"""

import ctypes
import mmap
import os
import sys
import time
from statistics import median

from bench.rows import Effort, parser, row

BLOCK_BYTES = 7168
SIZES = (256 << 10, 2 << 20, 14 << 20, 64 << 20)
ROUND_BYTES = 256 << 20


class IoVec(ctypes.Structure):
    """A piece of memory, as readv has it."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.process_vm_readv.restype = ctypes.c_ssize_t


def copy(pid: int, there: int, here: int, size: int) -> None:
    """One piece; the kernel may do it in several."""
    done = 0
    while done < size:
        local, remote = IoVec(here + done, size - done), IoVec(there + done, size - done)
        count = LIBC.process_vm_readv(
            pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, ctypes.c_ulong(0)
        )
        if count <= 0:
            raise OSError(ctypes.get_errno(), "process_vm_readv")
        done += count


def main(arguments: list[str]) -> None:
    effort = Effort(parser(__doc__).parse_args(arguments).effort)
    whole = effort.choose(ROUND_BYTES, ROUND_BYTES, 4 << 20)
    # Private: the child's are others than these once both have written.
    buffers = [mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2)]
    addresses = [ctypes.addressof(ctypes.c_char.from_buffer(it)) for it in buffers]
    stay, tell = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(stay[1])
        ctypes.memset(addresses[0], 0xA5, whole)
        os.write(tell[1], b"!")
        os.read(stay[0], 1)
        os._exit(0)
    os.read(tell[0], 1)
    try:
        for size in (it for it in SIZES if it <= whole):
            bytes_each = size // BLOCK_BYTES * BLOCK_BYTES
            count = whole // size
            seconds = []
            for round_number in range(effort.choose(7, 3, 2)):
                start = time.perf_counter()
                for at in range(count):
                    offset = at * bytes_each
                    copy(child, addresses[0] + offset, addresses[1] + offset, bytes_each)
                # The first warms up: page tables.
                if round_number:
                    seconds.append((time.perf_counter() - start) / count)
            each = median(seconds)
            case = {"size_bytes": size, "outstanding": 1}
            row("transfers", "process_vm_readv", case, "transfers_per_s", 1 / each)
            row("transfers", "process_vm_readv", case, "gb_per_s", bytes_each / each / 1e9)
    finally:
        os.close(stay[1])
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
