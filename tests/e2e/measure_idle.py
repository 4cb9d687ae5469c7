"""How much CPU a producer engine uses while nobody asks for anything.

    scripts/measure-engine-idle [SECONDS]

Starts one engine after the other, as an HTTP server: without a connector, with upstream's, and with
Chiasm, the two set up so that others may read from them. Each encodes one image, settles, and then
nothing happens for SECONDS (10). Prints what all of its processes together have used meanwhile.
Upstream's connector needs vLLM's second model runner, so all have that.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from tests.e2e import environment
from tests.e2e.apis import APIS, Picture
from tests.e2e.engines import Server, free_ports
from tests.e2e.fleet import ENCODER, connector, listening, upstream, with_plugin

SETTLE = 5  # seconds


def cpu_seconds(session: int) -> float:
    """CPU time of all processes that belong to a session."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def idle_share(kind: str, seconds: float, folder: Path) -> float:
    """The share of one core that an idle producer with this connector uses."""
    connectors = {
        "upstream": upstream("ec_producer", "e0"),
        "chiasm": connector("ec_producer", "e0", ec_remote=True),
        "none": None,
    }
    server = Server(
        *(kind, folder, environment.model("qwen2_vl")),
        connector=connectors[kind],
        v2=True,
        environment=listening(free_ports(1)) | (with_plugin() if kind == "chiasm" else {}),
        **({} if kind == "none" else ENCODER),
    )
    try:
        server.ready()
        assert APIS[0].ask(server, Picture(1), max_tokens=1).status == 200
        time.sleep(SETTLE)
        before, start = cpu_seconds(server.process.pid), time.monotonic()
        time.sleep(seconds)
        return (cpu_seconds(server.process.pid) - before) / (time.monotonic() - start)
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=10.0, help="how long, each (10)")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("none", "upstream", "chiasm"):
            share = idle_share(kind, seconds, Path(folder))
            print(f"{kind:10}{share:7.1%} of a core over {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
