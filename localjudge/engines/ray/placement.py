"""Join a Ray cluster or start one on this machine, and compute how many workers it can hold."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Mapping
from typing import Any

import ray

from localjudge.engines.engine_options import AUTO, LOCAL, Cluster
from localjudge.errors import SettingError

_OBJECT_STORE = 200 * 2**20
"""Bytes of shared memory for a Ray that is started here; prompts and answers are small."""

_NO_PORT = -1
"""An invalid port, so that a Ray that is started here runs without its API server; it logs one error line.

Without a dashboard, that server only collects usage statistics. Even when they are switched off, it sends
requests to the metadata services of clouds (`get_cloud_from_metadata_requests`), which no setting prevents.
"""

_REACH_SECONDS = 10.0


class WorkerPlacement:
    """The number and the size of workers.

    Args:
        cluster: the requested cluster and workers.
        options: the engine's options; `tensor_parallel_size` is the number of GPUs that it uses.
        address: the address of the joined cluster.

    Attributes:
        workers: minimum and maximum.
        gpus: GPUs per worker.
        cpus: CPUs per worker. Workers without GPUs share all CPUs evenly; none has more than one node has.

    Raises:
        SettingError: this machine cannot hold the workers. (Another cluster may grow.)
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
            has = f"{sum(cpus):g} CPUs, {sum(gpus):g} GPUs"
            advice = f"this machine has room for {room} worker(s) of {self} ({has}); give fewer"
            raise SettingError("num_workers", fewest, advice)
        self.workers = (fewest, min(most, room) if address == LOCAL else most)

    def __str__(self) -> str:
        return f"{self.gpus:g} GPU" if self.gpus else f"{self.cpus:g} CPU"


def connect(address: str, start: bool = True) -> str:
    """Join a cluster, or start one on this machine. Return `local` or its address.

    Args:
        address: the `address` of a `Cluster`.
        start: whether `auto` may start a cluster if none is running.

    Raises:
        SettingError: there is no cluster at the address.
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
    except Exception as error:  # Ray also raises plain exceptions if it cannot start
        raise SettingError("ray", address, (str(error).strip() or repr(error)).splitlines()[0]) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)  # Ray installs its own signal handler


def _init(address: str, start: bool) -> str:
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    own = {"include_dashboard": False, "dashboard_port": _NO_PORT, "object_store_memory": _OBJECT_STORE}
    if address == AUTO and not start:
        ray.init(AUTO, **quiet)
    elif address == AUTO:
        try:
            ray.init(**quiet, **own)
            return LOCAL
        except ValueError:  # a cluster is running already; it accepts no start options
            ray.init(**quiet)
    elif address == LOCAL:
        ray.init(LOCAL, **quiet, **own)
        return LOCAL
    else:
        ray.init(address, **quiet)
    return str(ray.get_runtime_context().gcs_address)


def _reach(address: str) -> None:
    """Fail early if nothing listens at the address; Ray itself would retry forever."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise SettingError("ray", address, f"there is no cluster at this address: {error}") from None
