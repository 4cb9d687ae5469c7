"""`chiasm status`: which nodes are found, what they say, who may ask."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import ROOT, Chiasm, binary
from tests.cli.namespace import private
from tests.cli.nodes import running, socket_of, status, until

MANUAL = ROOT / "docs" / "operations.md"
ANOTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def paths(value: Any, prefix: str = "") -> set[str]:
    """Every field of a JSON object, by its path; lists count as their elements."""
    if isinstance(value, list):
        return set().union(*(paths(element, prefix) for element in value)) or {prefix}
    if isinstance(value, dict) and value:
        fields = (paths(inner, f"{prefix}.{key}".lstrip(".")) for key, inner in value.items())
        return set().union(*fields)
    return {prefix}


def waiting(chiasm: Chiasm, directory: Path) -> tuple[Any, Any]:
    """A producer that never answers and a fetch that waits for it, as they say themselves."""
    producer = chiasm.produce(stores.some(directory / "store", a=(7, 2048)), "--fault=silent")
    fetch = chiasm.start_fetch(producer.announced, producer.endpoint)

    def look() -> Any | None:
        seen = running(chiasm, fetch.pid)
        links = seen["reading"]["producers"] if seen else []
        return seen if links and links[0]["link"] == "up" else None

    reading = until(look, "a link that is up")
    serving = status(chiasm, producer.endpoint)
    fetch.signal(signal.SIGTERM)
    assert fetch.wait().code == 1
    return serving, reading


def test_every_field_is_in_the_manual_and_no_other(chiasm: Chiasm, tmp_path: Path) -> None:
    # Rows of the table begin with | `path` |; objects whose keys are words have one row.
    _, _, section = MANUAL.read_text().partition("### Every field\n")
    section, _, _ = section.partition("\n### ")
    rows = set(re.findall(r"^\| `([a-z_.]+)` \|", section, re.MULTILINE))
    words = "nacks", "bytes", "failed", "fallbacks", "failures"
    fields = set()
    for node in waiting(chiasm, tmp_path):
        for path in paths(node):
            head, counters, word = path.partition(".counters.")
            fields.add(head + counters + word.split(".")[0] if word.startswith(words) else path)
    # An empty list has no more than its name.
    assert fields - {"serving.peers", "reading.producers"} == rows


def test_a_consumer_that_waits_is_seen_waiting(chiasm: Chiasm, tmp_path: Path) -> None:
    serving, seen = waiting(chiasm, tmp_path)
    reading = seen["reading"]
    assert seen["node"]["endpoint"] is None
    assert (reading["requests"], reading["waiting_items"], reading["transfers"]) == (1, 1, 1)
    assert reading["producers"] == [
        {"endpoint": serving["node"]["endpoint"], "link": "up", "breaker": "closed"}
    ]
    assert reading["allowed_endpoints"] == 1
    assert seen["blocks"]["free"] == seen["blocks"]["total"], "nothing is taken before the ack"
    assert seen["blocks"]["reserved"] in (0, 7), "for two seconds from the request"
    assert serving["serving"]["peers"] == [{"address": "127.0.0.1", "connections": 1}]


def test_a_node_is_found_by_name_beginning_path_and_endpoint(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL)
    (region,) = producer.running.regions()
    name = region.name
    for node in [name, name.removeprefix("chiasm-"), name[:-1], producer.endpoint]:
        assert status(chiasm, node)["node"]["process"] == producer.running.pid, node
    for path in [region, socket_of(region)]:
        assert status(chiasm, str(path))["node"]["process"] == producer.running.pid, path
    text = chiasm.run("status", name)
    assert text.code == 0
    assert text.out.startswith(f"{name}\n")
    assert f"endpoint {producer.endpoint}" in text.out


def test_without_a_name_there_is_a_table_of_all(chiasm: Chiasm) -> None:
    with private() as namespace:
        prefix = namespace.prefix
        nothing = chiasm.run("status", prefix=prefix)
        assert nothing.code == 0
        assert nothing.out == "no node of this user is running\n"
        assert chiasm.run("status", "--json", prefix=prefix).json == {"nodes": [], "silent": []}
        producers = [chiasm.produce(stores.REAL, prefix=prefix) for _ in range(2)]
        head, *rows = chiasm.run("status", prefix=prefix).out.splitlines()
        assert head.split()[:3] == ["node", "endpoint", "process"]
        assert {row.split()[1] for row in rows} == {one.endpoint for one in producers}
        nodes = chiasm.run("status", "--json", prefix=prefix).json["nodes"]
        assert len(nodes) == 2
        error = chiasm.run("status", "chiasm-", prefix=prefix).one_error()
        assert "more than one" in error
        for producer in producers:
            assert producer.endpoint in error, "what is there"
            assert producer.stop().code == 0


@pytest.mark.parametrize(
    "node", ["nobody", "", "chiasm-", "127.0.0.1:1", "/dev/shm/chiasm-nobody", "/etc/passwd", "é"]
)
def test_a_node_that_is_not_there_is_named_with_those_that_are(chiasm: Chiasm, node: str) -> None:
    with private() as namespace:
        error = chiasm.run("status", node, prefix=namespace.prefix).one_error()
        assert json.dumps(node, ensure_ascii=False) in error
        assert "no node of this user is running" in error
        producer = chiasm.produce(stores.REAL, prefix=namespace.prefix)
        if node != "chiasm-":
            error = chiasm.run("status", node, prefix=namespace.prefix).one_error()
            assert producer.endpoint in error
        assert producer.stop().code == 0


def test_a_node_that_does_not_answer_is_told_from_one_that_is_not_there(chiasm: Chiasm) -> None:
    with private() as namespace:
        prefix = namespace.prefix
        frozen = chiasm.produce(stores.REAL, prefix=prefix)
        other = chiasm.produce(stores.REAL, prefix=prefix)
        (region,) = frozen.running.regions(namespace.path("/dev/shm"))
        frozen.running.signal(signal.SIGSTOP)
        one = chiasm.run("status", region.name, prefix=prefix)
        assert one.code == 1
        assert "the node does not answer" in one.error_text()
        by_endpoint = chiasm.run("status", frozen.endpoint, prefix=prefix)
        assert by_endpoint.code == 1, "it may be the one that does not answer"
        assert region.name in by_endpoint.error_text()
        everybody = chiasm.run("status", prefix=prefix)
        assert everybody.code == 1
        assert other.endpoint in everybody.out
        assert region.name in everybody.err
        frozen.running.signal(signal.SIGCONT)
        assert status_in(chiasm, region.name, prefix)["node"]["process"] == frozen.running.pid

        assert frozen.stop(signal.SIGKILL).code == -signal.SIGKILL
        error = chiasm.run("status", region.name, prefix=prefix).one_error()
        assert "its node was killed" in error
        assert len(chiasm.run("status", "--json", prefix=prefix).json["nodes"]) == 1
        assert other.stop().code == 0


def status_in(chiasm: Chiasm, node: str, prefix: list[str]) -> Any:
    """The status of a node of a namespace."""
    return chiasm.run("status", node, "--json", prefix=prefix).json


def test_the_socket_is_private_whatever_the_umask(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL, prefix=["sh", "-c", 'umask 0; exec "$@"', "sh"])
    (region,) = producer.running.regions()
    there = socket_of(region).lstat()
    assert stat.S_ISSOCK(there.st_mode)
    assert stat.S_IMODE(there.st_mode) == 0o600
    assert there.st_uid == os.geteuid()


def test_another_user_finds_nobody_and_gets_no_answer(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL)
    (region,) = producer.running.regions()
    # A copy that everybody can run, wherever this checkout is.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        command = shutil.copy(binary(), directory)
        run = [*ANOTHER_USER, command, "status", "--json"]
        everybody = subprocess.run(run, cwd="/", check=True, capture_output=True, text=True)
        endpoints = [node["node"]["endpoint"] for node in json.loads(everybody.stdout)["nodes"]]
        assert producer.endpoint not in endpoints
        one = subprocess.run([*run, region], cwd="/", check=False, capture_output=True, text=True)
        assert one.returncode == 2
        assert "no socket of this user" in one.stderr


def test_watching_goes_on_until_a_signal(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL)
    watching = chiasm.start("status", producer.endpoint, "--json", "--watch=0.1")
    assert watching.stdout is not None
    seen = [json.loads(watching.stdout.readline()) for _ in range(3)]
    assert seen[0]["node"]["uptime_s"] < seen[2]["node"]["uptime_s"]
    watching.send_signal(signal.SIGINT)
    assert chiasm.watch(watching).wait().code == 0


def test_watching_a_node_ends_with_it(chiasm: Chiasm) -> None:
    producer = chiasm.produce(stores.REAL)
    (region,) = producer.running.regions()
    watching = chiasm.start("status", region.name, "--watch=0.1")
    assert watching.stdout is not None
    assert watching.stdout.readline() == f"{region.name}\n"
    assert producer.stop().code == 0
    assert chiasm.watch(watching).wait().code in (1, 2)


@pytest.mark.parametrize("seconds", ["0", "0.01", "-1", "x"])
def test_watching_has_a_shortest_pause(chiasm: Chiasm, seconds: str) -> None:
    assert "--watch" in chiasm.run("status", f"--watch={seconds}").one_error()
