"""What Chiasm is to reach, computed from the rows of one run: met, missed or not measured.

Each is a bound on one figure of that run; `upstream` is the same figure of upstream's, where it has
one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """One bound, and what was measured."""

    what: str
    bound: str
    value: float | None
    is_met: bool
    upstream: float | None = None

    @property
    def word(self) -> str:
        if self.value is None:
            return ""
        return "met" if self.is_met else "**missed**"


class Run:
    """The medians of a run."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = list(rows)

    def of(self, family: str, what: str, metric: str, /, **case: Any) -> float | None:
        """The median of the one row that this is; None if it was not measured."""
        for row in self.rows:
            same = (row["family"], row["what"], row["metric"]) == (family, what, metric)
            if same and case.items() <= row["case"].items():
                return float(row["median"])
        return None

    def most(
        self, family: str, what: str, metric: str, key: str, values: Iterable[Any], /, **case: Any
    ) -> float | None:
        """The highest over these cases; None if one is missing."""
        found = [self.of(family, what, metric, **case, **{key: value}) for value in values]
        known = [value for value in found if value is not None]
        return max(known) if known and len(known) == len(found) else None


def below(
    what: str, bound: float, unit: str, value: float | None, upstream: float | None = None
) -> Target:
    """At most so much."""
    text = f"at most {bound:g}{' ' + unit if unit else ''}"
    return Target(what, text, value, value is not None and value <= bound, upstream)


def above(
    what: str, bound: float, unit: str, value: float | None, upstream: float | None = None
) -> Target:
    """At least so much."""
    text = f"at least {bound:g}{' ' + unit if unit else ''}"
    return Target(what, text, value, value is not None and value >= bound, upstream)


def ratio(one: float | None, other: float | None) -> float | None:
    """Of two figures that were both measured."""
    return one / other if one is not None and other else None


def acks(run: Run) -> list[Target]:
    steps = (50, 500, 2000)
    found = []
    for metric, bound in (("p50", 1.0), ("p99", 5.0)):
        name = f"to_ready_{metric}_ms"
        theirs = run.most("latency", "upstream", name, "step_ms", steps, busy_cores=False)
        ours = run.most("latency", "chiasm", name, "step_ms", steps, busy_cores=False)
        what = f"small entry, producer in steps of 50 to 2000 ms, worst {metric}"
        found.append(below(what, bound, "ms", ours, theirs))
    size = {"region_blocks": 1_000_000}
    theirs = run.of("ack", "upstream", "ack_bytes", **size)
    ours = run.of("ack", "chiasm", "ack_bytes", **size)
    found.append(below("ack to a Chiasm peer, 1e6 blocks", 450, "bytes", ours, theirs))
    later = run.of("ack", "chiasm, to upstream later", "ack_bytes", **size)
    found.append(
        below("ack to an upstream peer that has read, 1e6 blocks", 2048, "bytes", later, theirs)
    )
    return found


def calls(run: Run) -> list[Target]:
    waiting = {"state": "in flight", "waiting": 1000, "items": 8}
    found = [
        below(
            "`ensure_cache_available`, 1000 waiting x 8 items in flight",
            1,
            "us",
            run.of("admission", "chiasm", "call_us", **waiting),
            run.of("admission", "upstream", "call_us", **waiting),
        )
    ]
    for blocks in (100_000, 1_000_000):
        case = {"region_blocks": blocks, "entry_blocks": 4096}
        found.append(
            below(
                f"save that evicts, 4096-block entry, {blocks:.0e} blocks",
                2,
                "us",
                run.of("cache", "chiasm", "cycle_us", **case),
                run.of("cache", "upstream", "cycle_us", **case),
            )
        )
    return found


def transfers(run: Run) -> list[Target]:
    def of(what: str, metric: str, size: int, outstanding: int) -> float | None:
        case = {"size_bytes": size, "outstanding": outstanding}
        return run.of("transfers", what, metric, **case)

    large = "upstream, 1 GB region"
    small, middle = 256 << 10, 2 * MIB
    found = [
        above("256 KiB x 16, shm to memcpy", 0.5, "", of("chiasm shm", "to_memcpy", small, 16)),
        above("256 KiB x 16, tcp to a stream", 0.8, "", of("chiasm tcp", "to_stream", small, 16)),
    ]
    rates = {who: of(who, "transfers_per_s", small, 16) for who in ("chiasm shm", "chiasm tcp")}
    theirs = of(large, "transfers_per_s", small, 16)
    for who, rate in rates.items():
        what = f"256 KiB x 16, {who} to upstream with 1 GB"
        found.append(above(what, 10, "times", ratio(rate, theirs)))
    speeds = [of(who, "gb_per_s", middle, 16) for who in ("chiasm shm", large)]
    found.append(above("2 MiB x 16, shm to upstream with 1 GB", 10, "times", ratio(*speeds)))
    found.append(
        below(
            "2 MiB x 16, longest scheduler call",
            1,
            "ms of CPU",
            of("chiasm shm", "longest_call_cpu_ms", middle, 16),
            of(large, "longest_call_cpu_ms", middle, 16),
        )
    )
    for size in (14 * MIB, 64 * MIB):
        shm, tcp = of("chiasm shm", "to_memcpy", size, 1), of("chiasm tcp", "to_stream", size, 1)
        found.append(above(f"{size // MIB} MiB x 1, shm to memcpy", 0.7, "", shm))
        found.append(above(f"{size // MIB} MiB x 1, tcp to a stream", 0.8, "", tcp))
    return found


def nixl(run: Run) -> list[Target]:
    def least(what: str) -> float | None:
        return run.of("nixl", what, "minimum_ms", blocks=9362)

    bare = least("bare NIXL read")
    ours, theirs = least("chiasm nixl helper"), least("upstream, scattered")
    what = "NIXL read of 64 MiB, minimum to a bare read's"
    return [below(what, 1.2, "", ratio(ours, bare), ratio(theirs, bare))]


def meetings(run: Run) -> list[Target]:
    def of(what: str, metric: str, blocks: int = 1_000_000) -> float | None:
        return run.of("contact", what, metric, region_blocks=blocks)

    def kept(what: str) -> float | None:
        many, few = of(what, "kept_mib"), of(what, "kept_mib", 10_000)
        more = None if many is None or few is None else many - few
        return None if more is None else max(0.0, more * MIB / 990_000)

    cpu = "scheduler_cpu_ms"
    return [
        below(
            "first contact with a producer of 1e6 blocks, scheduler time",
            5,
            "ms of CPU",
            of("chiasm nixl", cpu),
            of("upstream", cpu),
        ),
        # A page or so that happened to be needed is nothing kept per block.
        below("kept of it per block", 1, "byte", kept("chiasm nixl"), kept("upstream")),
    ]


def faults(run: Run) -> list[Target]:
    found = []
    # The second bound is the default of connect_timeout_s, and what an engine's thread takes.
    for kind, bound in (("refused", 1.0), ("swallowed", 3.1)):
        ours = run.of("fallback", "chiasm", "to_fallback_s", producer=kind)
        theirs = run.of("fallback", "upstream", "to_fallback_s", producer=kind)
        found.append(below(f"fallback, connections {kind}", bound, "s", ours, theirs))
    return found


def rest(run: Run) -> list[Target]:
    peers = {"peers_connected": 2}
    found = [
        below(
            "idle node, two peers connected",
            1,
            "% of a core",
            run.of("idle", "chiasm", "cpu_percent", **peers),
            run.of("idle", "upstream", "cpu_percent", **peers),
        ),
        below(
            "its wake-ups",
            5,
            "a second",
            run.of("idle", "chiasm", "wake_ups_per_s_per_node", **peers),
        ),
    ]
    for plane in ("shm", "tcp", "nixl"):
        # Upstream's has one plane, which is what every one of ours stands beside.
        ours, theirs = arrived(run, "chiasm", plane), arrived(run, "upstream", "nixl")
        found.append(above(f"fleet over {plane}, share that arrived", 1, "", ours, theirs))
    return found


def arrived(run: Run, what: str, plane: str) -> float | None:
    """The share of what a whole fleet has asked for."""
    case = {"plane": plane, "killed": 0}
    ready = run.of("fleet", what, "ready", **case)
    return ratio(ready, run.of("fleet", what, "asked", **case))


PARTS: tuple[Callable[[Run], list[Target]], ...] = (
    acks,
    calls,
    transfers,
    nixl,
    meetings,
    faults,
    rest,
)


def targets(rows: Iterable[Row]) -> list[Target]:
    """All of them, in the order in which they were set."""
    run = Run(rows)
    return [target for part in PARTS for target in part(run)]
