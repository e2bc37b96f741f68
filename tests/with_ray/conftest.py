"""Fixtures of the tests with real Ray; if Ray is not installed, every module here is skipped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from localjudge import Judge

if find_spec("ray"):
    os.environ |= {
        "RAY_AUTH_MODE": "disabled",
        "RAY_BACKEND_LOG_LEVEL": "fatal",
        "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
        "RAY_USAGE_STATS_ENABLED": "0",
    }

OBJECT_STORE = 100 * 2**20


@pytest.fixture(scope="module", autouse=True)
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let one worker of pytest have a cluster at a time: `auto` would find that of another."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "ray.lock"):
        yield


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """Start a cluster on this machine: a head without CPUs for the driver, and two nodes of one worker each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1, object_store_memory=OBJECT_STORE)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def judge_on(model: Path, tmp_path: Path) -> Iterator[Callable[..., Judge]]:
    """Return a function that creates judges on a cluster or in this process; events are in `engine.log`."""
    opened: list[Judge] = []

    def judge_by(cluster: Any, engine: str = "transformers", **engine_args: str) -> Judge:
        options = {"dtype": "float32", "batch_size": "4"} | engine_args
        judge = Judge(
            model,
            max_rationale_tokens=24,
            engine=engine,
            cluster=cluster,
            engine_args=options,
        )
        judge.configure_engine(None, tmp_path / "engine.log")
        opened.append(judge)
        return judge

    yield judge_by
    for judge in opened:
        if hasattr(engine := vars(judge).get("engine"), "close"):
            engine.close()
