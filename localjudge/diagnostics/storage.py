"""Folders that a run writes to: whether they can be written, and how much fits."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from localjudge.diagnostics.checks import Check, note, ok, wrong

LEAST_DISK = 200 * 10**6
"""Bytes below which a run should not be begun."""

LEAST_SHARED = 1 << 30
"""Bytes of shared memory below which Ray falls back to the disk, and vLLM's processes may find no room."""


def out(folder: Path, least: int = LEAST_DISK) -> Check:
    if fault := _fault(folder, least):
        return wrong("out", f"{folder}: {fault}", "make room or rights there, or give another --out")
    return ok("out", f"{folder}: {_free(folder)}")


def temporary(least: int = LEAST_DISK) -> Check:
    """The folder for temporary files: vLLM, Ray and torch put theirs there."""
    mend = "set TMPDIR to a folder that can be written and has room"
    asked = os.environ.get("TMPDIR")
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return wrong("temporary", "no folder for temporary files can be written", mend)
    if fault := _fault(folder, least):
        return wrong("temporary", f"{folder}: {fault}", mend)
    if asked and Path(asked).absolute() != folder.absolute():
        return note("temporary", f"{folder}: {_free(folder)}; TMPDIR={asked} cannot be used", mend)
    return ok("temporary", f"{folder}: {_free(folder)}")


def cache(least: int = LEAST_DISK) -> Check:
    """localjudge's own cache, without which a start is slower."""
    from localjudge.system.cache import cache_folder

    folder = cache_folder()
    if fault := _fault(folder, least):
        mend = "set LOCALJUDGE_CACHE to a folder that can be written and has room"
        return note("cache", f"{folder}: {fault}; each start reads the model and builds the table anew", mend)
    return ok("cache", f"{folder}: {_free(folder)}")


def shared_memory(users: Sequence[str], least: int = LEAST_SHARED, folder: Path = Path("/dev/shm")) -> Check:
    """The memory that processes share, for those that use it."""
    if not folder.is_dir():
        return note("shm", f"there is no {folder}; Ray and vLLM then use the disk")
    free = shutil.disk_usage(folder).free
    said = f"{folder}: {_size(free)} free"
    if free < least:
        return note(
            "shm",
            f"{said}, little for {' and '.join(users)}",
            f"give the container more: docker run --shm-size={least >> 30}g or --ipc=host",
        )
    return ok("shm", said)


def _fault(folder: Path, least: int) -> str:
    """Why nothing could be written there; empty if it can. A folder that is not there yet would be made."""
    place = folder.absolute()
    while not os.path.exists(place):  # which is false, and raises nothing, where it cannot be looked at
        place = place.parent
    if not place.is_dir():
        return f"{place} is a file" if place != folder.absolute() else "is a file"
    try:
        with tempfile.TemporaryFile(dir=place) as trial:
            trial.write(b"x" * 4096)
            trial.flush()
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    free = shutil.disk_usage(place).free
    return f"only {_size(free)} free, and {_size(least)} are the least" if free < least else ""


def _free(folder: Path) -> str:
    place = folder.absolute()
    while not os.path.exists(place):  # which is false, and raises nothing, where it cannot be looked at
        place = place.parent
    return f"{_size(shutil.disk_usage(place).free)} free"


def _size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
