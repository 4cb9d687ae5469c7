"""Over NIXL, with upstream's own connector in the engine on the other side: the answers are those
of one engine alone, and what a producer does costs one request at most.

Upstream's connector asks for vLLM's second model runner. Its producer is a server, because it
answers only while its engine steps, which a server's does without pause.
"""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chiasm import Chiasm, Producer
from tests.e2e import environment, images, stores
from tests.e2e.apis import APIS, Picture, messages
from tests.e2e.engines import Answer, Engine, InProcess, Server, free_ports
from tests.e2e.fleet import ENCODER, Encoded, Fleet, encode, listening, upstream

TOKENS = 16
FEW_TOKENS = 4  # of the second runner, whose kernels are interpreted here
# Of those that the fleet's consumer may read from: no other file takes these.
THEIR_PORT, FAULT_PORT, LAST_PORT = 34, 35, 38

PIXELS = pytest.mark.parametrize("pixels", [True, False], ids=["pixels", "named"])


@pytest.fixture(autouse=True)
def nixl_for_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command finds NIXL where the engines do."""
    monkeypatch.setenv("VIRTUAL_ENV", str(environment.environment()))


def remove_region(engine: Engine) -> None:
    """Removes the region of upstream's connector, which a killed engine leaves behind."""
    for path in re.findall(r"Created EC mmap file (\S+)", engine.said()):
        Path(path).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def their_producer(_fleet: Fleet, engine_logs: Path) -> Iterator[Server]:
    """Upstream's connector as a producer that the fleet's consumer may read from."""
    connector = upstream("ec_producer", f"their-encoder-{free_ports(1)}")
    server = Server(
        *("their-producer", engine_logs, environment.model("qwen2_vl")),
        connector=connector,
        v2=True,
        environment=listening(_fleet.ports[THEIR_PORT]),
        **ENCODER,
    )
    try:
        yield server.give_way().ready()
    finally:
        server.stop()
        remove_region(server)


@pytest.fixture(scope="module")
def their_consumer(engine_logs: Path) -> Iterator[InProcess]:
    """Upstream's connector as a consumer, which reads from whatever an announcement names."""
    connector = upstream("ec_consumer", f"their-decode-{free_ports(1)}")
    engine = InProcess(
        *("their-consumer", engine_logs, environment.model("qwen2_vl")),
        connector=connector,
        v2=True,
    )
    try:
        yield engine.give_way().ready()
    finally:
        engine.stop()
        remove_region(engine)


def ask(fleet: Fleet, *pictures: Picture, params: Any) -> Answer:
    body = {"model": "tiny", "messages": messages(*pictures), "max_tokens": TOKENS}
    body |= {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
    return fleet.consumer.post(APIS[0].path, body | {"ec_transfer_params": params})


def alone(fleet: Fleet, *pictures: Picture) -> list[int]:
    result = fleet.reference(*pictures, max_tokens=TOKENS, ignore_eos=True)
    return list(result["tokens"])


def arrived_over_nixl(fleet: Fleet) -> float:
    """Bytes, as the consumer's metrics have them."""
    page = fleet.consumer.call("GET", "/metrics").text
    samples = re.findall(r'^chiasm_arrived_bytes_total\{.*plane="nixl".*\} (\S+)$', page, re.M)
    return sum(map(float, samples))


def produce(chiasm: Chiasm, store: Path, port: int, *flags: str) -> Producer:
    """Serves the store over nixl alone, and is ready to."""
    producer = stores.produce(chiasm, store, port, "--planes=nixl", "--log=info", *flags)
    producer.running.said("serving over nixl")
    return producer


def check_transfer(fleet: Fleet, encoded: Encoded, *, pixels: bool) -> None:
    """The consumer has this item over nixl, and computes with it what one engine alone computes."""
    before = arrived_over_nixl(fleet)
    with fleet.consumer.watched() as steps:
        asked = encoded.picture if pixels else encoded.named
        answer = ask(fleet, asked, params=encoded.params)
    assert answer.tokens == alone(fleet, encoded.picture)
    assert steps.encoded == 0
    (announced,) = encoded.params.values()
    assert arrived_over_nixl(fleet) - before == announced["size_bytes"]


@PIXELS
@pytest.mark.parametrize("side", [images.SIDE, images.LARGE])
def test_chiasm_reads_from_their_producer(
    fleet: Fleet, their_producer: Server, side: int, pixels: bool
) -> None:
    assert (their_producer.runner, fleet.consumer.runner) == (2, 1)
    encoded = encode(their_producer, Picture(6000 + side + pixels, side))
    check_transfer(fleet, encoded, pixels=pixels)


def test_one_request_with_images_of_their_producer_and_of_ours(
    fleet: Fleet, their_producer: Server
) -> None:
    producers = [their_producer, fleet.producer, their_producer]
    encoded = [encode(producer, Picture(6010 + n)) for n, producer in enumerate(producers)]
    params = {name: value for one in encoded for name, value in one.params.items()}
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, *(one.named for one in encoded), params=params)
    assert answer.tokens == alone(fleet, *(one.picture for one in encoded))
    assert steps.encoded == 0


@PIXELS
def test_their_consumer_reads_from_chiasm(
    fleet: Fleet, their_consumer: InProcess, pixels: bool
) -> None:
    assert (fleet.producer.runner, their_consumer.runner) == (1, 2)
    encoded = encode(fleet.producer, Picture(6020 + pixels))
    asked = encoded.picture if pixels else encoded.named
    with their_consumer.watched() as steps:
        (result,) = their_consumer.run(
            [{"messages": messages(asked), "max_tokens": FEW_TOKENS, "params": encoded.params}]
        )
    expected = fleet.reference(encoded.picture, max_tokens=FEW_TOKENS)
    assert result["tokens"] == expected["tokens"]
    assert steps.encoded == 0


# After an ack over nixl.
FAULTS = ["die-after-ack", "wrong-extents", "wrong-bytes"]


@PIXELS
@pytest.mark.parametrize("fault", FAULTS)
def test_hazard_b3_b4_a_producer_fails_after_its_ack_and_then_theirs_is_read(
    fleet: Fleet, their_producer: Server, chiasm: Chiasm, tmp_path: Path, fault: str, pixels: bool
) -> None:
    """The same item: it fails over nixl once, and the same engine then has it over nixl."""
    encoded = encode(their_producer, Picture(6030 + 2 * FAULTS.index(fault) + pixels))
    store = stores.fetched(chiasm, encoded, tmp_path, "--planes=nixl")
    port = fleet.ports[FAULT_PORT + FAULTS.index(fault)]
    producer = produce(chiasm, store, port, f"--fault={fault}")
    params = encoded.announced(peer_port=producer.port)
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, encoded.picture if pixels else encoded.named, params=params)
    if pixels:
        assert answer.tokens == alone(fleet, encoded.picture)
        assert steps.encoded == 1
    else:
        assert answer.status == 500, answer
        assert steps.encoded == 0
        check_transfer(fleet, encoded, pixels=False)
    if fault.startswith("die"):
        producer.running.wait()
        # What a killed producer leaves is removed by the next start.
        assert chiasm.run("produce", store, "--for=0").code == 0


def test_their_producer_is_killed_and_another_is_read_over_nixl(
    fleet: Fleet, their_producer: Server, chiasm: Chiasm, tmp_path: Path
) -> None:
    """The last one of this file: their producer is gone afterwards."""
    pictures = [Picture(6050 + n) for n in range(3)]
    with_pixels, named, _ = all_encoded = [encode(their_producer, one) for one in pictures]
    left = [
        stores.fetched(chiasm, one, tmp_path / one.mm_hash, "--planes=nixl") for one in all_encoded
    ]
    check_transfer(fleet, encode(their_producer, Picture(6060)), pixels=False)
    os.killpg(their_producer.process.pid, signal.SIGKILL)
    their_producer.process.wait()
    with fleet.consumer.watched() as steps:
        answer = ask(fleet, with_pixels.picture, params=with_pixels.params)
    assert answer.tokens == alone(fleet, with_pixels.picture)
    assert steps.encoded == 1
    assert ask(fleet, named.named, params=named.params).status == 500
    for store, encoded in zip(left[1:], all_encoded[1:], strict=True):
        producer = produce(chiasm, store, fleet.ports[LAST_PORT])
        params = encoded.announced(peer_port=producer.port)
        check_transfer(fleet, Encoded(encoded.picture, params), pixels=False)
        producer.stop()
