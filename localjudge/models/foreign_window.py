"""A sliding window that a configuration names, and no layer of its type has.

All layers of such a model attend to all tokens, but the cache of transformers keeps only those of the window. A
longer prompt would be judged by its end.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

_WITHOUT_WINDOW = ("qwen3_omni_moe_text",)
"""Types of text parts that have the setting, but no layer that reads it (`benchmarks/architectures.py`)."""


def remove_foreign_window(text_config: Any) -> None:
    """Remove the window from the configuration of a text part whose layers have none."""
    window = getattr(text_config, "sliding_window", None)
    if window is not None and not _has_windows(type(text_config)):
        text_config.sliding_window = None


def _has_windows(config_class: Any) -> bool:
    """Return whether the layers of a class of configurations can have a sliding window."""
    if config_class.model_type in _WITHOUT_WINDOW:
        return False
    settings = [setting.name for setting in fields(config_class)]
    if "sliding_window" in settings or "sliding_window" in config_class.attribute_map:
        return True
    # Some types compute it from another setting.
    return getattr(config_class(), "sliding_window", None) is not None
