"""Tests of `doctor` with a Ray cluster: a valid one, one without room, and none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from localjudge.diagnostics.doctor import Intent, examine
from localjudge.diagnostics.verification import Check
from localjudge.engines.engine_options import Cluster

pytestmark = pytest.mark.slow


def cluster_check(address: str) -> Check:
    """Return the check of the cluster at this address."""
    (found,) = [check for check in examine(Intent("none", cluster=Cluster(address))) if check.name == "cluster"]
    return found


@pytest.fixture
def empty_cluster(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a cluster whose only node has no CPU."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    start = ["start", "--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", "--block"]
    head = subprocess.Popen(
        [*ray, *start, "--object-store-memory=100000000", f"--temp-dir=/tmp/lj{port}"],
        env=os.environ | {"RAY_TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"127.0.0.1:{port}"
    for _ in range(60):
        if subprocess.run([*ray, "status", f"--address={address}"], capture_output=True).returncode == 0:
            break
    yield address
    head.terminate()
    head.wait(timeout=60)


def test_a_cluster_that_is_not_there_is_red_and_none_is_started_for_auto(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import ray

    red = cluster_check("127.0.0.1:6")
    assert (red.state, "there is no cluster at this address" in red.found) == ("wrong", True)
    assert red.fix
    green = cluster_check("auto")
    assert (green.state, green.found) == ("ok", "none is running; a run starts one on this machine")
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6")
    red = cluster_check("auto")
    assert red.state == "wrong"


def test_a_cluster_without_room_is_red(empty_cluster: str) -> None:
    red = cluster_check(empty_cluster)
    assert (red.state, "1 node(s), 0 CPUs, 0 GPUs; no worker has room" in red.found) == ("wrong", True)
    assert red.fix.startswith("add a node: ")


def test_a_sound_cluster_is_green_and_left_as_it_was(nodes: Any) -> None:
    for address in (nodes.address, "auto"):
        check = cluster_check(address)
        assert (check.state, check.found.endswith(": 3 node(s), 2 CPUs, 0 GPUs")) == ("ok", True)
