"""`ec_transfer_params` come from clients: whatever they are, they raise nothing and cost nothing.

Nothing here may raise, start a read, or make another request's answer different.
"""

import hashlib
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from chiasm import _native
from chiasm._native import FALLBACK, READY, UNAVAILABLE, WAIT
from tests.python_module.instances import ROW_BYTES, ROW_ELEMENTS, Instance, instance, item

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 5601, 65536, 2**31, 2**32, 2**63, 2**64, -(2**63) - 1, 10**4000,
    5601.0, 1e308, float("inf"), float("-inf"), float("nan"), "", " ", "5601", "127.0.0.1",
    "\ud800", "a\0b", "\u0661", "x" * 100_000, "\U0001f4a5" * 50_000, b"127.0.0.1", b"", [], {}, (),
    set(), [1], [4, 512], (4, 512), [4, 512, 1], [4.0, 512.0], ["4", "512"], [True, 512],
    [[4], [512]], [4, None], {"peer_host": "127.0.0.1"}, {1: 2}, {None: None}, {"\ud800": 1}, DEEP,
    object(), type, range(2), 1j,
    bytearray(b"x"), memoryview(b"x"), [10**4000, 512], [-4, 512], [0, 0],
]  # fmt: skip
FIELDS = ["peer_host", "peer_port", "size_bytes", "shape", "modality", "metadata", "item_indices"]


def valid(port: int) -> dict[str, Any]:
    """An announcement of somebody who is not approved."""
    return {
        "peer_host": "127.0.0.1",
        "peer_port": port,
        "size_bytes": 4 * ROW_BYTES,
        "shape": [4, ROW_ELEMENTS],
    }


@pytest.fixture(scope="module")
def consumer() -> Iterator[Instance]:
    with instance("ec_consumer", ec_remote=True, ec_allowed_peers=["10.255.255.1:1"]) as running:
        yield running


@pytest.fixture(scope="module")
def foreign() -> Iterator[socket.socket]:
    """A listening socket that nobody may come to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def decide(consumer: Instance, params: Any, *, local_input: bool) -> int:
    """The answer for one new request that comes and goes."""
    decision = consumer.node.track("r", [item("image", local_input=local_input)], params, 0)
    failed = consumer.node.take_unavailable_requests()
    assert failed == (["r"] if decision == UNAVAILABLE else [])
    consumer.node.finish("r")
    return decision


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{type(odd).__name__}")
def test_whatever_stands_for_the_params_or_for_an_announcement(
    consumer: Instance, odd: Any
) -> None:
    # Nothing is announced: upstream admits these as well.
    assert decide(consumer, odd, local_input=True) == READY
    expected = READY if isinstance(odd, dict) else FALLBACK
    if odd == {"peer_host": "127.0.0.1"}:
        expected = FALLBACK
    assert decide(consumer, {"image": odd}, local_input=True) == expected
    assert decide(consumer, {"image": odd}, local_input=False) == UNAVAILABLE


@pytest.mark.parametrize("field", ["peer_host", "peer_port", "size_bytes", "shape"])
def test_whatever_stands_in_a_field(consumer: Instance, foreign: socket.socket, field: str) -> None:
    for odd in ODD:
        params = {"image": {**valid(foreign.getsockname()[1]), field: odd}}
        decision = decide(consumer, params, local_input=True)
        # Without a host nothing is announced; else it is invalid, or, where it is right by chance,
        # not approved.
        nobody = field == "peer_host" and odd is None
        assert decision == (READY if nobody else FALLBACK), (field, odd)
        assert decide(consumer, params, local_input=False) == UNAVAILABLE
    _native.drain_logs()


@pytest.mark.parametrize("seed", range(8))
def test_random_objects(consumer: Instance, foreign: socket.socket, seed: int) -> None:
    dice = random.Random(seed)

    def anything(depth: int) -> Any:
        kind = dice.random()
        if depth == 0 or kind < 0.5:
            return dice.choice(ODD)
        if kind < 0.7:
            return [anything(depth - 1) for _ in range(dice.randrange(5))]
        keys = [*FIELDS, "image", "\ud800", 7, None, True]
        return {dice.choice(keys): anything(depth - 1) for _ in range(dice.randrange(6))}

    for _ in range(1000):
        announcement = {**valid(foreign.getsockname()[1])}
        for field in dice.sample(FIELDS, dice.randrange(4)):
            announcement[field] = anything(2)
        for field in dice.sample(FIELDS, dice.randrange(3)):
            announcement.pop(field, None)
        params = dice.choice([{"image": announcement}, {"image": anything(3)}, anything(3)])
        assert decide(consumer, params, local_input=True) in (READY, FALLBACK)
        assert decide(consumer, params, local_input=False) == UNAVAILABLE
    assert not consumer.node.is_stopped
    _native.drain_logs()


class Counted(list[int]):
    """A list that counts the looks at its elements."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        return super().__getitem__(at)

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("its elements are walked through")


def test_the_length_of_a_shape_is_judged_before_its_elements(consumer: Instance) -> None:
    shape = Counted([4] * 3_000_000)
    params = {"image": {**valid(1), "shape": shape}}
    assert decide(consumer, params, local_input=True) == FALLBACK
    assert shape.looks <= 3
    _native.drain_logs()


class Loud(dict[Any, Any]):
    """A dictionary that cannot be walked through."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("its keys are walked through")

    keys = values = items = __iter__  # type: ignore[assignment]


def test_the_cost_is_that_of_the_items_not_of_the_params(consumer: Instance) -> None:
    params = Loud({f"image-{number}": None for number in range(100_000)})
    params["image"] = Loud({f"field-{number}": None for number in range(100_000)})
    params["image"].update(valid(1))
    assert decide(consumer, params, local_input=True) == FALLBACK


def test_an_object_whose_methods_raise_is_no_announcement(consumer: Instance) -> None:
    class Hostile:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("on purpose")

        def __hash__(self) -> int:
            return hash("image")

        def __int__(self) -> int:
            raise RuntimeError("on purpose")

        __index__ = __len__ = __float__ = __int__

    assert decide(consumer, {Hostile(): 1}, local_input=True) == READY
    for field in FIELDS:
        params = {"image": {**valid(1), field: Hostile()}}
        assert decide(consumer, params, local_input=True) == FALLBACK


NAMES = [
    "\ud800",
    "\udfff\ud800 x",
    "x" * 5000,
    "\0",
    "\0utf-8 with surrogates: 61",
    "画" * 400,
    "",
    "\0sha256: " + hashlib.sha256(b"y" * 5000).hexdigest(),
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_ids_that_a_client_chose_come_back_as_they_were(consumer: Instance, name: str) -> None:
    node = consumer.node
    assert node.ensure(name, 1, 0) is None
    decision = node.track(name, [item("image")], {}, 0)
    assert decision == UNAVAILABLE
    reported = node.take_unavailable_requests()
    assert reported == [name]
    node.finish(name)
    assert node.ensure(name, 1, 0) is None


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_identifiers_that_a_client_chose_are_kept_apart(name: str) -> None:
    content = bytes(range(256)) * 4
    with instance("ec_both", ec_remote=True) as both:
        both.save(name, content)
        assert both.node.has_entry(name)
        assert not both.node.has_entry("61")
        assert not both.node.has_entry("a")
        assert both.node.track("r", [item(name, count=1)], None, 0) == READY
        assert both.load(name) == content
        assert both.node.fallbacks("r") == []
        # What does not fit an `mm_hash` is for this instance alone.
        fits = 1 <= len(name.encode("utf-8", "surrogatepass")) <= 1024
        assert (both.node.announce(name) is not None) == fits


def test_no_identifier_passes_for_the_digest_of_another() -> None:
    long = "y" * 5000
    with instance("ec_both", ec_remote=True) as both:
        both.save(long, bytes(1024))
        assert both.node.has_entry(long)
        assert not both.node.has_entry(NAMES[-1])


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (ROW_ELEMENTS // 2, "invalid"),
        (1, "invalid"),
        (ROW_ELEMENTS + 1, "invalid"),
        (ROW_ELEMENTS, "is not allowed"),
        (3 * ROW_ELEMENTS, "is not allowed"),
    ],
)
def test_where_the_width_is_not_known_rows_are_whole_blocks(width: int, said: str) -> None:
    _native.drain_logs()
    with instance("ec_consumer", ec_remote=True) as consumer:
        size = -(-4 * 2 * width // ROW_BYTES) * ROW_BYTES
        announcement = {**valid(1), "shape": [4, width], "size_bytes": size}
        assert decide(consumer, {"image": announcement}, local_input=True) == FALLBACK
    lines = " ".join(text for _, _, text in _native.drain_logs())
    assert said in lines


def test_a_truth_value_is_no_port() -> None:
    _native.drain_logs()
    with instance("ec_consumer", ec_remote=True) as consumer:
        params = {"image": {**valid(1), "peer_port": True}}
        assert decide(consumer, params, local_input=True) == FALLBACK
    assert "peer_port is true" in " ".join(text for _, _, text in _native.drain_logs())


@pytest.mark.parametrize(
    "items", [None, 5, "abc", [None], [("image",)], [(1, 2, 3, 4, True)], [("a", "b", 1, 1, True)]]
)
def test_items_of_another_form_are_a_mistake_of_the_caller(consumer: Instance, items: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        consumer.node.track("r", items, {}, 0)
    assert consumer.node.ensure("r", 1, 0) is None


def test_more_items_than_the_limit_are_decided_without_looking_at_them(consumer: Instance) -> None:
    many = [item(f"image-{number}", local_input=True) for number in range(5000)]
    assert consumer.node.track("r", many, {}, 0) == FALLBACK
    assert consumer.node.track("r", [*many, item("bare")], {}, 0) == UNAVAILABLE
    assert consumer.node.take_unavailable_requests() == ["r"]
    consumer.node.finish("r")


def test_a_waiting_request_is_not_touched_by_all_this(consumer: Instance) -> None:
    """10.255.255.1 is approved and silent: what waits for it goes on waiting."""
    address = {**valid(1), "peer_host": "10.255.255.1"}
    first = consumer.node.track("waits", [item("slow")], {"slow": address}, 0)
    assert first in (WAIT, UNAVAILABLE), "unavailable where this network refuses it at once"
    for odd in ODD:
        decide(consumer, {"slow": odd, "image": odd}, local_input=True)
    assert consumer.node.ensure("waits", 1, 0) == first
    consumer.node.finish("waits")
