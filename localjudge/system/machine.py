"""This machine: its memory, its GPUs, what its processor can compute with, and its libraries kept offline."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup/memory.max")
SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    # vLLM would open a socket to a public address to find its own. An engine uses one host only.
    "VLLM_HOST_IP": "127.0.0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
}
"""Environment variables that `go_offline` sets unless the user has set them."""


@dataclass(frozen=True, slots=True)
class Machine:
    """GPUs by name with their bytes of memory, and the bytes of main memory, if known."""

    gpus: tuple[tuple[str, int], ...]
    memory: int | None

    @property
    def usable_memory(self) -> int:
        """90 % of the memory; the rest is for the system."""
        if self.memory is None:
            return 0
        return self.memory * 9 // 10

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

    capabilities = torch.cpu.get_capabilities()
    if capabilities.get("architecture") == "x86_64":
        return bool(capabilities.get("avx512_bf16")) or bool(capabilities.get("amx_bf16"))
    return bool(capabilities.get("bf16", True))


def _memory() -> int | None:
    """Return the bytes of memory of this machine, or the limit of this container; None if neither is known."""
    limits: list[int] = []
    with suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max" without a limit
        limits.append(int(_CGROUP.read_bytes()))
    return min(limits, default=None)


def go_offline() -> None:
    """Set the variables, and update a hub library that was imported before.

    Variables that the user has set do not change.
    """
    is_chosen_by_user = "HF_HUB_OFFLINE" in os.environ
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None and not is_chosen_by_user:
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


@contextmanager
def online() -> Iterator[None]:
    """Allow the hub library to download within the block, for an explicitly requested download."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
