"""GPUs by name, with the memory that a program finds on each.

This is less than the memory that is sold: 24 GB of GDDR6 with error correction are 22.5 GiB. The numbers are
the totals that `nvidia-smi` prints ("0MiB / 81559MiB") in public logs, looked up in November 2026. That of the
MI300X is from `rocm-smi`: 206,141,652,992 bytes (github.com/ROCm/legacy-rocm-build, issue 4750). A GPU that
also has a screen, or is divided, has less for a model.
"""

from __future__ import annotations

from localjudge.errors import UsageError
from localjudge.system.quantities import MIB

GPU_MEMORY = {
    "t4": 15_360,
    "a10": 23_028,
    "a10g": 23_028,
    "l4": 23_034,
    "rtx3090": 24_576,
    "rtx4090": 24_564,
    "rtx5090": 32_607,
    "a40": 46_068,
    "l40s": 46_068,
    "rtx-pro-6000": 97_887,
    "a100-40": 40_960,
    "a100-80": 81_920,
    "h100": 81_559,
    "h100-nvl": 95_830,
    "h200": 143_771,
    "b200": 183_359,
    "mi300x": 196_592,
}
"""The memory of each GPU in MiB."""


def gpu_memory(name: str) -> int:
    """Return the bytes of a GPU's memory by its name; letter case and separators make no difference.

    Raises:
        UsageError: no GPU of the table has this name.
    """
    letters = _letters(name)
    for gpu, memory in GPU_MEMORY.items():
        if _letters(gpu) == letters:
            return memory * MIB
    names = ", ".join(GPU_MEMORY)
    raise UsageError(f"`gpu` {name}: is not in the table; give one of {names}, or its GiB with `gpu_memory`")


def _letters(name: str) -> str:
    """Return the letters and digits of a name in lower case."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
