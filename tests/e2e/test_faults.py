"""A producer that refuses, lies, is silent or dies costs one request at most: with its pixels the
image is encoded here, without them this request fails; the next one is answered as ever."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chiasm import Chiasm
from tests.e2e import stores
from tests.e2e.apis import APIS, MAX_TOKENS, Picture, messages
from tests.e2e.engines import Answer, Steps
from tests.e2e.fleet import BUDGETS, Encoded, Fleet, encode

# How `chiasm produce --fault` misbehaves, where nothing of it can be waited out.
FAULTS = [
    "missing",
    "incompat",
    "not-ready:1000",
    "silent",
    "garbage",
    "die-before-ack",
    "die-after-ack",
    "wrong-extents",
    "wrong-bytes",
]


class Case:
    """One picture that a producer has encoded, asked for from elsewhere."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.encoded: Encoded = encode(fleet.producer, Picture(seed))
        self.steps = Steps()

    def ask(self, params: Any, *, pixels: bool) -> Answer:
        picture = self.encoded.picture if pixels else self.encoded.named
        with self.fleet.consumer.watched() as steps:
            answer = APIS[0].ask(self.fleet.consumer, picture, ec_transfer_params=params)
        self.steps = steps
        return answer

    def check(self, answer: Answer, *, pixels: bool) -> None:
        """What has to be, if the bytes could not be had."""
        if pixels:
            self.check_text(answer)
            assert self.steps.encoded == 1
        else:
            assert answer.status == 500, answer
            assert self.steps.encoded == 0
            # The same request, with the producer's own announcement.
            self.check_text(self.ask(self.encoded.params, pixels=False))
            assert self.steps.encoded == 0

    def check_text(self, answer: Answer) -> None:
        assert answer.status == 200, answer
        expected = self.fleet.reference(self.encoded.picture, max_tokens=MAX_TOKENS)["text"]
        assert APIS[0].read(answer) == expected


PIXELS = pytest.mark.parametrize("pixels", [True, False], ids=["pixels", "named"])


@PIXELS
@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_producer(
    fleet: Fleet, chiasm: Chiasm, tmp_path: Path, fault: str, pixels: bool
) -> None:
    number = 2 * FAULTS.index(fault) + pixels
    case = Case(fleet, 2000 + number)
    store = stores.fetched(chiasm, case.encoded, tmp_path)
    # A port of its own each time: what one has done is not held against the next.
    # Over tcp: over shm the bytes of a producer that has died can be had, if somebody is quick.
    producer = stores.produce(
        chiasm, store, fleet.ports[2 + number], f"--fault={fault}", "--planes=tcp"
    )
    answer = case.ask(case.encoded.announced(peer_port=producer.port), pixels=pixels)
    case.check(answer, pixels=pixels)
    if fault.startswith("die"):
        producer.running.wait()
        # What a killed producer leaves is removed by the next start.
        assert chiasm.run("produce", store, "--for=0").code == 0


def test_not_ready_and_then_ready(fleet: Fleet, chiasm: Chiasm, tmp_path: Path) -> None:
    case = Case(fleet, 2100)
    store = stores.fetched(chiasm, case.encoded, tmp_path)
    producer = stores.produce(chiasm, store, fleet.ports[30], "--fault=not-ready:2")
    answer = case.ask(case.encoded.announced(peer_port=producer.port), pixels=False)
    case.check_text(answer)
    assert case.steps.encoded == 0


@PIXELS
def test_nobody_listens(fleet: Fleet, pixels: bool) -> None:
    case = Case(fleet, 2110 + pixels)
    params = case.encoded.announced(peer_port=fleet.ports[31 + pixels])
    case.check(case.ask(params, pixels=pixels), pixels=pixels)


def broken_announcements(encoded: Encoded) -> dict[str, dict[str, Any]]:
    """What a client may send in place of the announcement."""
    name = encoded.mm_hash
    return {
        "null": {name: None},
        "text": {name: "127.0.0.1"},
        "number": {name: 5601},
        "shape": encoded.announced(shape=[15, stores.WIDTH]),
        "size": encoded.announced(size_bytes=4),
        "host": encoded.announced(peer_host=None),
        "port": encoded.announced(peer_port="eleven"),
        "of another": {f"{name}x": encoded.params[name]},
    }


BROKEN = ["null", "text", "number", "shape", "size", "host", "port", "of another"]


@PIXELS
@pytest.mark.parametrize("what", BROKEN)
def test_an_announcement_that_is_none(fleet: Fleet, what: str, pixels: bool) -> None:
    case = Case(fleet, 2200 + 10 * BROKEN.index(what) + pixels)
    params = broken_announcements(case.encoded)[what]
    case.check(case.ask(params, pixels=pixels), pixels=pixels)


@pytest.mark.parametrize("depth", [300, 600, 900])
@pytest.mark.parametrize("what", ["pixels", "named", "text"])
def test_hazard_b10_params_nested_deep_end_no_engine(fleet: Fleet, what: str, depth: int) -> None:
    """They reach the engine's core, and are pickled where its workers are other processes."""
    nested: Any = []
    for _ in range(depth):
        nested = [nested]
    if what == "text":
        chat = {"model": "tiny", "messages": messages(text="hi"), "max_tokens": 1}
        for server in (fleet.consumer, fleet.producer):
            params = {"ec_transfer_params": {"x": nested}}
            assert server.post(APIS[0].path, chat | params).status == 200
        return
    pixels = what == "pixels"
    case = Case(fleet, 2310 + depth + pixels)
    case.check(case.ask({case.encoded.mm_hash: nested}, pixels=pixels), pixels=pixels)


def test_one_warning_for_each_ack_that_does_not_come(
    fleet: Fleet, chiasm: Chiasm, tmp_path: Path
) -> None:
    case = Case(fleet, 2300)
    store = stores.fetched(chiasm, case.encoded, tmp_path)
    producer = stores.produce(chiasm, store, fleet.ports[33], "--fault=silent")
    start = fleet.consumer.log.stat().st_size
    answer = case.ask(case.encoded.announced(peer_port=producer.port), pixels=True)
    case.check(answer, pixels=True)
    # Drained by the engine's next step at the latest, and that is behind this request.
    assert APIS[0].ask(fleet.consumer, case.encoded.picture).status == 200
    warnings = [
        line
        for line in fleet.consumer.said(start).splitlines()
        if "WARNING" in line and "no ack in time" in line and f"peer={producer.endpoint}" in line
    ]
    tried = [line for line in warnings if f"mm_hash={case.encoded.mm_hash[:12]}" in line]
    attempts = [re.findall(r"attempt=(\d+)", line) for line in tried]
    most = BUDGETS["wait_budget_s"] / BUDGETS["consumer_ack_timeout_s"]
    assert 1 <= len(attempts) <= most, warnings
    assert attempts == [[str(n + 1)] for n in range(len(attempts))]
