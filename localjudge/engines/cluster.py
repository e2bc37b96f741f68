"""A Ray cluster to judge on: its address, and the number and size of workers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localjudge.errors import UsageError

AUTO, LOCAL = "auto", "local"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster and the workers requested from it.

    Attributes:
        address: `auto` (a running cluster if Ray finds one, else this machine), `local` (this machine), or the
            HOST:PORT of a running cluster to which this machine belongs.
        workers: minimum and maximum; None for as many as the cluster can hold when the run joins it.
        gpus_per_worker: a fraction of a GPU, or whole GPUs; None to follow the engine's tensor_parallel_size
            if there are GPUs.
    """

    address: str = LOCAL
    workers: tuple[int, int] | None = None
    gpus_per_worker: float | None = None

    @classmethod
    def parse(
        cls, ray: str | None, num_workers: str | None = None, gpus_per_worker: float | None = None
    ) -> Cluster | None:
        """Return the cluster that `--ray`, `--num-workers` and `--gpus-per-worker` request; None for none.

        Raises:
            UsageError: the flags are invalid.
        """
        if ray is None:
            given = "--num-workers" if num_workers is not None else "--gpus-per-worker"
            if num_workers is not None or gpus_per_worker is not None:
                raise UsageError(f"{given} needs a cluster: give --ray local, auto or an address, too")
            return None
        if ray.startswith("ray://"):
            raise UsageError(
                f"--ray {ray}: Ray's client protocol is not supported; run this on a node of the cluster, "
                "with --ray auto or --ray HOST:PORT"
            )
        if ray not in (AUTO, LOCAL) and not re.fullmatch(r"\S+:\d+", ray):
            raise UsageError(f"--ray {ray}: give auto, local or the HOST:PORT of a cluster")
        gpus = gpus_per_worker
        if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus == int(gpus))):
            raise UsageError(f"--gpus-per-worker {gpus:g}: give 0, a fraction below 1, or a whole number")
        return cls(ray, None if num_workers is None else _bounds(num_workers), gpus)


def _bounds(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    fewest = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if not 1 <= fewest <= most:
        raise UsageError(f"--num-workers {text}: give N or MIN:MAX, each at least 1")
    return fewest, most
