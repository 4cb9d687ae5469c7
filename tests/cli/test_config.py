"""`chiasm config` from outside: exit codes, outputs, and the real environment."""

import json
from pathlib import Path

import pytest

from tests.cli.chiasm import ROOT, Chiasm

HOST = "VLLM_EC_SIDE_CHANNEL_HOST"
PORT = "VLLM_EC_SIDE_CHANNEL_PORT"
PRODUCER = json.dumps(
    {
        "ec_connector": "ChiasmConnector",
        "ec_connector_module_path": "chiasm.vllm",
        "ec_role": "ec_producer",
        "ec_connector_extra_config": {"ec_cpu_bytes": "4GiB", "ec_enable_nixl": True},
    }
)


def environment(**variables: str) -> list[str]:
    """What runs a command with these of the variables, and no other."""
    given = [f"{name}={value}" for name, value in variables.items()]
    return ["env", "-u", HOST, "-u", PORT, "-u", "VLLM_HOST_IP", *given]


def test_the_variables_of_the_process_are_read(chiasm: Chiasm) -> None:
    prefix = environment(**{HOST: "10.0.0.5", PORT: "5601"})
    rank = chiasm.run(
        "config", "check", PRODUCER, "--json", "--data-parallel-index", "7", prefix=prefix
    )
    assert (rank.code, rank.err) == (0, "")
    assert rank.json["listen"] == "10.0.0.5:5608"
    source = rank.json["settings"][HOST]["source"]
    assert source == {"kind": "variable", "name": HOST}


@pytest.mark.parametrize("wildcard", ["*", "0.0.0.0", "::", ""])
def test_a_wildcard_from_the_environment_or_the_host_ends_with_2(
    chiasm: Chiasm, wildcard: str
) -> None:
    given = chiasm.run("config", "check", PRODUCER, prefix=environment(**{HOST: wildcard}))
    found = chiasm.run(
        "config", "check", PRODUCER, "--host-address", wildcard, prefix=environment()
    )
    for done in (given, found):
        assert (done.code, done.out) == (2, "")
        assert f"set {HOST} to" in done.err


def test_all_problems_stand_on_standard_error(chiasm: Chiasm) -> None:
    extra = {f"ec_unknown_{at}": 1 for at in range(50)}
    done = chiasm.run("config", "check", "-", text=json.dumps(extra))
    lines = done.one_error().splitlines()
    assert lines[0] == "the configuration has 51 problems"
    assert len(lines) == 52
    assert all(any(name in line for line in lines) for name in extra)


@pytest.mark.parametrize("key", ["ec_allowed_peer", "ec_alowed_peers", "allowed_peers"])
def test_a_misspelt_allowlist_ends_with_2(chiasm: Chiasm, tmp_path: Path, key: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"ec_cpu_bytes": 1, key: ["10.0.0.5:5601"]}))
    done = chiasm.run("config", "check", file)
    assert done.one_error().splitlines()[1:] == [
        f"  {key}: no such key; did you mean ec_allowed_peers?"
    ]
    in_json = chiasm.run("config", "check", "--json", file)
    (problem,) = in_json.json["problems"]
    assert (in_json.code, problem["nearest"]) == (2, "ec_allowed_peers")


def test_a_foreign_key_is_a_warning(chiasm: Chiasm) -> None:
    done = chiasm.run("config", "check", '{"ec_cpu_bytes": "1GiB", "someone_elses": 1}')
    assert done.code == 0
    assert done.err.startswith("warning: someone_elses: ")
    assert "1 GiB" in done.out


def test_the_committed_reference_is_what_the_command_prints(chiasm: Chiasm) -> None:
    done = chiasm.run("config", "reference")
    assert (done.code, done.err) == (0, "")
    assert done.out == (ROOT / "docs" / "configuration.md").read_text()
