"""Announcements come back through clients: none is believed, and a bad one spoils no other."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Done, Producer

GOOD = {"peer_host": "127.0.0.1", "peer_port": 5601, "size_bytes": 4096, "shape": [1, 2048]}
MISSING = object()

# Hazards C1, D4, A8, D5, and their kin. Each with what the detail names.
BAD: list[tuple[str, Any, str]] = [
    ("peer_port", MISSING, "peer_port is missing"),
    ("peer_port", "abc", 'peer_port is "abc", expected an integer from 1 to 65535'),
    ("peer_port", "5601", "expected an integer"),
    ("peer_port", "0x15e1", "expected an integer"),
    ("peer_port", " 5601 ", "expected an integer"),
    ("peer_port", "5_601", "expected an integer"),
    ("peer_port", None, "peer_port is null"),
    ("peer_port", True, "peer_port is true"),
    ("peer_port", -1, "peer_port is -1"),
    ("peer_port", 0, "peer_port is 0"),
    ("peer_port", 70000, "peer_port is 70000"),
    ("peer_port", 5601.9, "peer_port is 5601.9"),
    ("peer_port", 5601.0, "peer_port is 5601.0"),
    ("peer_port", 1 << 64, "peer_port"),
    ("peer_port", [5601], "peer_port is an array of 1"),
    ("peer_host", ["127.0.0.1"], "peer_host is an array of 1, expected a string"),
    ("peer_host", {"a": 1}, "peer_host is an object of 1, expected a string"),
    ("peer_host", 2130706433, "peer_host is 2130706433, expected a string"),
    ("peer_host", False, "peer_host is false"),
    ("peer_host", "bad host!", "cannot stand in a host name"),
    ("peer_host", "", "empty or wildcard"),
    ("peer_host", "*", "empty or wildcard"),
    ("peer_host", "0.0.0.0", "empty or wildcard"),
    ("peer_host", "::", "empty or wildcard"),
    ("peer_host", "::ffff:0.0.0.0", "empty or wildcard"),
    ("peer_host", "127.1", "reads like a number"),
    ("peer_host", "127.000.000.001", "reads like a number"),
    ("peer_host", "0x7f000001", "reads like a number"),
    ("peer_host", "2130706433", "reads like a number"),
    ("peer_host", "fe80::1%eth0", "zone id"),
    ("peer_host", "127.0.0.1:5601", "no IPv6 address"),
    ("peer_host", "tcp://127.0.0.1", "no IPv6 address"),
    ("peer_host", "127.0.0.1\n", "cannot stand in a host name"),
    ("peer_host", "a\u0000b", "cannot stand in a host name"),
    ("peer_host", "\u0661\u0662\u0667.0.0.1", "cannot stand in a host name"),
    ("peer_host", "h" * 300_000, "at most"),
    ("size_bytes", MISSING, "size_bytes is missing"),
    ("size_bytes", 0, "size_bytes is 0, expected a positive integer"),
    ("size_bytes", -4096, "size_bytes is -4096"),
    ("size_bytes", "4096", "expected a positive integer"),
    ("size_bytes", 4096.5, "expected a positive integer"),
    ("size_bytes", 12288, "is not the size of [1, 2048]"),
    ("size_bytes", 4095, "is not the size of [1, 2048]"),
    ("size_bytes", (1 << 64) - 1, "is not the size of [1, 2048]"),
    ("size_bytes", 1 << 64, "size_bytes"),
    ("shape", MISSING, "shape is missing"),
    ("shape", None, "shape is null"),
    ("shape", "1x2048", "expected an array [rows, width]"),
    ("shape", [], "shape has 0 dimensions, expected 2"),
    ("shape", [2048], "shape has 1 dimensions, expected 2"),
    ("shape", [1, 1, 2048], "shape has 3 dimensions, expected 2"),
    ("shape", [1] * 1_300_000, "shape has 1300000 dimensions, expected 2"),
    ("shape", [1, 0], "expected integers from 1"),
    ("shape", [1, -32], "expected integers from 1"),
    ("shape", [1, 2048.0], "expected integers from 1"),
    ("shape", [True, 2048], "expected integers from 1"),
    ("shape", ["1", "2048"], "expected integers from 1"),
    ("shape", [1, 1 << 32], "expected integers from 1"),
    ("shape", [(1 << 32) - 1, (1 << 32) - 1], "is not the size of"),
]


def name(value: Any) -> str:
    return "missing" if value is MISSING else str(value)[:20]


@pytest.fixture
def announced() -> Iterator[dict[str, Any]]:
    """An announcement that is good as it is, of a producer that must not be contacted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield GOOD | {"peer_port": listener.getsockname()[1]}
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    ("field", "value", "named"), BAD, ids=[f"{field}-{name(value)}" for field, value, _ in BAD]
)
def test_a_bad_announcement_is_invalid_and_contacts_nobody(
    chiasm: Chiasm, announced: dict[str, Any], field: str, value: Any, named: str
) -> None:
    allow = f"127.0.0.1:{announced['peer_port']}"
    announced[field] = value
    if value is MISSING:
        del announced[field]
    done = chiasm.fetch({"a": announced}, allow)
    assert done.code == 1, done
    assert done.verdicts() == {"a": ("unavailable", "invalid")}
    assert named in done.only()["detail"], done.only()
    assert len(done.only()["detail"]) < 400
    assert done.json["connects"] == []


@pytest.mark.parametrize("value", [None, 1, True, "x", [], [GOOD]], ids=str)
def test_what_is_no_object_is_invalid(chiasm: Chiasm, value: Any) -> None:
    done = chiasm.fetch({"a": value}, "127.0.0.1:5601")
    assert done.verdicts() == {"a": ("unavailable", "invalid")}
    assert "an announcement is a JSON object, not" in done.only()["detail"]


@pytest.mark.parametrize("host", [None, MISSING], ids=name)
def test_without_a_host_there_is_nothing_to_read(
    chiasm: Chiasm, announced: dict[str, Any], host: Any
) -> None:
    allow = f"127.0.0.1:{announced['peer_port']}"
    announced["peer_host"] = host
    if host is MISSING:
        del announced["peer_host"]
    done = chiasm.fetch({"a": announced}, allow)
    assert done.verdicts() == {"a": ("unavailable", "not_announced")}


def test_an_invalid_announcement_with_local_input_falls_back(chiasm: Chiasm) -> None:
    done = chiasm.fetch({"a": GOOD | {"peer_port": -1}}, "127.0.0.1:5601", "--local=a")
    assert done.code == 1
    assert done.verdicts() == {"a": ("fallback", "invalid")}


@pytest.fixture
def producer(chiasm: Chiasm, tmp_path: Path) -> Producer:
    return chiasm.produce(stores.some(tmp_path / "store", good=(5, 1000)))


def test_bad_ones_do_not_disturb_the_good_one(chiasm: Chiasm, producer: Producer) -> None:
    params: dict[str, Any] = dict(producer.params)
    for index, (field, value, _) in enumerate(BAD):
        if len(str(value)) < 1000:
            params[f"bad-{index:02}"] = GOOD | {field: value}
            if value is MISSING:
                del params[f"bad-{index:02}"][field]
    done = chiasm.fetch(params, [producer.endpoint, "127.0.0.1:5601"])
    verdicts = done.verdicts()
    assert verdicts.pop("good") == ("fetched", None)
    assert len(verdicts) == len(params) - 1 > 50
    assert set(verdicts.values()) == {("unavailable", "invalid")}
    assert done.json["connects"] == [producer.endpoint]


@pytest.mark.parametrize(
    ("shape", "size", "reason"),
    [([5, 1000], 12288, "fetched"), ([10, 500], 12288, "ack"), ([1000, 5], 12288, "ack"),
     ([5, 500], 8192, "ack"), ([1, 1], 4096, "ack")],
)  # fmt: skip
def test_a_shape_that_is_not_the_producers_is_found_in_its_ack(
    chiasm: Chiasm, producer: Producer, shape: list[int], size: int, reason: str
) -> None:
    params = {"good": producer.params["good"] | {"shape": shape, "size_bytes": size}}
    done = chiasm.fetch(params, producer.endpoint)
    if reason == "fetched":
        assert done.code == 0
    else:
        assert done.verdicts() == {"good": ("unavailable", "ack_mismatch")}
        assert f"shape [5, 1000] granted, {shape} announced" in done.only()["detail"]


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("nonsense", "not JSON"),
        ('{"a": NaN}', "not JSON"),
        ('{"a": {}} trailing', "not JSON"),
        ("{'a': {}}", "not JSON"),
        ("\ufeff{}", "not JSON"),
        (deep(100_000), "recursion limit"),
        ('{"a":' + "[" * 100_000, "recursion limit"),
        ("[]", "is a JSON object {mm_hash: announcement}, not an array of 0"),
        ("null", "not null"),
        ('"text"', 'not "text"'),
        ("7", "not 7"),
        (json.dumps({f"h{index}": {} for index in range(4097)}), "4097 items, more than the limit"),
        ('{"": {}}', "mm_hash is empty"),
        ('{"' + "h" * 1025 + '": {}}', "1025 bytes, more than the limit of 1024"),
        (" " * (4 << 20) + "{}", "more than the limit of 4194304 bytes"),
        ('{"a": {"peer_host": "' + "é" * (4 << 20) + '"}}', "more than the limit of 4194304 bytes"),
    ],
    ids=lambda value: value[:16],
)
def test_params_that_are_none_are_refused(chiasm: Chiasm, text: str, named: str) -> None:
    params = chiasm.params(text)
    error = chiasm.fetch(params, "127.0.0.1:5601").one_error()
    assert error.startswith(f"--params {params}: ")
    assert named in error
    assert len(error) < 600
    assert not list(chiasm.directory.glob("*out")), "no store is made"


def test_params_that_are_no_text_are_refused(chiasm: Chiasm) -> None:
    params = chiasm.params("")
    params.write_bytes(b'{"\xff\xfe": {}}')
    assert "utf-8" in chiasm.fetch(params).one_error()


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_params_that_cannot_be_read_are_named(chiasm: Chiasm, tmp_path: Path, name: str) -> None:
    error = chiasm.fetch(tmp_path / name).one_error()
    assert error.startswith(f"--params {tmp_path / name}: ")


def test_as_many_items_as_are_allowed(chiasm: Chiasm) -> None:
    done = chiasm.fetch({f"h{index}": {} for index in range(4096)})
    assert done.code == 1
    assert len(done.json["items"]) == 4096


@pytest.mark.parametrize(
    ("allow", "named"),
    [
        ("127.1:5601", '"127.1:5601"'),
        ("0.0.0.0:5601", "wildcard"),
        ("*:5601", "wildcard"),
        ("127.0.0.1", "port is missing"),
        ("127.0.0.1:0", "from 1 to 65535"),
        ("127.0.0.1:5601-5600", "reversed"),
        ("127.0.0.1:1-65535", "limit of 1024"),
        ("", "port is missing"),
        ("a:1,b:2", '"a:1,b:2"'),
    ],
)
def test_an_allowlist_that_is_none_is_refused(chiasm: Chiasm, allow: str, named: str) -> None:
    error = chiasm.fetch({"a": GOOD}, ["10.0.0.1:1", allow]).one_error()
    assert error.startswith(f'--allow "{allow}": '), (
        "by what was given, not by a key of the plug-in"
    )
    assert named in error


@pytest.mark.parametrize("planes", ["", "tpc", "tcp,", "TCP", "tcp,rdma", "nixl2", "NIXL"])
def test_planes_that_are_none_are_refused(chiasm: Chiasm, planes: str) -> None:
    error = chiasm.fetch({"a": GOOD}, "127.0.0.1:5601", f"--planes={planes}").one_error()
    assert error.startswith("--planes")
    assert "tcp" in error


TIMES = ["--budget", "--ack-timeout", "--connect-timeout", "--read-timeout"]


@pytest.mark.parametrize("flag", TIMES)
@pytest.mark.parametrize("time", ["0", "-1", "nan", "inf", "1e300", "x", ""])
def test_a_time_that_is_none_is_refused(chiasm: Chiasm, flag: str, time: str) -> None:
    assert flag in chiasm.fetch({"a": GOOD}, "127.0.0.1:5601", f"{flag}={time}").one_error()


@pytest.mark.parametrize("region", ["0", "1", "4095"])
def test_a_region_without_a_block_is_refused(chiasm: Chiasm, region: str) -> None:
    error = chiasm.fetch({"a": GOOD}, (), f"--region={region}").one_error()
    assert f"a region of {region} bytes holds no block of 4096 bytes" in error


@pytest.mark.parametrize("block", ["18446744073709551615", "9223372036854775807"])
def test_a_block_that_fits_nowhere_is_told(chiasm: Chiasm, block: str) -> None:
    for done in (
        chiasm.fetch({"a": GOOD}, "127.0.0.1:5601", f"--block={block}"),
        chiasm.run("produce", stores.REAL, f"--block={block}"),
    ):
        assert done.code in (1, 2)
        assert "address space" in done.error_text(), done


def test_without_allow_nobody_is_contacted(chiasm: Chiasm, producer: Producer) -> None:
    done: Done = chiasm.fetch(producer.announced)
    assert done.code == 1
    assert done.verdicts() == {"good": ("unavailable", "not_allowed")}
    line = f"{producer.endpoint} is not allowed; if this producer is trusted, add it: "
    assert done.only()["detail"].startswith(line)
    assert done.json["connects"] == []
    assert producer.stop().err.endswith(
        "stopped: 0 granted, 0 read over tcp, 0 given back, 0 refused, 0 expired\n"
    )
