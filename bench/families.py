"""Groups of figures, and who says them."""

from dataclasses import dataclass

Order = tuple[str, *tuple[str, ...]]
"""A program (`chiasm`: the command, `vllm`: a driver beside vLLM, `nixl`: one that needs the
example `drive` as well, `python`: one in `.venv`) and its arguments."""

UPSTREAM = "bench.upstream"
CONNECTORS = "bench.connectors"


@dataclass(frozen=True)
class Family:
    """One group. Its orders alternate: each goes once in every round."""

    name: str
    orders: tuple[Order, ...]
    # Rounds of the full run; what takes minutes repeats inside.
    rounds: int = 3
    # What takes a minute by its nature, and is left out where there are three.
    full_only: tuple[Order, ...] = ()
    # The metrics of the picture; all of them if none is named.
    pictured: tuple[str, ...] = ()


def both(driver: str) -> tuple[Order, ...]:
    """A driver that takes either connector."""
    module = f"{CONNECTORS}.{driver}"
    return (("vllm", module, "chiasm"), ("vllm", module, "upstream"))


FAMILIES = (
    Family("cache", (("chiasm", "cache"), ("vllm", f"{UPSTREAM}.cache"))),
    Family("admission", both("admission"), rounds=2),
    Family("ack", (("chiasm", "ack"), ("vllm", f"{UPSTREAM}.ack"))),
    Family(
        "transfers",
        (
            ("chiasm", "transfers"),
            ("vllm", f"{UPSTREAM}.pair", "transfers"),
            ("python", "bench.bounds"),
        ),
        pictured=("gb_per_s",),
    ),
    Family("nixl", (("nixl", "bench.nixl"),), pictured=("minimum_ms",)),
    Family(
        "latency",
        (("chiasm", "latency"), ("vllm", f"{UPSTREAM}.pair", "latency")),
        rounds=2,
        pictured=("to_ready_p50_ms", "to_ready_p99_ms"),
    ),
    Family(
        "contact",
        (("chiasm", "contact"), *both("contact")),
        pictured=("first_ms", "scheduler_cpu_ms"),
    ),
    Family("startup", both("startup"), rounds=2),
    Family(
        "fallback",
        (("chiasm", "fallback"),),
        rounds=1,
        full_only=(("vllm", f"{CONNECTORS}.fallback"),),
    ),
    Family("idle", (("chiasm", "idle"), *both("idle")), rounds=1),
    Family(
        "fleet",
        (
            ("chiasm", "fleet"),
            ("vllm", f"{CONNECTORS}.fleet"),
            ("chiasm", "fleet", "--kill"),
            ("vllm", f"{CONNECTORS}.fleet", "--kill"),
        ),
        rounds=1,
        pictured=("transfers_per_s", "latency_p50_ms", "latency_p99_ms"),
    ),
)
