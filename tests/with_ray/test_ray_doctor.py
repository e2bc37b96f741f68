"""`doctor` at a Ray cluster: one that is sound, one where something else is installed, and none."""

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

from localjudge.cluster import Cluster
from localjudge.doctor.cluster import examine_cluster


@pytest.fixture
def other_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster on whose node another version of localjudge is installed."""
    info = tmp_path / "site" / "localjudge-0.0.9.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: localjudge\nVersion: 0.0.9\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    start = ["start", "--head", f"--port={port}", "--num-cpus=1", "--include-dashboard=false"]
    environment = os.environ | {"PYTHONPATH": path, "RAY_TMPDIR": str(tmp_path)}
    head = subprocess.Popen(
        [*ray, *start, "--block", "--object-store-memory=100000000", f"--temp-dir=/tmp/lj{port}"],
        env=environment,
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

    (red,) = examine_cluster(Cluster("127.0.0.1:6"))
    assert (red.state, "there is no cluster at this address" in red.found) == ("wrong", True)
    assert red.mend
    (green,) = examine_cluster(Cluster("auto"))
    assert (green.state, green.found) == ("ok", "none is running; a run would start one on this machine")
    assert not ray.is_initialized()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6")
    (red,) = examine_cluster(Cluster("auto"))
    assert red.state == "wrong"


def test_a_cluster_with_another_localjudge_is_red(other_cluster: str) -> None:
    checks = examine_cluster(Cluster(other_cluster))
    (red,) = [check for check in checks if check.state == "wrong"]
    assert "localjudge 0.0.9, " in red.found
    assert red.mend.startswith("on that node: pip install 'localjudge[ray]==")


def test_a_sound_cluster_is_green_and_left_as_it_was(nodes: Any) -> None:
    for address in (nodes.address, "auto"):
        (check,) = examine_cluster(Cluster(address))
        assert (check.state, ": 3 node(s), 2 CPUs, 0 GPUs; Ray " in check.found) == ("ok", True)
