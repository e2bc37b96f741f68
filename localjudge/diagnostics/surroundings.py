"""What the environment says: the switches that keep a run offline, and where models are kept."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.checks import Check, note, ok


def offline(switched: Mapping[str, tuple[str, str]]) -> Check:
    """The switches of the libraries below are as the command line sets them.

    Args:
        switched: those that the user has set to another value, with that value and the command line's.
    """
    if not switched:
        return ok("offline", "no hub, no telemetry, no usage reports")
    said = ", ".join(f"{name}={theirs} (not {ours})" for name, (theirs, ours) in switched.items())
    return note("offline", f"your environment says otherwise: {said}", f"unset {' '.join(switched)}")


def hub_cache() -> list[Check]:
    """Where models are looked for by their id."""
    if find_spec("huggingface_hub") is None:
        return []
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE)
    if not folder.is_dir():
        return [ok("hub cache", f"{folder}: none yet, so --model takes directories only")]
    return [ok("hub cache", f"{folder}: {len(list(folder.glob('models--*')))} model(s)")]
