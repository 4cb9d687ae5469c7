"""Where an instance serves: what is bound is what is announced, defaults never meet on one host,
and what nobody could connect to is refused at the start."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chiasm import Chiasm
from tests.e2e import environment
from tests.e2e.engines import Connectors, free_ports
from tests.e2e.fleet import connector, listening, with_plugin

# What an operator may have set and a default does not have.
UNSET: dict[str, str | None] = {
    "VLLM_EC_SIDE_CHANNEL_HOST": None,
    "VLLM_EC_SIDE_CHANNEL_PORT": None,
    "VLLM_HOST_IP": None,
}


@pytest.fixture(scope="module")
def connectors(engine_logs: Path) -> Iterator[Connectors]:
    model = environment.model("qwen2_vl")
    process = Connectors("connectors", engine_logs, model, environment=with_plugin())
    try:
        yield process.ready()
    finally:
        process.stop()


def producer(name: str) -> dict[str, Any]:
    return connector("ec_producer", name, ec_remote=True)


def node(chiasm: Chiasm, transfer: dict[str, Any], rank: int = 0) -> dict[str, Any]:
    """The instance with this configuration, as `chiasm status` shows it."""
    region = f"chiasm-{transfer['engine_id']}_dp{rank}"
    nodes: list[dict[str, Any]] = chiasm.run("status", "--json").json["nodes"]
    (found,) = (node for node in nodes if region in json.dumps(node))
    return found


def endpoint(chiasm: Chiasm, transfer: dict[str, Any], rank: int = 0) -> str:
    """Where that instance serves."""
    return str(node(chiasm, transfer, rank)["node"]["endpoint"])


def agent(chiasm: Chiasm, transfer: dict[str, Any], rank: int = 0) -> str:
    """What NIXL knows that instance by."""
    return str(node(chiasm, transfer, rank)["nixl"]["serve"]["agent"])


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def test_two_producers_with_defaults_live_on_one_host(
    connectors: Connectors, chiasm: Chiasm
) -> None:
    one, other = producer("default-a"), producer("default-b")
    for transfer in (one, other):
        assert connectors.build(transfer, environment=UNSET) is None
    endpoints = [endpoint(chiasm, transfer) for transfer in (one, other)]
    assert port_of(endpoints[0]) != port_of(endpoints[1])
    agents = [agent(chiasm, transfer) for transfer in (one, other)]
    assert agents == [f"{transfer['engine_id']}_dp0" for transfer in (one, other)]
    assert agents[0] != agents[1]
    for found in endpoints:
        host, _, port = found.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60):
            pass


def test_a_rank_has_the_port_that_is_its_index_higher(
    connectors: Connectors, chiasm: Chiasm
) -> None:
    base = free_ports(2)
    transfer = producer("ranks")
    for rank in (0, 1):
        assert connectors.build(transfer, environment=listening(base), rank=rank) is None
        assert endpoint(chiasm, transfer, rank) == f"127.0.0.1:{base + rank}"
        assert agent(chiasm, transfer, rank) == f"{transfer['engine_id']}_dp{rank}"


def test_a_port_in_use_is_named(connectors: Connectors) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = connectors.build(producer("taken"), environment=listening(port))
    assert error is not None
    assert str(port) in error
    assert "in use" in error


@pytest.mark.parametrize(
    ("variable", "host"),
    [
        *(("VLLM_EC_SIDE_CHANNEL_HOST", host) for host in ("*", "0.0.0.0", "::", "")),
        # What the engine finds; an empty one counts as not set.
        *(("VLLM_HOST_IP", host) for host in ("0.0.0.0", "::")),
    ],
)
def test_a_wildcard_is_refused_given_or_detected(
    connectors: Connectors, variable: str, host: str
) -> None:
    error = connectors.build(producer("wildcard"), environment=UNSET | {variable: host})
    assert error is not None
    assert "VLLM_EC_SIDE_CHANNEL_HOST" in error


def test_localhost_serves_this_host_alone(connectors: Connectors, chiasm: Chiasm) -> None:
    transfer = producer("loopback")
    hosts = {"VLLM_EC_SIDE_CHANNEL_HOST": "localhost"}
    assert connectors.build(transfer, environment=UNSET | hosts) is None
    port = port_of(endpoint(chiasm, transfer))
    listening_at = {
        address for address, found in listening_sockets(connectors.process.pid) if found == port
    }
    assert listening_at <= {"127.0.0.1", "::1"}
    assert listening_at


def listening_sockets(pid: int) -> list[tuple[str, int]]:
    """Address and port of every TCP socket that this process listens at."""
    links = (link for link in Path(f"/proc/{pid}/fd").iterdir())
    inodes = set()
    for link in links:
        try:
            inodes.add(link.readlink().name)
        except OSError:
            continue  # closed meanwhile
    found = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A" or f"socket:[{fields[9]}]" not in inodes:
                continue
            address, port = fields[1].split(":")
            # Words in the machine's order, each of four bytes.
            words = [address[place : place + 8] for place in range(0, len(address), 8)]
            raw = b"".join(int(word, 16).to_bytes(4, "little") for word in words)
            found.append((socket.inet_ntop(family, raw), int(port, 16)))
    return found
