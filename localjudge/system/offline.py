"""Keep the libraries offline: variables that prevent downloads and telemetry."""

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
    # vLLM would open a socket to a public address to find its own. An engine uses one host only.
    "VLLM_HOST_IP": "127.0.0.1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "DO_NOT_TRACK": "1",
}
"""Environment variables that `go_offline` sets unless the user has set them."""


def go_offline() -> None:
    """Set the variables, and update a hub library that was imported before.

    Variables that the user has set do not change.
    """
    chosen = "HF_HUB_OFFLINE" in os.environ
    for name, value in SWITCHES.items():
        os.environ.setdefault(name, value)
    hub = sys.modules.get("huggingface_hub.constants")
    if hub is not None and not chosen:
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
