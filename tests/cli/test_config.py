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
        "ec_connector_extra_config": {"ec_cpu_bytes": "1MiB", "ec_enable_nixl": True},
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


@pytest.mark.parametrize(
    ("named", "key", "said"),
    [
        ({"ec_connector": "ECCPUConnector"}, "ec_connector", '"ECCPUConnector": is not Chiasm\'s'),
        ({}, "ec_connector", "vLLM loads no connector at all"),
        ({"ec_connector": "ChiasmConnector"}, "ec_connector_module_path", '"chiasm.vllm"'),
    ],
)
def test_a_configuration_without_chiasm_ends_with_2(
    chiasm: Chiasm, named: dict[str, str], key: str, said: str
) -> None:
    whole = {"ec_role": "ec_producer", "ec_connector_extra_config": {"ec_cpu_bytes": "1MiB"}}
    text = json.dumps(named | whole)
    error = chiasm.run("config", "check", text, prefix=environment()).one_error()
    assert error.startswith(f"no engine uses Chiasm with this: {key}")
    assert said in error
    in_json = chiasm.run("config", "check", "--json", text, prefix=environment())
    (problem,) = in_json.json["problems"]
    assert (in_json.code, problem["key"]) == (2, key)
    assert said in problem["message"]


def test_what_this_machine_lacks_is_a_warning(chiasm: Chiasm, tmp_path: Path) -> None:
    settings = {
        "ec_cpu_bytes": "512TiB",
        "ec_remote": True,
        "ec_allowed_peers": ["10.0.0.5:5601"],
        "ec_nixl_library": f"{tmp_path}/nowhere.so",
        "ec_nixl_interfaces": ["lo", "nowhere0"],
    }
    given = environment(**{HOST: "10.0.0.5", PORT: "5601"})
    done = chiasm.run("config", "check", json.dumps(settings), prefix=given)
    assert done.code == 0
    library, interface, room = done.err.splitlines()
    assert library.startswith("warning: ec_nixl_library: on this machine NIXL cannot be used: ")
    assert f"{tmp_path}/nowhere.so" in library
    assert interface.startswith('warning: ec_nixl_interfaces, "nowhere0": there is no such')
    assert "lo" in interface.partition("there are ")[2].split(", ")
    assert room.startswith("warning: ec_cpu_bytes, 512 TiB: /dev/shm on this machine has only ")
    in_json = chiasm.run("config", "check", "--json", json.dumps(settings), prefix=given)
    warnings = [line.removeprefix("warning: ") for line in (library, interface)]
    assert in_json.json["machine_warnings"][:2] == warnings
    assert len(in_json.json["machine_warnings"]) == 3
    assert in_json.json["required_planes_absent"] == []


def test_the_committed_reference_is_what_the_command_prints(chiasm: Chiasm) -> None:
    done = chiasm.run("config", "reference")
    assert (done.code, done.err) == (0, "")
    assert done.out == (ROOT / "docs" / "configuration.md").read_text()
