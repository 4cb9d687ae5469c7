"""Chiasm's counters on vLLM's `/metrics` and in its periodic log line.

The engine core reads the node once a step and sends what has changed; the API server, another
process, adds it to Prometheus. Names, kinds and texts are the native module's, so that both know
them.
"""

from typing import TYPE_CHECKING, Any

from vllm.distributed.ec_transfer.ec_connector.metrics import (
    ECConnectorPromMetrics,
    ECConnectorStats,
)

from chiasm._native import METRICS

if TYPE_CHECKING:
    from vllm.config import VllmConfig

    from chiasm._native import Node

_registered: dict[tuple[type, str], Any] = {}
"""Collectors of this process: Prometheus takes each name once, and an engine may be made twice."""


def _is_counter(name: str) -> bool:
    return METRICS[name.partition("/")[0]][0] == "counter"


class ChiasmStats(ECConnectorStats):
    """`data`: by name, a counter's increase and a gauge's latest value; a label follows a slash."""

    data: dict[str, Any]

    def reset(self) -> None:
        """Forgets everything."""
        self.data = {}

    def aggregate(self, other: ECConnectorStats) -> "ChiasmStats":
        """Adds what came later."""
        for name, value in other.data.items():
            self.data[name] = self.data.get(name, 0) + value if _is_counter(name) else value
        return self

    def reduce(self) -> dict[str, int | float]:
        """For the log line: the values as they are, without the prefix of all names."""
        return {name.removeprefix("chiasm_"): value for name, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not self.data


class Readings:
    """What the node counted when it was last looked at."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._last: dict[str, float] = {}

    def take(self) -> ChiasmStats | None:
        """What has changed since the last call; None if nothing has."""
        now = self._node.metrics()
        last, self._last = self._last, now
        changed = {
            name: value - last.get(name, 0) if _is_counter(name) else value
            for name, value in now.items()
            if value != last.get(name, 0)
        }
        return ChiasmStats(data=changed) if changed else None


class ChiasmPromMetrics(ECConnectorPromMetrics):
    """One Prometheus metric per name, labelled by model, engine and, where it has one, its own
    label."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        metric_types: dict[type, type],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics = {name: self._register(name) for name in METRICS}

    def _register(self, name: str) -> Any:
        kind, label, text = METRICS[name]
        made_by = self._counter_cls if kind == "counter" else self._gauge_cls
        if (made_by, name) not in _registered:
            labels = [*self._labelnames, *([label] if label else [])]
            more = {} if kind == "counter" else {"multiprocess_mode": "mostrecent"}
            _registered[made_by, name] = made_by(
                name=name, documentation=text, labelnames=labels, **more
            )
        metric = _registered[made_by, name]
        if label is None:
            # Shown as zero before anything has happened.
            for values in self.per_engine_labelvalues.values():
                metric.labels(*values)
        return metric

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Takes in what one engine has sent."""
        engine = self.per_engine_labelvalues.get(engine_idx)
        if engine is None:
            return
        for full_name, value in transfer_stats_data.items():
            name, _, label = full_name.partition("/")
            metric = self._metrics.get(name)
            if metric is None:
                continue  # An engine of another version of Chiasm.
            kind, has_label, _ = METRICS[name]
            child = metric.labels(*engine, *([label] if has_label else []))
            if kind == "counter":
                child.inc(value)
            else:
                child.set(value)
