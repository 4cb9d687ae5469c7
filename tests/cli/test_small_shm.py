"""A /dev/shm that is too small, as Docker's is by default: told at the start, with the remedy."""

from pathlib import Path

from tests.cli import stores
from tests.cli.chiasm import Chiasm, Done
from tests.cli.namespace import Namespace, private


def told(done: Done, namespace: Namespace) -> None:
    assert done.code == 1, done
    assert done.out == ""
    error = done.error_text()
    assert error.startswith("/dev/shm has ")
    assert "bytes free, the region needs " in error
    assert "--shm-size" in error, "the remedy in Docker"
    assert "emptyDir" in error, "and in Kubernetes"
    assert "--region" in error, "and here"
    assert stores.names(namespace.path("/dev/shm")) == []


def test_a_region_that_does_not_fit_is_told(chiasm: Chiasm, tmp_path: Path) -> None:
    store = stores.some(tmp_path / "store", a=(512, 1024))
    with private(shm_bytes=1 << 20) as namespace:
        told(chiasm.run("produce", store, "--for=0", prefix=namespace.prefix), namespace)
        params = {
            "a": {
                "peer_host": "127.0.0.1",
                "peer_port": 5601,
                "size_bytes": 1 << 20,
                "shape": [512, 1024],
            }
        }
        done = chiasm.fetch(params, "127.0.0.1:5601", prefix=namespace.prefix)
        told(done, namespace)


def test_a_fetch_can_do_with_less(chiasm: Chiasm, tmp_path: Path) -> None:
    shapes = {f"item-{index}": (100, 1024) for index in range(8)}
    store = stores.some(tmp_path / "store", **shapes)
    producer = chiasm.produce(store)
    with private(shm_bytes=1 << 20) as namespace:
        prefix, copy = namespace.prefix, tmp_path / "copy"
        told(chiasm.fetch(producer.announced, producer.endpoint, prefix=prefix), namespace)
        small = ["--region=512KiB"]
        done = chiasm.fetch(producer.announced, producer.endpoint, *small, out=copy, prefix=prefix)
        assert done.code == 0, done
        assert stores.names(namespace.path("/dev/shm")) == []
    assert stores.sha256sums(copy) == stores.sha256sums(store)


def test_sizes_of_announcements_that_are_not_approved_or_not_valid_take_no_room(
    chiasm: Chiasm, tmp_path: Path
) -> None:
    producer = chiasm.produce(stores.some(tmp_path / "store", a=(100, 1024)))
    large = {"size_bytes": 3 << 30, "shape": [3 << 10, 1 << 19]}
    lie = {"size_bytes": (1 << 64) - 1, "shape": [1, 1]}
    params = producer.params | {
        "unapproved": producer.params["a"] | large | {"peer_host": "10.0.0.1"},
        "invalid": producer.params["a"] | lie,
    }
    with private(shm_bytes=1 << 20) as namespace:
        done = chiasm.fetch(params, producer.endpoint, prefix=namespace.prefix)
        assert stores.names(namespace.path("/dev/shm")) == []
    assert done.verdicts() == {
        "a": ("fetched", None),
        "unapproved": ("unavailable", "not_allowed"),
        "invalid": ("unavailable", "invalid"),
    }
