"""How instances come and go: twice the same, killed, forked, one after the other."""

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chiasm import _native
from chiasm._native import READY, ConfigError, Node, StartError, Worker, WorkerError
from tests.python_module.instances import (
    ROW_BYTES,
    ROW_ELEMENTS,
    instance,
    item,
    model,
    region_files,
    rows,
    settings,
)
from tests.python_module.processes import Child


def test_two_nodes_of_one_engine_id_are_a_clear_error() -> None:
    with instance("ec_both") as first:
        with pytest.raises(StartError, match=first.settings.region_name):
            Node(first.settings, first.model)
        # The one that runs has not noticed.
        first.save("image", rows(4))
    with instance("ec_both", first.settings.engine_id) as again:
        again.save("image", rows(4))


def test_two_engines_and_two_ranks_of_one_do_not_meet() -> None:
    one = settings("ec_both", "same-name", index=0)
    nodes = [Node(each, model()) for each in (one, settings("ec_both", "same-name", index=1))]
    for node in nodes:
        node.shutdown()
    assert region_files(one) == []


def test_a_node_that_is_let_go_leaves_nothing() -> None:
    found = settings("ec_both", ec_remote=True)
    node = Node(found, model())
    assert region_files(found)
    del node
    gc.collect()
    assert region_files(found) == []


@pytest.mark.parametrize("kind", ["node", "worker"])
def test_what_a_killed_process_leaves_is_gone_at_the_next_start(kind: str) -> None:
    found = settings("ec_both")
    with Child(found, kind) as killed:
        killed.kill()
        assert region_files(found)
    with instance("ec_both", found.engine_id) as next_one:
        next_one.save("image", rows(4))
    assert region_files(found) == []


def test_a_failed_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with instance("ec_producer", ec_remote=True) as first:
        monkeypatch.setenv("VLLM_EC_SIDE_CHANNEL_PORT", str(first.node.port))
        second = settings("ec_producer", ec_remote=True)
        with pytest.raises(StartError, match=f"127.0.0.1:{first.node.port}.*another process"):
            Node(second, model())
        assert region_files(second) == []


def test_a_region_without_a_block_and_one_past_the_memory_are_start_errors() -> None:
    small = settings("ec_both", ec_cpu_bytes=ROW_BYTES - 1)
    large = settings("ec_both", ec_cpu_bytes="1000TiB")
    for found in (small, large):
        for kind in (Node, Worker):
            with pytest.raises((StartError, ConfigError)):
                kind(found, model())
        assert region_files(found) == []


def test_a_required_plane_that_is_there_lets_a_node_start() -> None:
    found = settings("ec_both", ec_remote=True, ec_planes=["shm", "tcp required"])
    Node(found, model()).shutdown()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_nothing_with_what_its_parent_has() -> None:
    with instance("ec_both", ec_remote=True) as both:
        both.save("image", rows(4))
        data = both.node.dispatch_save("out", 4, ROW_ELEMENTS)
        assert data is not None
        order = _native.Order(data)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                node = both.node
                answers = [
                    node.is_stopped,
                    node.ensure("r", 1, 0) is None,
                    node.track("r", [item("image", local_input=True)], {}, 0) == READY,
                    not node.has_promised("image"),
                    node.dispatch_save("new", 4, ROW_ELEMENTS) is None,
                    node.metrics() == {},
                ]
                node.shutdown()
                both.worker.shutdown()
                try:
                    both.worker.complete(order, False)
                except WorkerError:
                    answers.append(True)
                os.write(writer, repr(answers).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader) as said:
            assert said.read() == repr([True] * 7)
        # Nothing has changed for the parent.
        assert region_files(both.settings)
        assert both.node.outstanding == 1
        both.worker.complete(order, False)
        assert both.node.track("r", [item("image")], None, 0) == READY
        assert both.load("image") == rows(4)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_that_ends_in_the_usual_way_ends_nothing_of_its_parent() -> None:
    script = """
import os, sys
from tests.python_module.instances import instance, region_files, rows
with instance("ec_both") as both:
    both.save("image", rows(4))
    child = os.fork()
    if child == 0:
        del both
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert region_files(both.settings)
    both.save("other", rows(4))
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], cwd=root, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kind", [Node, Worker])
def test_a_forked_child_lets_go_of_its_copy_without_waiting(kind: type[Node | Worker]) -> None:
    found = settings("ec_both", ec_remote=True)
    held = kind(found, model())
    child = os.fork()
    if child == 0:
        try:
            del held
            gc.collect()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert region_files(found)
    held.shutdown()
    assert region_files(found) == []


def test_importing_needs_neither_vllm_nor_torch_nor_numpy() -> None:
    script = """
import sys
import chiasm
assert chiasm.__version__ == chiasm._native.__version__
print(sorted({"vllm", "torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_version_is_that_of_the_workspace() -> None:
    manifest = Path(__file__).resolve().parents[2] / "Cargo.toml"
    assert f'version = "{_native.__version__}"' in manifest.read_text()


def test_a_shutdown_waits_for_what_peers_are_reading_and_lets_python_run() -> None:
    with instance("ec_producer", ec_remote=True) as producer:
        ended = threading.Event()

        def stop() -> None:
            producer.node.shutdown(60.0)
            ended.set()

        thread = threading.Thread(target=stop)
        thread.start()
        assert ended.wait(60.0), "nobody reads: there is nothing to wait for"
        thread.join()
