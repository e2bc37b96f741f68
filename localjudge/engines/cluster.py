"""A Ray cluster to judge on: where it is, and how many workers of what size are asked of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localjudge.errors import UsageError

AUTO, LOCAL = "auto", "local"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, and the workers that are asked of it.

    Attributes:
        address: `auto` (a running cluster if Ray finds one, else this machine), `local` (this machine), or the
            HOST:PORT of a running cluster that this machine is a node of.
        workers: the fewest and the most; None for as many as the cluster has room for when it is joined.
        gpus_per_worker: a share of one, or whole ones; None for what the engine's tensor_parallel_size says,
            where there are GPUs.
    """

    address: str = LOCAL
    workers: tuple[int, int] | None = None
    gpus_per_worker: float | None = None

    @classmethod
    def parse(
        cls, ray: str | None, num_workers: str | None = None, gpus_per_worker: float | None = None
    ) -> Cluster | None:
        """The cluster that the flags `--ray`, `--num-workers` and `--gpus-per-worker` ask for, if any.

        Raises:
            UsageError: they say nothing that can be done.
        """
        if ray is None:
            given = "--num-workers" if num_workers is not None else "--gpus-per-worker"
            if num_workers is not None or gpus_per_worker is not None:
                raise UsageError(f"{given} is for a cluster: give --ray local, auto or an address, too")
            return None
        if ray.startswith("ray://"):
            raise UsageError(
                f"--ray {ray}: Ray's client protocol will not do; run this on a node of the cluster, "
                "with --ray auto or --ray HOST:PORT"
            )
        if ray not in (AUTO, LOCAL) and not re.fullmatch(r"\S+:\d+", ray):
            raise UsageError(f"--ray {ray}: there are auto, local and the HOST:PORT of a cluster")
        gpus = gpus_per_worker
        if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus == int(gpus))):
            raise UsageError(f"--gpus-per-worker {gpus:g}: give 0, a share of one, or a whole number")
        return cls(ray, None if num_workers is None else _bounds(num_workers), gpus)


def _bounds(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    fewest = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if not 1 <= fewest <= most:
        raise UsageError(f"--num-workers {text}: give N, or MIN:MAX, from 1 on")
    return fewest, most
