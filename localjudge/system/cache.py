"""The user's cache. It only saves time: everything in it can be computed again."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from localjudge.system.durable import replacing


def cache_folder() -> Path:
    """Return `LOCALJUDGE_CACHE`, or a folder below `XDG_CACHE_HOME` or `~/.cache`.

    Without any of them, return a path that cannot be written, so nothing is cached.
    """
    if own := os.environ.get("LOCALJUDGE_CACHE"):
        return Path(own)
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "localjudge"
    try:
        return Path.home() / ".cache" / "localjudge"
    except RuntimeError:  # a user without a home folder; a cache must not be in a folder that others can write
        return Path(os.devnull) / "localjudge"


def recalled(file: Path) -> Path:
    """Return a file of the cache after a check that only this user (or root) can have written it.

    A file that another user can write is refused: a forged token table could change scores.

    Raises:
        OSError: it is not a file, belongs to another user, or others can write it.
    """
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, "no file", str(file))
    if status.st_uid not in (0, os.getuid()) or status.st_mode & 0o002:
        raise PermissionError(errno.EPERM, "another user can write it", str(file))
    return file


def keep(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file to the cache, completely or not at all.

    Args:
        file: its path in the cache.
        write: writes the content to the given path.
    """
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as scratch:
            write(scratch)
