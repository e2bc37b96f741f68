"""The network stays out: the switches by which the libraries below neither fetch nor tell anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    # To learn its own address, vLLM would open a socket towards a public one. An engine is on one host.
    "VLLM_HOST_IP": "127.0.0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
}
"""Environment variables that `go_offline` sets where the user has not."""


def go_offline() -> None:
    """Set the switches, and tell a hub library that was imported before them.

    What the user has set in the environment stays as it is.
    """
    chosen = "HF_HUB_OFFLINE" in os.environ
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None and not chosen:
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]


@contextmanager
def online() -> Iterator[None]:
    """Let the hub library fetch within the block: a download that was asked for by name."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = False
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
