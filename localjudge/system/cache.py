"""The user's cache: what could be made again. Where it cannot be written, that only costs time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from localjudge.system.durable import replacing


def cache_folder() -> Path:
    """Return `LOCALJUDGE_CACHE`, or a folder below `XDG_CACHE_HOME`, or one that cannot be written."""
    if own := os.environ.get("LOCALJUDGE_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "localjudge"
    try:
        return Path.home() / ".cache" / "localjudge"
    except RuntimeError:  # a user without a home; a folder that others can write is no place for a cache
        return Path(os.devnull) / "localjudge"


def keep(file: Path, write: Callable[[Path], object]) -> None:
    """Put a file into the cache, whole or not at all.

    Args:
        file: where it is to be.
        write: writes it to the path that it is given.
    """
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as scratch:
            write(scratch)
