"""A producer and a consumer of the fleet: upstream's connector, as vLLM's scheduler holds it, each
in a process of its own, with real ZMQ and real NIXL.

Both step once in a millisecond. What is asked for is `chiasm bench fleet-plan`'s to say.
"""

import logging
import os
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from bench.connectors.config import EXTRA, scheduler_side, vllm_config
from bench.connectors.pattern import Pattern
from bench.connectors.requests import announced, feature, request

TICK_S = 0.001
# No round takes so long; what has not ended then is lost.
LIMIT_S = 130.0

Plan = dict[str, Any]


@dataclass
class Told:
    """What a consumer has to say about one round."""

    ready: int = 0
    fallbacks: int = 0
    unavailable: int = 0
    bytes: int = 0
    seconds: list[float] = field(default_factory=list)
    # What has left a hook of the connector: that is the end of an engine.
    died_of: str = ""


def connector_of(plan: Plan, role: str, region_bytes: int) -> Any:
    logging.disable(logging.CRITICAL)
    width = plan["row_bytes"] // 2
    blocks = region_bytes // plan["row_bytes"]
    return scheduler_side(vllm_config("upstream", role, blocks, width, **EXTRA["upstream"]))


def step(connector: Any) -> None:
    from vllm.v1.core.sched.output import SchedulerOutput

    connector.build_connector_meta(SchedulerOutput.make_empty())


def produce(pipe: Connection, plan: Plan, number: int) -> None:
    """Says what it has, and serves until it is told to stop."""
    connector = connector_of(plan, "ec_producer", plan["producer_region_bytes"])
    side = connector.connector_scheduler
    pattern = Pattern(plan["row_bytes"])
    width = plan["row_bytes"] // 2
    params = {}
    for entry in plan["entries"]:
        if entry["producer"] != number:
            continue
        name, rows = entry["name"], entry["rows"]
        blocks = side._cache.alloc(name, rows, (rows, width)).block_ids
        pattern.save(side._region.blocks.numpy(), blocks, name)
        side._cache.mark_ready(name)
        params[name] = announced(side._peer_port, rows, width)
    pipe.send(params)
    parent = os.getppid()
    while not pipe.poll(0) and os.getppid() == parent:
        step(connector)
        time.sleep(TICK_S)
    connector.shutdown()
    # NIXL's threads and an interpreter that ends do not always agree.
    os._exit(0)


def evict(cache: Any, name: str) -> None:
    """Evicts an entry that nobody holds, by what the cache does when it needs room."""
    blocks = len(cache.get(name).block_ids)
    cache._entries_free_list.move_to_end(name, last=False)
    cache._evict_until(len(cache._free_blocks) + blocks)
    assert cache.get(name) is None, f"{name} is still there"


class Consumer:
    """One consumer, and what it waits for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.connector = connector_of(plan, "ec_consumer", plan["consumer_region_bytes"])
        self.side = self.connector.connector_scheduler
        self.pattern = Pattern(plan["row_bytes"])
        self.blocks = self.side._region.blocks.numpy()

    def prepared(self, places: list[int], params: dict[str, Any]) -> list[tuple[str, Any]]:
        """A request for each of these entries, which could be encoded here."""
        made = []
        for at, place in enumerate(places):
            entry = self.plan["entries"][place]
            name = entry["name"]
            features = [feature(name, entry["rows"], 1, True)]
            made.append((name, request(f"{name}-{at}", features, {name: params[name]})))
        return made

    def ask(self, running: dict[str, tuple[Any, float]]) -> tuple[set[str], set[str]]:
        """One step of an engine; the entries that need not be waited for any more, and the
        requests that have failed. Whatever leaves it would end the engine."""
        over = {
            name
            for name, (asked, _) in running.items()
            if self.connector.ensure_cache_available(asked, 0)
        }
        failed = self.connector.take_unavailable_requests()
        step(self.connector)
        return over, failed

    def take(
        self,
        running: dict[str, tuple[Any, float]],
        over: set[str],
        failed: set[str],
        told: Told,
    ) -> int:
        """What has ended is compared and let go; how many they are."""
        now, before = time.perf_counter(), len(running)
        for name, (asked, since) in list(running.items()):
            if asked.request_id in failed:
                told.unavailable += 1
            elif name not in over:
                continue
            elif (entry := self.side._cache.get(name)) is not None and entry.ready:
                told.ready += 1
                told.seconds.append(now - since)
                told.bytes += self.pattern.check(self.blocks, entry.block_ids, name)
                evict(self.side._cache, name)
            else:
                told.fallbacks += 1
            del running[name]
            self.connector.request_finished(asked)
        return before - len(running)

    def round(self, left: list[tuple[str, Any]], pipe: Connection) -> Told:
        """All of these, as many outstanding as the plan says."""
        told = Told()
        running: dict[str, tuple[Any, float]] = {}
        count, ended, half = len(left), 0, False
        start = time.perf_counter()
        while ended < count and time.perf_counter() - start < LIMIT_S:
            # Each request is a transfer of its own: what is under way is asked for when that has
            # ended.
            while len(running) < self.plan["outstanding"]:
                free = [at for at, (name, _) in enumerate(left) if name not in running]
                if not free:
                    break
                name, asked = left.pop(free[0])
                running[name] = (asked, time.perf_counter())
            try:
                over, failed = self.ask(running)
            except Exception as error:
                told.died_of = type(error).__name__
                break
            some = self.take(running, over, failed, told)
            ended += some
            if not half and ended * 2 >= count:
                half = True
                pipe.send("half")
            if not some:
                time.sleep(TICK_S)
        if not half:
            pipe.send("half")
        return told


def consume(pipe: Connection, plan: Plan, number: int) -> None:
    """Rounds, until there is none or this engine has come to its end."""
    consumer = Consumer(plan)
    params = pipe.recv()
    while (at := pipe.recv()) is not None:
        left = consumer.prepared(plan["rounds"][at][number], params)
        pipe.send("prepared")
        assert pipe.recv() == "go"
        told = consumer.round(left, pipe)
        pipe.send(told)
        if told.died_of:
            break
    consumer.side._region.cleanup()
    os._exit(0)
