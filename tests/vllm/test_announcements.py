"""What a producer says in `ec_transfer_params`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler import ECCPUScheduler

from tests.vllm.engine import (
    DTYPE,
    ROW_BYTES,
    Engine,
    MultiModalKwargsItem,
    element,
    encoded,
    image,
    in_a_row,
    request,
)

Start = Callable[..., Engine]


def test_every_field_of_an_announcement(start: Start) -> None:
    producer = start("ec_producer", ec_remote=True)
    features = in_a_row(image("cat", 4), image("dog", 5), image("cat", 4))
    params = producer.run(request("r", features))["r"]
    host, port = producer.node.host, producer.node.port
    assert (host, port) == ("127.0.0.1", int(producer.node.endpoint.rpartition(":")[2]))
    assert params == {
        "cat": {
            "modality": "image",
            "metadata": {"image_grid_thw": [1, 4, 4]},
            "item_indices": [0, 2],
            "peer_host": host,
            "peer_port": port,
            "size_bytes": 4 * ROW_BYTES,
            "shape": [4, 64],
        },
        "dog": {
            "modality": "image",
            "metadata": {"image_grid_thw": [1, 5, 4]},
            "item_indices": [1],
            "peer_host": host,
            "peer_port": port,
            "size_bytes": 5 * ROW_BYTES,
            "shape": [5, 64],
        },
    }


class UpstreamCache:
    """Says to vLLM's own scheduler side that every entry is there."""

    class Entry:
        def __init__(self, rows: int) -> None:
            self.shape = (rows, 64)
            self.block_ids = tuple(range(rows))

    def get(self, identifier: str) -> Any:
        return self.Entry({"cat": 4, "dog": 5, "hum": 6}[identifier])


@pytest.mark.parametrize("missing", [False, True])
def test_they_are_vllms_own_for_every_modality(start: Start, missing: bool) -> None:
    """The same features through the unmodified connector's `request_finished`."""
    producer = start("ec_producer", ec_remote=True, widths={"image": 64, "audio": 64})
    hum = image("hum", 6)
    hum.modality = "audio"
    hum.data = None if missing else MultiModalKwargsItem({"features": element(torch.zeros(6))})
    cat = image("cat", 4)
    if missing:
        cat.data = None
    asked = request("r", in_a_row(cat, image("dog", 5), hum))
    for index in range(3):
        producer.connector.update_state_after_alloc(asked, index)
    ours = producer.connector.request_finished(asked)[1]
    upstream = ECCPUScheduler.__new__(ECCPUScheduler)
    side = producer.connector.scheduler_side
    upstream._deferred_since = {}
    upstream._nixl_enabled = upstream._is_producer = True
    upstream._metadata_resolver = side._resolver
    upstream._cache = UpstreamCache()
    upstream._region = type("Region", (), {"block_size_bytes": ROW_BYTES})
    upstream._peer_host, upstream._peer_port = producer.node.host, producer.node.port
    theirs = upstream.request_finished(asked)[1]
    for announcement in ours.values():
        # 0.32 does not send it, 0.33 does.
        modality = announcement.pop("modality")
        assert modality in ("image", "audio")
    for announcement in theirs.values():
        announcement.pop("modality", None)
    assert ours == theirs


def test_without_an_entry_there_is_no_address_and_no_metadata(start: Start) -> None:
    producer = start("ec_producer", ec_remote=True, ec_cpu_bytes=4 * ROW_BYTES)
    params = producer.run(request("r", [image("huge", 5)]))["r"]
    assert params == {"huge": {"modality": "image", "metadata": {}, "item_indices": [0]}}


@pytest.mark.parametrize(
    ("role", "remote"), [("ec_consumer", True), ("ec_producer", False), ("ec_both", False)]
)
def test_consumers_and_instances_without_remote_announce_nothing(
    start: Start, role: str, remote: bool
) -> None:
    engine = start(role, ec_remote=remote)
    assert engine.run(request("r", [image("cat")]))["r"] is None


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_what_the_engine_holds_and_the_region_lost_is_saved_again(
    start: Start, runner: str
) -> None:
    producer = start("ec_producer", runner=runner, ec_remote=True, ec_cpu_bytes=4 * ROW_BYTES)
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=[producer.node.endpoint])
    producer.run(request("a", [image("cat", 4)]))
    producer.settle()
    producer.run(request("b", [image("dog", 4)]))
    producer.settle()
    assert not producer.node.has_entry("cat"), "the region holds one of them"
    params = producer.run(request("c", [image("cat", 4)]))["c"]
    assert producer.encoded == ["cat", "dog"], "the engine still held it"
    assert params["cat"]["peer_port"] == producer.node.port
    consumer.run(request("r", [image("cat", 4, data="sizes")], params))
    assert torch.equal(consumer.embeddings["r"][0], encoded("cat", 4))


def test_what_neither_holds_is_not_announced(start: Start) -> None:
    producer = start("ec_producer", ec_remote=True, cache_embeddings=4, ec_cpu_bytes=4 * ROW_BYTES)
    for name in ("cat", "dog"):
        producer.run(request(name, [image(name, 4)]))
        producer.settle()
    assert producer.metadata.saves.keys() == {"dog"}
    assert "cat" not in producer.encoder_cache


def test_ports_and_names_of_data_parallel_engines_differ(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        base = probe.getsockname()[1]
    monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_PORT", str(base - 1))
    first, second = (
        start("ec_producer", ec_remote=True, engine_id=f"dp-{base}", data_parallel_index=index)
        for index in (1, 2)
    )
    assert (first.node.port, second.node.port) == (base, base + 1)
    names = {e.connector.scheduler_side.settings.region_name for e in (first, second)}
    assert names == {f"chiasm-dp-{base}_dp1", f"chiasm-dp-{base}_dp2"}


def test_the_dtype_is_the_models(start: Start) -> None:
    assert DTYPE.itemsize * 64 == ROW_BYTES
