"""Check a Ray cluster: its address, the versions on its nodes, and its free resources."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import ray

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.engines.engine_log import output_to
from localjudge.engines.engine_options import AUTO, LOCAL, Cluster
from localjudge.engines.ray.placement import connect
from localjudge.errors import UsageError
from localjudge.system.requirements import SELF
from localjudge.system.version import __version__

_ANSWER_SECONDS = 60.0
"""Seconds that a node may take to start a worker process and answer."""


def examine_cluster(cluster: Cluster) -> list[Check]:
    """Check the given cluster. Only the address `local` starts one."""
    was_connected = ray.is_initialized()
    try:
        with output_to(Path(os.devnull)):
            address = connect(cluster.address, start=cluster.address == LOCAL)
    except UsageError as error:
        if (
            cluster.address == AUTO
            and isinstance(error.__context__, ConnectionError)
            and "RAY_ADDRESS" not in os.environ
        ):
            return [ok("cluster", "none is running; a run starts one on this machine")]
        said = str(error).removeprefix("--ray ")
        return [wrong("cluster", said, "run ray status on a node of it; ray start --head starts one")]
    try:
        return _joined(address)
    finally:
        if not was_connected:
            ray.shutdown()


def _joined(address: str) -> list[Check]:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    here = {"python": platform.python_version(), "ray": ray.__version__, "localjudge": __version__}
    answers = {node["NodeManagerAddress"] + "/" + node["NodeID"][:6]: _ask(node["NodeID"]) for node in nodes}
    done, _ = ray.wait(list(answers.values()), num_returns=len(answers), timeout=_ANSWER_SECONDS)
    checks = []
    for name, reference in answers.items():
        if reference not in done:
            said = f"node {name} started no process in {_ANSWER_SECONDS:.0f} s"
            checks.append(wrong("cluster", said, "read its raylet log, or remove the node: ray stop"))
            continue
        try:
            there = ray.get(reference)
        except ray.exceptions.RayError as error:
            said = (str(error).strip() or repr(error)).splitlines()[0]
            checks.append(wrong("cluster", f"node {name}: {said}", "restart that node: ray stop; ray start"))
            continue
        checks += [
            wrong("cluster", f"node {name}: {what} {there[what]}, {here[what]} here", fix)
            for what, fix in (
                ("python", f"use Python {here['python']} on that node, too"),
                ("ray", f'on that node: pip install "ray=={here["ray"]}"'),
                ("localjudge", "install localjudge on that node from the same checkout or pack"),
            )
            if there[what] != here[what]
        ]
    resources = ray.cluster_resources()
    room = f"{len(nodes)} node(s), {resources.get('CPU', 0):g} CPUs, {resources.get('GPU', 0):g} GPUs"
    free = ray.available_resources()
    if not resources.get("CPU"):
        checks.append(
            wrong("cluster", f"{address}: {room}; no worker has room", "add a node: ray start --address")
        )
    elif not free.get("CPU"):
        checks.append(note("cluster", f"{address}: {room}, all in use", "wait, or add a node"))
    elif not checks:
        checks.append(
            ok("cluster", f"{address}: {room}; Ray {here['ray']} and localjudge {here['localjudge']} on each")
        )
    return checks


def _ask(node: str) -> Any:
    """Start a task on a node that returns the versions installed there."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def versions() -> dict[str, str]:  # sent by value, because localjudge may be missing on the node
        import platform
        from importlib import metadata

        def of(package: str) -> str:
            try:
                return metadata.version(package)
            except metadata.PackageNotFoundError:
                return "not installed"

        return {"python": platform.python_version(), "ray": of("ray"), "localjudge": of(SELF)}

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(versions).options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
