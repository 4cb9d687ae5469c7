"""Upstream's unmodified ECCPUScheduler, and a producer that is stopped and started again.

Its engine notices a loss in its next step with media. If that step also asks the producer for
something, the new connection's monitor may come upon the name of the old one's, which libzmq's
threads have not let go of (hazard C19). That request fails, its blocks stay taken, and its hash
with them. It is so whosever producer that is, and whatever that says.
"""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.cli.chiasm import Chiasm
from tests.interop.upstream.instances import Engine, Start, content, produce, stored
from tests.interop.upstream.test_scheduler import digest
from tests.interop.upstream.test_their_consumer import write

NAMES = "abcd"
ROWS = 4
# As that of a configured engine, it is the same after a restart.
AGENT = "--nixl-agent=engine_dp0"


class Life(Protocol):
    """One life of a producer of NAMES."""

    port: int
    params: dict[str, Any]

    def digest(self, name: str) -> str: ...

    def stop(self) -> None: ...


class OurLife:
    """`chiasm produce`."""

    def __init__(self, chiasm: Chiasm, store: Path, engine: Engine, port: int) -> None:
        self.store = store if store.exists() else write(store, **dict.fromkeys(NAMES, ROWS))
        listen = f"--listen=127.0.0.1:{port}"
        self.producer = produce(chiasm, store, listen, AGENT, identity=engine.identity)
        self.port = self.producer.port
        self.params = self.producer.params

    def digest(self, name: str) -> str:
        return digest(stored(self.store, name))

    def stop(self) -> None:
        self.producer.stop()


class TheirLife:
    """Upstream's own scheduler side."""

    def __init__(self, start: Start, port: int) -> None:
        self.engine: Engine = start("ec_producer", port=port)
        self.port = self.engine.about["port"]
        self.params: dict[str, Any] = {}
        for name in NAMES:
            self.params |= self.engine.ask("encode", hash=name, rows=ROWS)

    def digest(self, name: str) -> str:
        return digest(content(name, ROWS))

    def stop(self) -> None:
        self.engine.close()


LifeStart = Callable[[Engine, int], Life]


@pytest.fixture(params=["chiasm", "upstream"])
def start_life(
    request: pytest.FixtureRequest, chiasm: Chiasm, store: Path, upstream_engine: Start
) -> LifeStart:
    """Starts a producer of either kind at a port, 0 for any."""

    def start(engine: Engine, port: int) -> Life:
        if request.param == "chiasm":
            return OurLife(chiasm, store, engine, port)
        return TheirLife(upstream_engine, port)

    return start


def embed(engine: Engine, name: str, life: Life, **more: Any) -> str:
    found: str = engine.ask("embed", hash=name, rows=ROWS, params=life.params, **more)
    return found


def test_a_loss_that_was_noticed_in_an_earlier_step_costs_nothing(
    start_life: LifeStart, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    first = start_life(engine, 0)
    assert embed(engine, "a", first) == first.digest("a")
    first.stop()
    engine.ask("notice", port=first.port)
    again = start_life(engine, first.port)
    assert embed(engine, "b", again) == again.digest("b")
    assert not engine.ask("held")


def test_a_producer_that_comes_back_at_another_port_is_read_at_once(
    start_life: LifeStart, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    first = start_life(engine, 0)
    assert embed(engine, "a", first) == first.digest("a")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
    first.stop()
    again = start_life(engine, port)
    assert embed(engine, "b", again) == again.digest("b")
    assert not engine.ask("held")


def test_a_loss_that_is_noticed_with_the_next_read_costs_that_one_or_nothing(
    start_life: LifeStart, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    first = start_life(engine, 0)
    assert embed(engine, "a", first) == first.digest("a")
    first.stop()
    again = start_life(engine, first.port)
    found = embed(engine, "b", again)
    assert found in (again.digest("b"), "aborted")
    assert engine.ask("held") == (found == "aborted"), "one that is lost keeps its blocks"
    if found == "aborted":
        engine.ask("settle", port=first.port)
    assert embed(engine, "c", again) == again.digest("c"), "and the next one is read"


def test_hazard_c19_what_a_name_that_is_taken_does_to_their_engine(
    chiasm: Chiasm, store: Path, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    first = OurLife(chiasm, store, engine, 0)
    assert embed(engine, "a", first) == first.digest("a")
    first.stop()
    engine.ask("notice", port=first.port)
    again = OurLife(chiasm, store, engine, first.port)
    engine.ask("occupy", port=first.port)
    assert embed(engine, "b", again) == "aborted"
    assert embed(engine, "c", again, local=True) == "local"
    engine.ask("vacate")
    assert embed(engine, "d", again) == again.digest("d"), "others are read"
    assert engine.ask("held"), "the blocks of both stay taken"
    for name in "bc":
        assert not engine.ask("asks", hash=name, rows=ROWS, params=again.params), "never again"
