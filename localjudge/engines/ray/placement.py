"""Joining a Ray cluster, or starting one on this machine, and what room there is in it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any

import ray

from localjudge.engines.cluster import AUTO, LOCAL, Cluster
from localjudge.errors import UsageError

_OBJECT_STORE = 200 * 2**20
"""Bytes of shared memory that Ray gets where it is started here: prompts and answers are small."""

_NO_PORT = -1
"""No valid port, so that a Ray that is started here goes on without its API server; it logs one error line.

Without a dashboard that server only gathers usage statistics. Even where they are switched off, it asks the
places where clouds describe a machine (`get_cloud_from_metadata_requests`), and has no switch for that.
"""

_REACH_SECONDS = 10.0


class WorkerPlacement:
    """How many workers of what size.

    Args:
        cluster: what is asked for.
        options: the engine's options; its `tensor_parallel_size` says how many GPUs it takes.
        address: where we are.

    Attributes:
        workers: the fewest and the most.
        gpus: GPUs of a worker.
        cpus: CPUs of a worker. Workers without GPUs share all CPUs evenly, and none has more than a node.

    Raises:
        UsageError: this machine has no room for them. Another cluster may grow.
    """

    def __init__(self, cluster: Cluster, options: Mapping[str, str], address: str) -> None:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = [node.get("GPU", 0.0) for node in nodes]
        cpus = [node["CPU"] for node in nodes if node.get("CPU", 0.0) >= 1] or [1.0]
        parallel = options.get("tensor_parallel_size", "1")
        usual_gpus = float(parallel) if any(gpus) and parallel.isdigit() else 0.0
        self.gpus = usual_gpus if cluster.gpus_per_worker is None else cluster.gpus_per_worker
        if self.gpus:
            self.cpus = 1.0
            usual = room = sum(int(each // self.gpus) for each in gpus)
        else:
            usual = sum(max(1, int(each // 2)) for each in cpus)
            most = cluster.workers[1] if cluster.workers else usual
            self.cpus = float(max(1, min(sum(cpus) // most, *cpus)))
            room = sum(int(each // self.cpus) for each in cpus)
        fewest, most = cluster.workers or (max(1, usual), max(1, usual))
        if address == LOCAL and fewest > room:
            raise UsageError(
                f"--ray: this machine has room for {room} worker(s) of {self}, and not for {fewest} "
                f"({sum(cpus):g} CPUs, {sum(gpus):g} GPUs)"
            )
        self.workers = (fewest, min(most, room) if address == LOCAL else most)

    def __str__(self) -> str:
        return f"{self.gpus:g} GPU" if self.gpus else f"{self.cpus:g} CPU"


def connect(address: str, start: bool = True) -> str:
    """Join a cluster, or start one on this machine; `local`, or its address.

    Args:
        address: as `Cluster` has it.
        start: whether `auto` may start one where none is running.

    Raises:
        UsageError: there is none at the address.
    """
    if ray.is_initialized():
        return str(ray.get_runtime_context().gcs_address)
    if address not in (AUTO, LOCAL):
        _reach(address)
    elif address == AUTO and ":" in (named := os.environ.get("RAY_ADDRESS", "")):
        _reach(named)
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        return _init(address, start)
    except Exception as error:  # Ray raises plain exceptions, too, where it does not get going
        raise UsageError(f"--ray {address}: {(str(error).strip() or repr(error)).splitlines()[0]}") from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)  # Ray puts its own there


def _init(address: str, start: bool) -> str:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    own = {"include_dashboard": False, "dashboard_port": _NO_PORT, "object_store_memory": _OBJECT_STORE}
    if address == AUTO and not start:
        ray.init(AUTO, **quiet)
    elif address == AUTO:
        try:
            ray.init(**quiet, **own)
            return LOCAL
        except ValueError:  # there is one already, which takes no orders of how to start
            ray.init(**quiet)
    elif address == LOCAL:
        ray.init(LOCAL, **quiet, **own)
        return LOCAL
    else:
        ray.init(address, **quiet)
    return str(ray.get_runtime_context().gcs_address)


def _reach(address: str) -> None:
    """Ray itself asks for ever at an address where there is nothing."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise UsageError(f"--ray {address}: there is no cluster at this address: {error}") from None
