"""The memory of this machine and its GPUs."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs by name with their bytes of memory, and the bytes of main memory, if known."""

    gpus: tuple[tuple[str, int], ...]
    memory: int | None

    @property
    def usable_memory(self) -> int:
        """90 % of the memory; the rest is for the system."""
        return (self.memory or 0) * 9 // 10

    @classmethod
    def here(cls) -> Machine:
        """Return the GPUs that torch finds (none without torch) and the memory that this process may use."""
        gpus: list[tuple[str, int]] = []
        if find_spec("torch") is not None:
            import torch

            for index in range(torch.cuda.device_count()):
                about = torch.cuda.get_device_properties(index)
                gpus.append((about.name, about.total_memory))
        return cls(tuple(gpus), _memory())


def _memory() -> int | None:
    found = []
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # the limit of a container; "max" if there is none
        found.append(int(_CGROUP.read_text()))
    return min(found, default=None)
