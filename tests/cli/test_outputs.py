"""Where encodings may be written, and where not: names come from outside."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Producer
from tests.cli.namespace import private

ALLOWED = "allowed are 1 to 200 of A-Z a-z 0-9 . _ -"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return stores.some(tmp_path / "store", a=(5, 1000), b=(6, 1000))


@pytest.fixture
def producer(chiasm: Chiasm, store: Path) -> Producer:
    return chiasm.produce(store)


def renamed(producer: Producer, *names: str) -> dict[str, Any]:
    """Params in which the names stand for the producer's "a"."""
    return dict.fromkeys(names, producer.params["a"])


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "..",
        ".",
        "/etc/x",
        "a/b",
        "a\\b",
        "nul\u0000",
        "\u0000",
        "line\nbreak",
        "\u001b[31mred",
        "space x",
        "~",
        "é",
        "a\u202eb",
        "h" * 201,
        "h" * 300,
        "-\u0000-",
    ],
    ids=repr,
)
def test_a_hash_that_is_no_name_for_a_directory_is_refused(
    chiasm: Chiasm, producer: Producer, tmp_path: Path, name: str
) -> None:
    before = stores.names(tmp_path)
    params = chiasm.params(renamed(producer, "a", name))
    error = chiasm.fetch(params, producer.endpoint, out=tmp_path / "copy").one_error()
    assert "cannot name a directory" in error
    assert ALLOWED in error
    assert error.isprintable(), "no part of the hash can act on a terminal"
    assert not Path("/etc/x").exists()
    assert stores.names(tmp_path) == sorted([*before, params.name]), "nothing at all is made"


@pytest.mark.parametrize("name", ["...", "-", "-rf", ".hidden", "h" * 200, "CON", "a.b_c-D"])
def test_odd_names_that_are_allowed(
    chiasm: Chiasm, producer: Producer, tmp_path: Path, name: str
) -> None:
    done = chiasm.fetch(renamed(producer, name), producer.endpoint, out=tmp_path / "copy")
    assert done.verdicts() == {name: ("unavailable", "nack_missing")}
    assert stores.names(tmp_path / "copy") == []


def test_the_producer_refuses_no_hash_that_a_file_system_can_hold(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    stores.some(tmp_path / "odd", **{"with space": (1, 1), "é": (1, 2), "h" * 255: (1, 3)})
    producer = chiasm.produce(tmp_path / "odd")
    assert set(producer.params) == {"with space", "é", "h" * 255}


def test_hashes_that_differ_in_case_only_are_refused(
    chiasm: Chiasm, producer: Producer, tmp_path: Path
) -> None:
    params = renamed(producer, "abc", "ABC", "other")
    error = chiasm.fetch(params, producer.endpoint, out=tmp_path / "copy").one_error()
    assert '"abc"' in error
    assert '"ABC"' in error
    assert '"other"' not in error
    assert "case" in error
    assert not (tmp_path / "copy").exists()


def test_files_that_exist_are_not_overwritten(
    chiasm: Chiasm, producer: Producer, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    there = copy / "a" / stores.FILE_NAME
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    error = chiasm.fetch(producer.announced, producer.endpoint, out=copy).one_error()
    assert str(there) in error
    assert "exists already (--force replaces it)" in error
    assert there.read_text() == "mine"
    assert stores.names(copy) == ["a", f"a/{stores.FILE_NAME}"], "nothing is fetched halfway"


def test_files_that_exist_are_replaced_if_asked_for(
    chiasm: Chiasm, producer: Producer, store: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for name in "ab":
        (copy / name).mkdir(parents=True)
        (copy / name / stores.FILE_NAME).write_text("old")
    (copy / "a" / "other").write_text("kept")
    done = chiasm.fetch(producer.announced, producer.endpoint, "--force", out=copy)
    assert done.code == 0
    assert stores.sha256sums(copy) == stores.sha256sums(store)
    assert (copy / "a" / "other").read_text() == "kept"


def test_a_directory_without_the_file_is_used(
    chiasm: Chiasm, producer: Producer, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "copy" / "a").mkdir(parents=True)
    assert chiasm.fetch(producer.announced, producer.endpoint, out=tmp_path / "copy").code == 0
    assert stores.sha256sums(tmp_path / "copy") == stores.sha256sums(store)


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_a_link_in_place_of_a_directory_is_not_followed(
    chiasm: Chiasm, producer: Producer, tmp_path: Path, force: list[str]
) -> None:
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    copy.mkdir()
    elsewhere.mkdir()
    (copy / "a").symlink_to(elsewhere)
    error = chiasm.fetch(producer.announced, producer.endpoint, *force, out=copy).one_error()
    assert str(copy / "a") in error
    assert "links are not followed" in error
    assert stores.names(elsewhere) == []


def test_a_link_in_place_of_the_file_is_replaced_not_followed(
    chiasm: Chiasm, producer: Producer, store: Path, tmp_path: Path
) -> None:
    copy, precious = tmp_path / "copy", tmp_path / "precious"
    precious.write_text("mine")
    (copy / "a").mkdir(parents=True)
    (copy / "a" / stores.FILE_NAME).symlink_to(precious)
    assert chiasm.fetch(producer.announced, producer.endpoint, out=copy).code == 2
    done = chiasm.fetch(producer.announced, producer.endpoint, "--force", out=copy)
    assert done.code == 0
    assert precious.read_text() == "mine"
    assert stores.sha256sums(copy) == stores.sha256sums(store)


def test_a_file_in_place_of_a_directory_is_kept(
    chiasm: Chiasm, producer: Producer, tmp_path: Path
) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "a").write_text("mine")
    out = tmp_path / "copy"
    error = chiasm.fetch(producer.announced, producer.endpoint, "--force", out=out).one_error()
    assert "is no directory" in error
    assert (tmp_path / "copy" / "a").read_text() == "mine"


def test_an_output_directory_that_is_a_file_is_named(
    chiasm: Chiasm, producer: Producer, tmp_path: Path
) -> None:
    (tmp_path / "copy").write_text("mine")
    out = tmp_path / "copy"
    assert str(out) in chiasm.fetch(producer.announced, producer.endpoint, out=out).one_error()
    assert out.read_text() == "mine"


def test_only_what_was_fetched_is_there(chiasm: Chiasm, producer: Producer, tmp_path: Path) -> None:
    params = producer.params | renamed(producer, "gone")
    done = chiasm.fetch(params, producer.endpoint, out=tmp_path / "copy")
    assert done.code == 1
    assert done.verdicts()["gone"] == ("unavailable", "nack_missing")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["a", "b"]


def test_a_full_disk_leaves_no_half_file(chiasm: Chiasm, tmp_path: Path) -> None:
    large = chiasm.produce(stores.some(tmp_path / "large", a=(512, 1024)))
    with private() as namespace:
        out = tmp_path / "small"
        out.mkdir()
        namespace.run("mount", "-t", "tmpfs", "-o", "size=256k", "chiasm-test", str(out))
        done = chiasm.fetch(large.announced, large.endpoint, out=out, prefix=namespace.prefix)
        assert done.code == 1
        assert os.strerror(errno.ENOSPC) in done.error_text()
        assert stores.names(namespace.path(str(out))) == []
        assert stores.names(namespace.path("/dev/shm")) == []


def announce(chiasm: Chiasm, store: Path, file: str | Path) -> Any:
    return chiasm.run("produce", store, "--for=0", "--announce", file)


def test_an_announcement_replaces_the_one_before(chiasm: Chiasm, store: Path) -> None:
    file = chiasm.params("old")
    assert announce(chiasm, store, file).code == 0
    assert "peer_host" in file.read_text()
    assert not list(file.parent.glob(".*")), "no draft is left"


def test_what_is_no_file_is_written_to_and_not_replaced(
    chiasm: Chiasm, store: Path, tmp_path: Path
) -> None:
    # Beside the real one, where a device can be made without harm.
    device, link, target = tmp_path / "null", tmp_path / "link", tmp_path / "target"
    os.mknod(device, 0o20666, os.makedev(1, 3))
    assert announce(chiasm, store, device).code == 0
    assert device.is_char_device()
    link.symlink_to(target)
    target.write_text("old" * 10_000)
    assert announce(chiasm, store, link).code == 0
    assert link.is_symlink()
    assert target.read_text().endswith("\n}\n")
    assert '"peer_host"' in announce(chiasm, store, "/dev/stdout").out


@pytest.mark.parametrize("file", ["missing/params.json", ".", "store"])
def test_an_announcement_that_cannot_be_written_is_told_before_loading(
    chiasm: Chiasm, store: Path, tmp_path: Path, file: str
) -> None:
    error = announce(chiasm, store, tmp_path / file).one_error()
    assert error.startswith(f"--announce {tmp_path / file}: ")
