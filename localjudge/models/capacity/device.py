"""Devices that run a model: their peak rates, and the share of them that a judge reaches.

The rates of GPUs are from the vendors' data sheets: dense bfloat16 operations of the tensor cores with float32
accumulation (half of the rate with sparsity where a data sheet has only that), memory bandwidth and memory.
NVIDIA: the data sheets of A10, A30, A40, A100, H100, H200, HGX B200, L4, L40S, RTX A6000 and RTX 6000 Ada, and
the architecture whitepapers of RTX 3090 (GA102), 4090 (Ada) and 5090 (RTX Blackwell). AMD: the data sheets of
Instinct MI300X and MI325X. GPUs without bfloat16 (T4, V100) are left out.

The rates of a CPU depend on its cores and its memory modules, so they are measured where the judge runs.

The efficiencies are the shares of these rates that the engine reaches, fitted by
`benchmarks/throughput_prediction.py`. Those of CPUs were fitted on two shapes of a model and checked on a
third, with one thread. That of GPUs is from a single measurement, one shape on one H200
(`benchmarks/results/gpu.json`): no other shape and no other GPU has checked it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from localjudge.errors import UsageError
from localjudge.system.machine import Machine, has_bfloat16
from localjudge.system.quantities import GIB

_GPUS: dict[str, tuple[float, float, float]] = {
    # TFLOP/s, GB/s, GB
    "a10": (125, 600, 24),
    "a30": (165, 933, 24),
    "a40": (149.7, 696, 48),
    "a100-40gb": (312, 1555, 40),
    "a100-80gb": (312, 2039, 80),
    "a100-80gb-pcie": (312, 1935, 80),
    "b200": (2250, 8000, 180),
    "h100": (989.5, 3350, 80),
    "h100-pcie": (756.5, 2000, 80),
    "h100-nvl": (835.5, 3900, 94),
    "h200": (989.5, 4800, 141),
    "l4": (121, 300, 24),
    "l40s": (362, 864, 48),
    "mi300x": (1307.4, 5300, 192),
    "mi325x": (1307.4, 6000, 256),
    "rtx-3090": (71, 936, 24),
    "rtx-4090": (165.2, 1008, 24),
    "rtx-5090": (209.5, 1792, 32),
    "rtx-6000-ada": (364.2, 960, 48),
    "rtx-a6000": (154.8, 768, 48),
}
"""Dense bfloat16 operations, memory bandwidth and memory of a GPU."""
_ALIASES = {
    "a100": "a100-80gb",
    "a100-sxm4-40gb": "a100-40gb",
    "a100-pcie-40gb": "a100-40gb",
    "a100-sxm4-80gb": "a100-80gb",
    "h100-sxm": "h100",
    "h100-sxm5": "h100",
    "h100-80gb-hbm3": "h100",
    "h200-sxm": "h200",
    "3090": "rtx-3090",
    "4090": "rtx-4090",
    "5090": "rtx-5090",
    "a6000": "rtx-a6000",
    "rtx-6000-ada-generation": "rtx-6000-ada",
}
"""Other names: what people type, and what the driver reports without the vendor."""

GPU_EFFICIENCY = 0.63
"""Share of both peak rates of a GPU that vLLM reaches: one number, because one model shape was measured."""
CPU_COMPUTE_EFFICIENCY = 0.56
"""Share of a CPU's measured operations per second that the transformers engine reaches."""
CPU_BANDWIDTH_EFFICIENCY = 0.09
"""Share of a CPU's measured memory bandwidth that the transformers engine reaches, with small steps."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or the CPU of this machine.

    Attributes:
        name: its name, for people.
        is_gpu: True for a GPU, which runs vLLM; False for a CPU, which runs transformers.
        operations: peak floating-point operations per second.
        bandwidth: peak bytes per second of its memory.
        memory: bytes of its memory; 0 for a CPU, whose memory limits no number of rows.
        dtype: the type that it computes with.
        compute_efficiency: the share of `operations` that an engine reaches.
        bandwidth_efficiency: the share of `bandwidth` that an engine reaches.
        source: where the rates and the efficiencies are from, for people.
    """

    name: str
    is_gpu: bool
    operations: float
    bandwidth: float
    memory: int
    dtype: str
    compute_efficiency: float
    bandwidth_efficiency: float
    source: str

    @classmethod
    def gpu(cls, name: str) -> Self:
        """Return the GPU of a name such as `h100`, `NVIDIA L4` or `RTX 4090`.

        Raises:
            UsageError: no GPU of this name is known; the message lists the known ones.
        """
        found = known_gpu(name)
        if found is None:
            raise UsageError(f"no rates are known for a GPU {name!r}; known are {', '.join(_GPUS)}")
        operations, bandwidth, memory = _GPUS[found]
        return cls(
            found,
            True,
            operations * 1e12,
            bandwidth * 1e9,
            int(memory * GIB),
            "bfloat16",
            GPU_EFFICIENCY,
            GPU_EFFICIENCY,
            f"{GPU_EFFICIENCY:.0%} of the data sheet's rates (measured with one model shape on one H200)",
        )

    @classmethod
    def cpu(cls, dtype: str, seconds: float = 0.75) -> Self:
        """Return this machine's CPU; its two rates are measured now.

        Args:
            dtype: the type of the weights that it computes with, such as `bfloat16`.
            seconds: how long each rate is measured.
        """
        import torch

        size, count = 1024, 32 * 2**20
        left, right = (torch.randn(size, size).to(getattr(torch, dtype)) for _ in range(2))
        source = torch.zeros(count, dtype=torch.float32)
        target = torch.empty_like(source)
        multiplied = _fastest(lambda: torch.matmul(left, right), seconds)
        copied = _fastest(lambda: target.copy_(source), seconds)
        threads = torch.get_num_threads()
        return cls(
            f"this CPU ({threads} thread{'s' if threads > 1 else ''}, {dtype})",
            False,
            2 * size**3 / multiplied,
            2 * 4 * count / copied,  # read once, written once
            0,
            dtype,
            CPU_COMPUTE_EFFICIENCY,
            CPU_BANDWIDTH_EFFICIENCY,
            f"{CPU_COMPUTE_EFFICIENCY:.0%} and {CPU_BANDWIDTH_EFFICIENCY:.0%} of its rates, measured now",
        )

    @classmethod
    def here(cls, dtype: str) -> Self:
        """Return this machine's GPU, or its CPU if it has none.

        Args:
            dtype: the type of the model's weights. A CPU without bfloat16 instructions computes in float32.

        Raises:
            UsageError: no rates are known for this machine's GPU.
        """
        if gpus := Machine.here().gpus:
            return cls.gpu(gpus[0][0])
        return cls.cpu("float32" if dtype == "bfloat16" and not has_bfloat16() else dtype)


def known_gpu(name: str) -> str | None:
    """Return the key of a GPU's name as people type it or as its driver reports it; None if it is unknown."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    key = "-".join(word for word in words if word not in ("nvidia", "amd", "geforce", "instinct"))
    key = _ALIASES.get(key, key)
    return key if key in _GPUS else None


def _fastest(work: Callable[[], object], seconds: float) -> float:
    """Return the shortest time of several calls, in seconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)
