"""Upstream's unmodified ECCPUScheduler, from a request to the bytes of its encoding."""

import hashlib
from pathlib import Path

import pytest

from tests.cli.chiasm import Chiasm
from tests.interop.upstream.instances import Engine, Start, content, produce, stored
from tests.interop.upstream.test_their_consumer import write
from tests.interop.upstream.test_their_producer import has_failed
from tests.interop.upstream.waits import at_rest


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("rows", [1, 48])
def test_their_engine_embeds_what_chiasm_announces(
    rows: int, chiasm: Chiasm, store: Path, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    producer = produce(chiasm, write(store, a=rows), identity=engine.identity)
    found = engine.ask("embed", hash="a", rows=rows, params=producer.params)
    assert found == digest(stored(store, "a"))
    counters = at_rest(chiasm, producer.running.pid)["serving"]["counters"]
    assert (counters["granted"], counters["done"]) == (1, 1)
    assert engine.ask("embed", hash="a", rows=rows, params=producer.params) == found
    assert at_rest(chiasm, producer.running.pid)["serving"]["counters"]["granted"] == 1, "cached"


def test_their_engine_asks_again_while_an_entry_is_not_ready(
    chiasm: Chiasm, store: Path, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    producer = produce(chiasm, write(store, a=3), "--fault=not-ready:3", identity=engine.identity)
    found = engine.ask("embed", hash="a", rows=3, params=producer.params)
    assert found == digest(stored(store, "a"))


def test_their_engine_does_without_what_is_gone(
    chiasm: Chiasm, store: Path, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_consumer")
    producer = produce(chiasm, write(store, a=3), "--fault=missing", identity=engine.identity)
    params = producer.params
    assert engine.ask("embed", hash="a", rows=3, params=params, local=True) == "local"
    assert engine.ask("embed", hash="a", rows=3, params=params) == "aborted"
    assert not engine.ask("held"), "nothing of it is left in their cache"


def test_chiasm_fetches_what_their_engine_announces(
    chiasm: Chiasm, tmp_path: Path, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_producer")
    params = engine.ask("encode", hash="a", rows=3) | engine.ask("encode", hash="b", rows=48)
    more = ["--planes=nixl", *engine.identity]
    done = chiasm.fetch(params, engine.endpoint, *more, out=tmp_path / "out")
    assert done.verdicts() == dict.fromkeys("ab", ("fetched", None)), done.err
    for name, rows in (("a", 3), ("b", 48)):
        assert stored(tmp_path / "out", name) == content(name, rows)
    while engine.ask("held"):
        pass


def test_chiasm_waits_for_what_their_worker_has_not_copied_yet(
    chiasm: Chiasm, tmp_path: Path, upstream_engine: Start
) -> None:
    engine: Engine = upstream_engine("ec_producer")
    params = engine.ask("encode", hash="a", rows=3, reported=False)
    more = ["--planes=nixl", *engine.identity]
    running = chiasm.start_fetch(params, engine.endpoint, *more, out=tmp_path / "out")
    while not has_failed(chiasm, running.pid, "not_ready"):
        pass
    engine.ask("report", hash="a")
    done = running.wait()
    assert done.verdicts() == {"a": ("fetched", None)}, done.err
    assert stored(tmp_path / "out", "a") == content("a", 3)
