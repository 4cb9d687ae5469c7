"""Spellings of endpoints: one canonical form, or none (hazard B5)."""

import pytest

from tests.cli.chiasm import Chiasm

CANONICAL = {
    "10.0.0.5:5601": "10.0.0.5:5601",
    "10.0.0.5:1": "10.0.0.5:1",
    "10.0.0.5:65535": "10.0.0.5:65535",
    "localhost:5601": "localhost:5601",
    "LOCALHOST:5601": "localhost:5601",
    "localhost.:5601": "localhost:5601",
    "Vision-0.Pool.Example.:5601": "vision-0.pool.example:5601",
    "under_score:1": "under_score:1",
    "xn--bcher-kva.example:1": "xn--bcher-kva.example:1",
    "[::1]:5601": "[::1]:5601",
    "[0:0:0:0:0:0:0:1]:5601": "[::1]:5601",
    "[FE80::0001]:5601": "[fe80::1]:5601",
    "[::ffff:127.0.0.1]:5601": "127.0.0.1:5601",
    "[::FFFF:7f00:1]:5601": "127.0.0.1:5601",
    "[2001:db8::1]:5601": "[2001:db8::1]:5601",
}

REFUSED = {
    "127.1:5601": "reads like a number",
    "127.0.1:5601": "reads like a number",
    "127.000.000.001:5601": "reads like a number",
    "0177.0.0.1:5601": "reads like a number",
    "0x7f000001:5601": "reads like a number",
    "0X7F.1:5601": "reads like a number",
    "2130706433:5601": "reads like a number",
    "017700000001:5601": "reads like a number",
    "256.0.0.1:5601": "reads like a number",
    "1.2.3.4.5:5601": "reads like a number",
    "10.0.0.5.:5601": "reads like a number",
    "0.0.0.0:5601": "wildcard",
    "[::]:5601": "wildcard",
    "[::ffff:0.0.0.0]:5601": "wildcard",
    "*:5601": "wildcard",
    "*.example:5601": "wildcard",
    ":5601": "wildcard",
    "::1:5601": "brackets",
    "[::1:5601": "bracket",
    "::ffff:127.0.0.1:5601": "brackets",
    "[fe80::1%eth0]:5601": "zone id",
    "[fe80::1%25eth0]:5601": "zone id",
    "[127.0.0.1]:5601": "no IPv6 address",
    "[::1]": "port is missing",
    "10.0.0.5": "port is missing",
    "": "port is missing",
    "10.0.0.5:": "a port is a number",
    "10.0.0.5:0": "a port is a number",
    "10.0.0.5:05601": "a port is a number",
    "10.0.0.5:+5601": "a port is a number",
    "10.0.0.5:-1": "a port is a number",
    "10.0.0.5: 5601": "a port is a number",
    "10.0.0.5:5601 ": "a port is a number",
    "10.0.0.5:5_601": "a port is a number",
    "10.0.0.5:0x15e1": "a port is a number",
    "10.0.0.5:5601.0": "a port is a number",
    "10.0.0.5:65536": "a port is a number",
    "10.0.0.5:99999999999999999999": "a port is a number",
    "10.0.0.5:\u0665\u0666\u0660\u0661": "a port is a number",
    "10.0.0.5:\uff15\uff16\uff10\uff11": "a port is a number",
    " 10.0.0.5:5601": "cannot stand in a host name",
    "bad host!:5601": "cannot stand in a host name",
    "10\u30020\u30020\u30025:5601": "cannot stand in a host name",
    "bücher.example:5601": "xn--",
    "loca\u0131host:5601": "cannot stand in a host name",
    "a\nb:5601": "cannot stand in a host name",
    "tcp://10.0.0.5:5601": "scheme",
    "a..b:5601": "no empty part",
    ".a:5601": "no empty part",
    "-a:5601": "begins or ends with '-'",
    "a-:5601": "begins or ends with '-'",
    "a@b:5601": "cannot stand in a host name",
    "a/b:5601": "cannot stand in a host name",
    "h" * 64 + ":5601": "at most 63",
    "h." * 127 + "h:5601": "at most 253",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_an_endpoint_has_one_canonical_form(chiasm: Chiasm, text: str) -> None:
    done = chiasm.run("endpoint", text)
    assert (done.code, done.out, done.err) == (0, CANONICAL[text] + "\n", "")
    again = chiasm.run("endpoint", CANONICAL[text])
    assert again.out == done.out


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:30])
def test_any_other_spelling_is_refused_with_the_reason(chiasm: Chiasm, text: str) -> None:
    error = chiasm.run("endpoint", text).one_error()
    assert REFUSED[text] in error
    assert error.isprintable()
    if text.isascii() and text.isprintable() and len(text) < 64:
        assert error.startswith(f'"{text}" is not an endpoint (host:port): ')


def test_json_says_what_the_text_means(chiasm: Chiasm) -> None:
    for text, kind in [("[::1]:1", "ipv6"), ("127.0.0.1:1", "ipv4"), ("Name:1", "name")]:
        value = chiasm.run("endpoint", text, "--json").json
        assert value.keys() == {"endpoint", "host", "host_kind", "port"}
        assert value["host_kind"] == kind
        assert value["port"] == 1
