"""Four producers and four consumers with upstream's connector: the work of `chiasm bench fleet`.

The same entries, asked for in the same order, as many at a time; every byte is compared in the same
way, in the timed part. With a producer killed half way there is one round: what is asked of the
dead one waits for a minute before it is encoded here, and a consumer may come to its end.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.apart import processes
from bench.connectors.fleet_processes import LIMIT_S, Plan, Told, consume, produce
from bench.rows import parser, percentile_ms
from bench.upstream.common import row

# Until what began before the last moment of a round has ended as well.
PATIENCE_S = LIMIT_S + 60


class Member:
    """A process of the fleet."""

    def __init__(self, play: Callable[..., None], plan: Plan, number: int) -> None:
        self.pipe, other = processes.Pipe()
        self.process = processes.Process(target=play, args=(other, plan, number), daemon=True)
        self.process.start()
        other.close()

    def hear(self) -> Any:
        assert self.pipe.poll(PATIENCE_S), "a process of the fleet says nothing"
        return self.pipe.recv()

    def close(self) -> None:
        self.process.join(10)
        self.process.kill()
        self.process.join()


class Round:
    """What one round came to."""

    def __init__(self, seconds: float, told: list[Told]) -> None:
        self.seconds, self.told = seconds, told

    def sum(self, name: str) -> int:
        return sum(getattr(told, name) for told in self.told)


class Fleet:
    """All processes, started before this one has anything to do with NIXL."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.producers: list[Member] = []
        params: dict[str, Any] = {}
        for number in range(plan["producers"]):
            # One after the other: each looks for a port that is free.
            self.producers.append(Member(produce, plan, number))
            params |= self.producers[-1].hear()
        self.consumers = [Member(consume, plan, number) for number in range(plan["consumers"])]
        for consumer in self.consumers:
            consumer.pipe.send(params)
        self.left = list(self.consumers)
        self.killed: list[Member] = []

    def round(self, at: int, *, kill: bool) -> Round:
        for consumer in self.left:
            consumer.pipe.send(at)
        for consumer in self.left:
            assert consumer.hear() == "prepared"
        start = time.perf_counter()
        for consumer in self.left:
            consumer.pipe.send("go")
        if kill:
            assert self.left[0].hear() == "half"
            self.killed.append(self.producers.pop(0))
            self.killed[0].process.kill()
        told = {consumer: self.told(consumer) for consumer in self.left}
        seconds = time.perf_counter() - start
        for its in told.values():
            if its.died_of:
                print(f"upstream: a consumer has died of {its.died_of}", file=sys.stderr)
        self.left = [consumer for consumer in self.left if not told[consumer].died_of]
        return Round(seconds, list(told.values()))

    def told(self, consumer: Member) -> Told:
        while not isinstance(said := consumer.hear(), Told):
            assert said == "half"
        return said

    def close(self) -> None:
        for member in (*self.left, *self.producers):
            member.pipe.send(None)
        for member in (*self.consumers, *self.producers, *self.killed):
            member.close()


def report(rounds: list[Round], asked: int, left: int, case: dict[str, Any]) -> None:
    def total(name: str) -> int:
        return sum(it.sum(name) for it in rounds)

    ended = total("ready") + total("fallbacks") + total("unavailable")
    seconds = [second for it in rounds for told in it.told for second in told.seconds]
    for metric, value in (
        ("asked", asked),
        ("ready", total("ready")),
        ("fallbacks", total("fallbacks")),
        ("unavailable", total("unavailable")),
        ("lost", asked - ended),
        ("consumers_left", left),
        ("transfers_per_s", median(it.sum("ready") / it.seconds for it in rounds)),
        ("gb_per_s", median(it.sum("bytes") / it.seconds / 1e9 for it in rounds)),
        ("latency_p50_ms", percentile_ms(seconds, 50)),
        ("latency_p99_ms", percentile_ms(seconds, 99)),
    ):
        row("fleet", case, metric, value)


def main(arguments: list[str]) -> None:
    made = parser(__doc__)
    made.add_argument("--kill", action="store_true", help="kill a producer half way")
    chosen = made.parse_args(arguments)
    flags = [] if chosen.effort == "full" else [f"--{chosen.effort}"]
    command = [os.environ["CHIASM_BENCH_COMMAND"], "bench", "fleet-plan", *flags]
    plan: Plan = json.loads(subprocess.check_output(command))
    fleet = Fleet(plan)
    fleet.round(0, kill=False)
    numbers = [1] if chosen.kill else list(range(1, len(plan["rounds"])))
    rounds = [fleet.round(at, kill=chosen.kill) for at in numbers]
    case = {
        "producers": plan["producers"],
        "consumers": plan["consumers"],
        "outstanding": plan["consumers"] * plan["outstanding"],
        "plane": "nixl",
        "killed": int(chosen.kill),
    }
    asked = sum(len(list_) for at in numbers for list_ in plan["rounds"][at])
    report(rounds, asked, len(fleet.left), case)
    fleet.close()
