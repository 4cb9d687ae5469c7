"""How much a producer does while nobody asks for anything: CPU time and wake-ups, peers connected.

    .venv/bin/python scripts/measure-idle.py [SECONDS]

Runs `chiasm produce` (CHIASM_BIN, else target/release/chiasm) with the store testdata/ec-store,
connects two DEALER sockets of libzmq to it, lets them settle, and reads /proc before and after.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import zmq

ROOT = Path(__file__).resolve().parent.parent


def sample(pid: int) -> tuple[float, int]:
    """CPU seconds, and times that a thread has gone to sleep: each is followed by a wake-up."""
    ticks, sleeps = 0, 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                sleeps += int(line.split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), sleeps


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    binary = os.environ.get("CHIASM_BIN", str(ROOT / "target/release/chiasm"))
    command = [binary, "produce", str(ROOT / "testdata/ec-store"), f"--for={seconds + 30}"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        endpoint = next(line.split()[1] for line in process.stderr if line.startswith("ready "))
        context = zmq.Context()
        peers = [context.socket(zmq.DEALER) for _ in range(2)]
        for peer in peers:
            peer.connect(f"tcp://{endpoint}")
            peer.send_multipart([b"", b"no request at all"])
        time.sleep(3)
        cpu_before, sleeps_before = sample(process.pid)
        start = time.monotonic()
        time.sleep(seconds)
        elapsed = time.monotonic() - start
        cpu, sleeps = sample(process.pid)
        print(f"{elapsed:.1f} s, two peers connected:")
        print(f"  CPU      {(cpu - cpu_before) / elapsed:.2%} of a core")
        print(f"  wake-ups {(sleeps - sleeps_before) / elapsed:.1f} per second")
        context.destroy(linger=0)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
