"""Check the environment: the variables that keep a run offline, and the model cache."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.check_results import Check, note, ok


def offline(switched: Mapping[str, tuple[str, str]]) -> Check:
    """Check that the libraries' offline variables have the values that the command line sets.

    Args:
        switched: the variables with another value: the user's value and the command line's.
    """
    if not switched:
        return ok("offline", "no hub, no telemetry, no usage reports")
    said = ", ".join(f"{name}={theirs} (not {ours})" for name, (theirs, ours) in switched.items())
    return note("offline", f"your environment overrides it: {said}", f"unset {' '.join(switched)}")


def hub_cache() -> list[Check]:
    """Check the folder in which models are found by id."""
    if find_spec("huggingface_hub") is None:
        return []
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE)
    if not folder.is_dir():
        return [ok("hub cache", f"{folder}: does not exist yet; --model accepts directories only")]
    return [ok("hub cache", f"{folder}: {len(list(folder.glob('models--*')))} model(s)")]
