"""Check the environment: folders and their free space, and the variables that keep a run offline."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from localjudge.diagnostics.check_results import Check, note, ok, wrong
from localjudge.system.quantities import file_size

LEAST_DISK = 200 * 10**6
"""Free bytes that a run should have when it starts."""

LEAST_SHARED = 1 << 30
"""Bytes of shared memory below which Ray uses the disk and vLLM's processes may fail."""


def out(folder: Path, least: int = LEAST_DISK) -> Check:
    if fault := _fault(folder, least):
        return wrong("out", f"{folder}: {fault}", "free space or change the permissions, or give another --out")
    return ok("out", f"{folder}: {_free(folder)}")


def temporary(least: int = LEAST_DISK) -> Check:
    """Check the folder for temporary files, which vLLM, Ray and torch use."""
    fix = "set TMPDIR to a writable folder with free space"
    chosen = os.environ.get("TMPDIR")
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        return wrong("temporary", "no folder for temporary files is writable", fix)
    if fault := _fault(folder, least):
        return wrong("temporary", f"{folder}: {fault}", fix)
    if chosen and Path(chosen).absolute() != folder.absolute():
        return note("temporary", f"{folder}: {_free(folder)}; TMPDIR={chosen} cannot be used", fix)
    return ok("temporary", f"{folder}: {_free(folder)}")


def cache(least: int = LEAST_DISK) -> Check:
    """Check localjudge's cache; without it, starts are slower."""
    from localjudge.system.cache import cache_folder

    folder = cache_folder()
    if fault := _fault(folder, least):
        fix = "set LOCALJUDGE_CACHE to a writable folder with free space"
        return note("cache", f"{folder}: {fault}; each start reads the model and builds the table again", fix)
    return ok("cache", f"{folder}: {_free(folder)}")


def shared_memory(users: Sequence[str], least: int = LEAST_SHARED, folder: Path = Path("/dev/shm")) -> Check:
    """Check the shared memory for the libraries that use it."""
    if not folder.is_dir():
        return note("shm", f"there is no {folder}; Ray and vLLM then use the disk")
    free = shutil.disk_usage(folder).free
    said = f"{folder}: {file_size(free)} free"
    if free < least:
        return note(
            "shm",
            f"{said}, too little for {' and '.join(users)}",
            f"give the container more: docker run --shm-size={least >> 30}g or --ipc=host",
        )
    return ok("shm", said)


def _fault(folder: Path, least: int) -> str:
    """Return why a folder cannot be written; empty if it can. A missing folder would be created."""
    place = _existing(folder)
    if not place.is_dir():
        return f"{place} is a file" if place != folder.absolute() else "is a file"
    try:
        with tempfile.TemporaryFile(dir=place) as trial:
            trial.write(b"x" * 4096)
            trial.flush()
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    free = shutil.disk_usage(place).free
    if free >= least:
        return ""
    sizes = [file_size(free), file_size(least)]
    if sizes[0] == sizes[1]:  # they differ by less than what is shown
        sizes = [f"{free:,} bytes", f"{least:,}"]
    return f"only {sizes[0]} free, less than {sizes[1]}"


def _free(folder: Path) -> str:
    return f"{file_size(shutil.disk_usage(_existing(folder)).free)} free"


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    place = folder.absolute()
    while not os.path.exists(place):  # False, without an exception, if it cannot be read
        place = place.parent
    return place


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
