"""A Ray cluster to judge on: its address, and the number and size of workers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from localjudge.errors import SettingError

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
        """Return the cluster that these settings request; None without an address, `ray`.

        Raises:
            SettingError: the settings are invalid.
        """
        if ray is None:
            for name, value in (("num_workers", num_workers), ("gpus_per_worker", gpus_per_worker)):
                if value is not None:
                    advice = "needs a cluster: give `ray` local, auto or an address, too"
                    raise SettingError(name, value, advice)
            return None
        if ray.startswith("ray://"):
            advice = "Ray's client protocol is not supported; run this on a node of the cluster, and give auto"
            raise SettingError("ray", ray, f"{advice} or HOST:PORT")
        if ray not in (AUTO, LOCAL) and not re.fullmatch(r"\S+:\d+", ray):
            raise SettingError("ray", ray, "give auto, local or the HOST:PORT of a cluster")
        gpus = gpus_per_worker
        if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus == int(gpus))):
            raise SettingError("gpus_per_worker", f"{gpus:g}", "give 0, a fraction below 1, or a whole number")
        return cls(ray, None if num_workers is None else _bounds(num_workers), gpus)


def _bounds(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    fewest = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if not 1 <= fewest <= most:
        raise SettingError("num_workers", text, "give N or MIN:MAX, each at least 1")
    return fewest, most
