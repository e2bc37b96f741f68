"""The environment of a measurement with vLLM, whose CPU build runs in this process and fetches nothing."""

from __future__ import annotations

import os


def settle(cache_gib: int) -> None:
    """Set the variables that vLLM reads, before it is imported; those that are set already stay.

    Args:
        cache_gib: GiB for the cache of keys and values of a CPU build.
    """
    variables = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    for name, value in variables.items():
        os.environ.setdefault(name, value)
