"""The memory of this machine, its GPUs, and what its processor can compute with."""

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


def has_bfloat16() -> bool:
    """Return whether the processor has bfloat16 instructions; True if that is unknown. It needs torch."""
    import torch

    can = torch.cpu.get_capabilities()
    if can.get("architecture") == "x86_64":
        return bool(can.get("avx512_bf16") or can.get("amx_bf16"))
    return bool(can.get("bf16", True))


def _memory() -> int | None:
    found = []
    with suppress(ValueError, OSError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # the limit of a container; "max" if there is none
        found.append(int(_CGROUP.read_bytes()))
    return min(found, default=None)
