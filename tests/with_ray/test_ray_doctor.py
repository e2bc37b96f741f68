"""Tests of `doctor` with a Ray cluster: a valid one, one with other packages, and none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from localjudge.diagnostics.ray_check import examine_cluster
from localjudge.engines.engine_options import Cluster

pytestmark = pytest.mark.slow

# Code that a node's Python runs first, so that it differs from the driver's Python.
ANOTHER_PYTHON = "import platform; platform.python_version = lambda: '3.9.9'"
DYING = """
import os, sys
from importlib import metadata
if "default_worker.py" in " ".join(sys.orig_argv):
    asked = metadata.version
    metadata.version = lambda package: os._exit(1) if package == "localjudge-eval" else asked(package)
"""


@pytest.fixture
def other_cluster(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Yield a function that starts a node with other packages and returns the cluster's address."""
    heads = []

    def make(first: str = "", cpus: int = 1, **versions: str) -> str:
        site = tmp_path / "site"
        for package, installed in versions.items():
            info = site / f"{package}-{installed}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {package}\nVersion: {installed}\n")
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(first)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
        ray = [sys.executable, "-m", "ray.scripts.scripts"]
        start = ["start", "--head", f"--port={port}", f"--num-cpus={cpus}", "--include-dashboard=false"]
        heads.append(
            subprocess.Popen(
                [*ray, *start, "--block", "--object-store-memory=100000000", f"--temp-dir=/tmp/lj{port}"],
                env=os.environ | {"PYTHONPATH": path, "RAY_TMPDIR": str(tmp_path)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
        address = f"127.0.0.1:{port}"
        for _ in range(60):
            if subprocess.run([*ray, "status", f"--address={address}"], capture_output=True).returncode == 0:
                break
        return address

    yield make
    for head in heads:
        head.terminate()
        head.wait(timeout=60)


def test_a_cluster_that_is_not_there_is_red_and_none_is_started_for_auto(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import ray

    (red,) = examine_cluster(Cluster("127.0.0.1:6"))
    assert (red.state, "there is no cluster at this address" in red.found) == ("wrong", True)
    assert red.fix
    (green,) = examine_cluster(Cluster("auto"))
    assert (green.state, green.found) == ("ok", "none is running; a run starts one on this machine")
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6")
    (red,) = examine_cluster(Cluster("auto"))
    assert red.state == "wrong"


def test_a_node_with_other_versions_and_without_room_is_red(other_cluster: Callable[..., str]) -> None:
    address = other_cluster(ANOTHER_PYTHON, cpus=0, localjudge_eval="0.0.9", ray="0.0.8")
    found = {check.found: check.fix for check in examine_cluster(Cluster(address)) if check.state == "wrong"}
    assert len(found) == 4
    for said, fix in {
        "python 3.9.9, ": "use Python ",
        "ray 0.0.8, ": 'on that node: pip install "ray==',
        "localjudge 0.0.9, ": "install localjudge on that node from the same checkout",
        "0 CPUs, 0 GPUs; no worker has room": "add a node: ",
    }.items():
        assert [given for line, given in found.items() if said in line and given and given.startswith(fix)]


def test_a_node_that_takes_too_long_to_start_a_process_is_red(
    nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localjudge.diagnostics.ray_check._ANSWER_SECONDS", 0.001)
    reds = [check for check in examine_cluster(Cluster(nodes.address)) if check.state == "wrong"]
    assert len(reds) == 3
    assert all("started no process in 0 s" in red.found and red.fix for red in reds)


def test_a_node_whose_processes_die_is_red(other_cluster: Callable[..., str]) -> None:
    checks = examine_cluster(Cluster(other_cluster(DYING)))
    (red,) = [check for check in checks if check.state == "wrong"]
    assert "died" in red.found or "crash" in red.found.lower()
    assert red.fix == "restart that node: ray stop; ray start"


def test_a_sound_cluster_is_green_and_left_as_it_was(nodes: Any) -> None:
    for address in (nodes.address, "auto"):
        (check,) = examine_cluster(Cluster(address))
        assert (check.state, ": 3 node(s), 2 CPUs, 0 GPUs; Ray " in check.found) == ("ok", True)
