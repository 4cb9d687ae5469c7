"""Counters and gauges on their way to vLLM's `/metrics`."""

from collections.abc import Callable
from typing import Any

import prometheus_client
import pytest
from vllm.distributed.ec_transfer.ec_connector.metrics import ECConnectorLogging, ECConnectorProm

from chiasm._native import METRICS
from chiasm.vllm.metrics import ChiasmStats
from tests.vllm.engine import Engine, image, request, vllm_config

Start = Callable[..., Engine]


def a_counter() -> str:
    return next(
        name for name, (kind, label, _) in METRICS.items() if (kind, label) == ("counter", None)
    )


def a_gauge() -> str:
    return next(
        name for name, (kind, label, _) in METRICS.items() if (kind, label) == ("gauge", None)
    )


def test_every_name_is_chiasms_and_explained() -> None:
    for name, (kind, _, text) in METRICS.items():
        assert name.startswith("chiasm_"), name
        assert kind in ("counter", "gauge"), name
        assert text, name


def test_only_what_has_changed_is_sent(start: Start) -> None:
    engine = start("ec_both")
    engine.run(request("a", [image("cat")]))
    engine.settle()
    first = engine.connector.get_ec_connector_stats()
    assert first is not None
    assert not first.is_empty()
    assert all(isinstance(value, (int, float)) for value in first.data.values())
    assert engine.connector.get_ec_connector_stats() is None


def test_counters_add_and_gauges_are_the_latest() -> None:
    counter, gauge = a_counter(), a_gauge()
    stats = ChiasmStats(data={counter: 2, gauge: 7})
    stats.aggregate(ChiasmStats(data={counter: 3, gauge: 1}))
    assert stats.data == {counter: 5, gauge: 1}
    assert stats.reduce()[counter.removeprefix("chiasm_")] == 5
    stats.reset()
    assert stats.is_empty()


@pytest.mark.parametrize("times", [1, 2])
def test_they_stand_on_the_metrics_page(start: Start, engine_id: Any, times: int) -> None:
    """Through vLLM's own plumbing, as the API server does it; also for a second engine."""
    config = vllm_config("ec_both", engine_id())
    prom = ECConnectorProm(config, ["model_name", "engine"], {0: ["m", str(times)]})
    counter, gauge = a_counter(), a_gauge()
    prom.observe({counter: 2, gauge: 7, "chiasm_of_tomorrow": 1})
    prom.observe({counter: 3, gauge: 1}, 0)
    prom.observe({counter: 3}, 9)
    page = prometheus_client.generate_latest().decode()
    labels = f'{{engine="{times}",model_name="m"}}'
    name = counter if counter.endswith("_total") else counter + "_total"
    assert f"{name}{labels} 5.0" in page
    assert f"{gauge}{labels} 1.0" in page


def test_labelled_counters(start: Start, engine_id: Any) -> None:
    labelled = [name for name, (_, label, _) in METRICS.items() if label]
    config = vllm_config("ec_both", engine_id())
    prom = ECConnectorProm(config, ["model_name", "engine"], {0: ["labelled", "0"]})
    for name in labelled:
        prom.observe({f"{name}/some_value": 4, name: 0})
    prom.observe({f"{a_counter()}/unheard_of": 0})
    page = prometheus_client.generate_latest().decode()
    assert page.count('"some_value"') >= len(labelled)


def test_they_stand_in_the_log_line(start: Start, engine_id: Any) -> None:
    config = vllm_config("ec_both", engine_id())
    logging = ECConnectorLogging(config.ec_transfer_config)
    counter = a_counter()
    logging.observe({counter: 2})
    logging.observe({counter: 1})
    said: list[str] = []
    logging.log(lambda text, *args: said.append(text % args))
    assert f"{counter.removeprefix('chiasm_')}=3" in said[0]
