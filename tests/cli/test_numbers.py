"""Numbers on the command line that are none, or too small, or too large."""

import pytest

from tests.cli.chiasm import Chiasm

FLEET = ("sim", "fleet")


@pytest.mark.parametrize(
    ("command", "flag", "allowed"),
    [
        (("sim", "run"), "--seeds", "a whole number from 1 to 18446744073709551615"),
        (("sim", "run"), "--first", "a whole number from 0 to 18446744073709551615"),
        (("sim", "run"), "--threads", "a whole number from 1 to 1024"),
        (FLEET, "--encoders", "a whole number from 1 to 256"),
        (FLEET, "--consumers", "a whole number from 1 to 256"),
        (FLEET, "--items", "a whole number from 1 to 1000000"),
        (FLEET, "--items-per-request", "a whole number from 1 to 64"),
        (FLEET, "--running", "a whole number from 1 to 10000"),
        (FLEET, "--local-input", "a whole number from 0 to 100"),
        (FLEET, "--seed", "a whole number from 0 to 18446744073709551615"),
        (FLEET, "--popularity", "a number from 0 to 10"),
        (FLEET, "--rate", "a number from 0.001 to 1000000"),
        (FLEET, "--duration", "a number of seconds, 0 or more"),
        (("produce", "store"), "--block", "a whole number from 1 to 18446744073709551615"),
        (("produce", "store"), "--metrics", "a port or HOST:PORT"),
        (
            ("config", "check", "{}"),
            "--data-parallel-index",
            "a whole number from 0 to 4294967295",
        ),
    ],
)
@pytest.mark.parametrize("given", ["-3", "many", "99999999999999999999999"])
def test_what_was_given_is_named_with_what_is_allowed(
    command: tuple[str, ...], flag: str, allowed: str, given: str, chiasm: Chiasm
) -> None:
    if (flag, given) == ("--duration", "99999999999999999999999"):
        given = "1e300"
    error = chiasm.run(*command, flag, given).one_error()
    assert f"'{given}'" in error
    assert flag in error
    assert f"allowed is {allowed}" in error
    assert "digit" not in error


def test_a_seed_that_is_none_is_named_too(chiasm: Chiasm) -> None:
    error = chiasm.run("sim", "replay", "-3").one_error()
    assert "'-3'" in error
    assert "allowed is a whole number from 0 to 18446744073709551615" in error
