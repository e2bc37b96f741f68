"""What vLLM decides on a CPU, decided otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from vllm.platforms.cpu import CpuPlatform

CHECK = CpuPlatform.check_and_update_config.__func__


def check_and_then(change: Callable[[Any], None]) -> Any:
    """Return vLLM's check of its configuration on a CPU, after which this changes it, for `CpuPlatform`."""

    def check_and_update_config(cls: Any, config: Any) -> None:
        CHECK(cls, config)
        change(config)

    return classmethod(check_and_update_config)


def schedule_asynchronously(config: Any) -> None:
    config.scheduler_config.async_scheduling = True


def fork(config: Any) -> None:
    """Have vLLM fork its processes, as on a GPU: an interpreter takes 20 s to import vLLM."""
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"
