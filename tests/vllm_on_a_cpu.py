"""What vLLM decides on a CPU, decided otherwise; its engines in a process that has imported much."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
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


@contextmanager
def frozen_imports() -> Iterator[None]:
    """Keep all objects that are there out of the garbage collector, which vLLM calls with each engine.

    vLLM would show them to it again, and hide from it the engines that are closed: it may do neither.
    """
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "freeze", lambda: None)
        patch.setattr(gc, "unfreeze", lambda: None)
        yield
    gc.unfreeze()
