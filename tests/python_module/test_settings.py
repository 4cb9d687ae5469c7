"""`Settings`: the whole object, all problems at once, one region name for every process."""

import json

import pytest

from chiasm._native import ConfigError, Settings
from tests.python_module.instances import settings, transfer_config


def test_every_process_of_an_instance_gets_the_same_from_the_same_text() -> None:
    text = transfer_config(
        "ec_both", "engine-7", ec_remote=True, ec_allowed_peers=["10.0.0.9:5601"]
    )
    found = [Settings(text, data_parallel_index=3, host_address="10.0.0.5") for _ in range(2)]
    for one in found:
        assert one.region_name == "chiasm-engine-7_dp3"
        assert (one.engine_id, one.data_parallel_index, one.role) == ("engine-7", 3, "ec_both")
        assert (one.produces, one.consumes, one.remote, one.serves, one.reads) == (True,) * 5
        assert one.allowed_peers == ["10.0.0.9:5601"]
        assert (one.region_bytes, one.wait_budget_s, one.save_timeout_s) == (65536, 60.0, 60.0)


@pytest.mark.parametrize(
    ("role", "remote", "serves", "reads"),
    [
        ("ec_producer", True, True, False),
        ("ec_consumer", True, False, True),
        ("ec_both", True, True, True),
        ("ec_producer", False, False, False),
        ("ec_consumer", False, False, False),
        ("ec_both", False, False, False),
    ],
)
def test_who_serves_and_who_reads(role: str, remote: bool, serves: bool, reads: bool) -> None:
    found = settings(role, ec_remote=remote)
    assert (found.serves, found.reads) == (serves, reads)
    assert (found.produces, found.consumes) == (role != "ec_consumer", role != "ec_producer")


def test_all_problems_are_told_at_once() -> None:
    text = transfer_config(
        "ec_both", "e", ec_cpu_bytes="4 parsecs", ec_alowed_peers=[], pin_lease_s=-1
    )
    with pytest.raises(ConfigError) as raised:
        Settings(text)
    assert isinstance(raised.value, ValueError)
    for key in ("ec_cpu_bytes", "ec_allowed_peers", "pin_lease_s"):
        assert key in str(raised.value)


@pytest.mark.parametrize("engine_id", ["a/b", "../x", "", "a b", "x" * 129, "\u00e9", ".a"])
def test_an_engine_id_that_is_no_name_is_refused_with_its_key(engine_id: str) -> None:
    with pytest.raises(ConfigError, match="engine_id"):
        Settings(transfer_config("ec_both", engine_id))


def test_the_longest_engine_id_and_index_make_a_region_name() -> None:
    found = settings("ec_both", "x" * 128, index=2**32 - 1)
    assert found.region_name == "chiasm-" + "x" * 128 + "_dp4294967295"
    assert len(found.region_name) <= 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "object"),
        (json.dumps({"ec_cpu_bytes": 4096}), "whole --ec-transfer-config object"),
        (transfer_config("ec_both", None), "engine_id is missing"),
        (transfer_config("ec_producer", "e", ec_remote=True), "VLLM_EC_SIDE_CHANNEL_HOST"),
    ],
)
def test_what_cannot_be_an_instance_is_said(
    text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VLLM_EC_SIDE_CHANNEL_HOST", "VLLM_HOST_IP"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match=said):
        Settings(text)


def test_the_environment_is_read_when_settings_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_HOST", "10.1.2.3")
    monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_PORT", "5601")
    text = transfer_config("ec_producer", "e", ec_remote=True)
    effective = {name: (value, source) for name, value, source in Settings(text).effective}
    assert effective["VLLM_EC_SIDE_CHANNEL_HOST"][0] == "10.1.2.3"
    assert "VLLM_EC_SIDE_CHANNEL_PORT" in effective["VLLM_EC_SIDE_CHANNEL_PORT"][1]
    monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_HOST", "0.0.0.0")
    with pytest.raises(ConfigError, match="VLLM_EC_SIDE_CHANNEL_HOST"):
        Settings(text)


def test_what_is_odd_and_harmless_is_a_warning() -> None:
    found = settings("ec_both", somebody_elses_key=1)
    assert any("somebody_elses_key" in warning for warning in found.warnings)
    assert settings("ec_both").warnings == []
