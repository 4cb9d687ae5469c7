"""What is refused at the start, in words; and what is said."""

import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

from chiasm._native import ConfigError, StartError
from chiasm.vllm import ChiasmConnector, instance, logs
from tests.vllm.engine import Engine, image, request, until, vllm_config

Start = Callable[..., Engine]


@pytest.mark.parametrize("role", list(ECConnectorRole))
def test_all_problems_of_a_configuration_at_once(role: ECConnectorRole, engine_id: Any) -> None:
    config = vllm_config("ec_both", engine_id(), ec_cpu_bytes=0, ec_alowed_peers=[], ec_remote="ja")
    with pytest.raises(ConfigError) as error:
        ChiasmConnector(config, role)
    for part in ("ec_cpu_bytes", "ec_allowed_peers", "ec_remote"):
        assert part in str(error.value)


@pytest.mark.parametrize("remote", [True, "true", "1", "YES", False, "false", "no", "0"])
def test_ec_enable_nixl_is_upstreams_name(start: Start, remote: Any) -> None:
    engine = start("ec_producer", ec_enable_nixl=remote)
    on = str(remote).lower() in ("true", "1", "yes")
    assert (engine.node.endpoint is not None) == on


def test_a_region_too_small_for_one_row(start: Start) -> None:
    with pytest.raises((ConfigError, StartError), match=r"ec_cpu_bytes|block"):
        start("ec_both", ec_cpu_bytes=100)


def test_a_port_in_use_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_PORT", str(port))
        with pytest.raises(StartError, match=str(port)):
            start("ec_producer", ec_remote=True)


def test_a_wildcard_found_by_the_engine_is_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_EC_SIDE_CHANNEL_HOST")
    monkeypatch.setattr(instance, "_host_address", lambda: "0.0.0.0")
    with pytest.raises(ConfigError, match="VLLM_EC_SIDE_CHANNEL_HOST"):
        start("ec_producer", ec_remote=True)
    start("ec_consumer", ec_remote=True)


def test_encoder_decoder_models_are_refused(engine_id: Any) -> None:
    config = vllm_config("ec_both", engine_id())
    config.model_config.is_encoder_decoder = True
    with pytest.raises(ConfigError, match="encoder-decoder"):
        ChiasmConnector(config, ECConnectorRole.SCHEDULER)


def test_ranks_on_several_hosts_are_refused(engine_id: Any) -> None:
    config = vllm_config("ec_both", engine_id(), tensor_parallel=2)
    config.parallel_config.nnodes_within_dp = 2
    with pytest.raises(ConfigError, match="2 hosts"):
        ChiasmConnector(config, ECConnectorRole.WORKER)


def test_ranks_that_schedule_for_themselves_are_refused(engine_id: Any) -> None:
    config = vllm_config("ec_both", engine_id(), tensor_parallel=2)
    config.parallel_config.distributed_executor_backend = "external_launcher"
    with pytest.raises(ConfigError, match="external_launcher"):
        ChiasmConnector(config, ECConnectorRole.SCHEDULER)


def test_an_untried_version_of_vllm_is_a_warning(
    start: Start, monkeypatch: pytest.MonkeyPatch, log: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr("vllm.__version__", "0.34.0")
    engine = start("ec_both")
    assert any("0.34.0" in r.getMessage() for r in log if r.levelno == logging.WARNING)
    engine.run(request("r", [image("cat")]))


def test_the_start_says_where_it_serves_and_who_may_come(
    start: Start, log: list[logging.LogRecord]
) -> None:
    endpoint = start("ec_producer", ec_remote=True).node.endpoint
    said = [r.getMessage() for r in log]
    approved = f'ec_allowed_peers: ["{endpoint}"]'
    assert any(line.endswith(approved) for line in said), "as JSON has it, to be copied"
    assert any("VLLM_EC_SIDE_CHANNEL_PORT" in line and "after each start" in line for line in said)


def test_an_instance_says_what_its_peers_must_have(
    start: Start, log: list[logging.LogRecord]
) -> None:
    start("ec_consumer", ec_remote=True)
    said = [r.getMessage() for r in log if "compatibility hash" in r.getMessage()]
    assert len(said) == 1
    for part in ("vLLM version (0.", "model path (", "dtype (torch.", "row size (128 bytes)"):
        assert part in said[0]
    start("ec_both")
    assert len([r for r in log if "compatibility hash" in r.getMessage()]) == 1, "no peers, no line"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("chat-1", "chat-1"),
        ("a\nERROR all is lost", "a\\nERROR all is lost"),
        ("画\ud800", "\\u753b\\ud800"),
        ("x" * 200_000, "x" * 64 + "..."),
    ],
    ids=["plain", "newline", "no ascii", "long"],
)
def test_a_name_that_a_client_chose_is_one_short_line(name: str, line: str) -> None:
    assert logs.shown(name) == line


def test_an_idle_engine_says_which_line_to_add(start: Start, log: list[logging.LogRecord]) -> None:
    consumer = start("ec_consumer", ec_remote=True, ec_allowed_peers=["10.0.0.5:5601"])
    offer = {
        "peer_host": "10.0.0.5",
        "peer_port": 5602,
        "size_bytes": 4 * 128,
        "shape": [4, 64],
    }
    consumer.run(request("r", [image("cat")], {"cat": offer}))

    def said() -> bool:
        return any("10.0.0.5:5602" in r.getMessage() for r in log)

    until(said, "the refusal is in the log", consumer.node)


def test_a_failed_start_of_the_scheduler_leaves_the_worker_usable(
    start: Start, engine_id: Any
) -> None:
    name = engine_id()
    config = vllm_config("ec_both", name)
    worker = ChiasmConnector(config, ECConnectorRole.WORKER)
    broken = vllm_config("ec_both", name, ec_remote=True)
    broken.model_config.dtype = "no dtype"
    with pytest.raises((ConfigError, StartError)):
        ChiasmConnector(broken, ECConnectorRole.SCHEDULER)
    worker.shutdown()


def test_importing_the_package_needs_no_vllm() -> None:
    import subprocess
    import sys

    code = (
        f"import sys; sys.path[:] = {sys.path!r}; import chiasm, chiasm.vllm;"
        "assert not {'vllm', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
