"""What the README tells a newcomer to type, typed."""

import os
import socket
import subprocess
from pathlib import Path

from tests.cli.chiasm import MAX_SECONDS, ROOT, binary


def test_one_producer_and_one_consumer(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().split("\n## One producer, one consumer\n")[1]
    build, *typed = section.split("```\n")[1].splitlines()
    assert build.startswith("make build; export PATH=")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Whatever fails, the producer ends.
    around = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT", *typed, "wait"]
    script = "\n".join(around).replace("40123", str(port))
    (tmp_path / "testdata").symlink_to(ROOT / "testdata")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{Path(binary()).parent}:{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stdout.count("fetched") == 4
    assert "4 granted" in done.stderr
    left = [path.name for path in tmp_path.iterdir()]
    assert left == ["testdata"], "nothing is left for the next time"
