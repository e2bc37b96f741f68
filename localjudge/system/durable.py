"""Write results completely or not at all, even after a power cut.

Each result is written under a scratch name, flushed to the disk and renamed; then its folder is flushed. All
output for users is written in this way, except that a run's journal is appended to.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(target: Path, within: Path | None = None) -> Iterator[Path]:
    """Yield a scratch path for a file or a folder; it becomes the target if the block ends without an error.

    Args:
        target: a file, which is replaced if it exists; or a folder, which must be new or empty. Where it is a
            symbolic link, what it leads to is replaced.
        within: the folder of the scratch path, on the target's file system; default: the target's folder.

    Raises:
        OSError: it cannot be written or renamed. The target is unchanged, and the scratch path is removed.
    """
    target = target.resolve() if target.is_symlink() else target
    scratch = (within or target.parent) / f".{target.name}.{secrets.token_hex(4)}.tmp"
    try:
        yield scratch
        settle(scratch, target)
    except BaseException:
        if scratch.is_dir():
            shutil.rmtree(scratch, ignore_errors=True)
        else:
            scratch.unlink(missing_ok=True)
        raise


def settle(scratch: Path, target: Path) -> None:
    """Flush a file, or a folder with its content, and rename it.

    Raises:
        OSError: it cannot be flushed or renamed; the target is unchanged.
    """
    for path in scratch.rglob("*"):
        _flush(path)
    _flush(scratch)
    os.replace(scratch, target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems flush folders automatically and reject a request to do so.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
