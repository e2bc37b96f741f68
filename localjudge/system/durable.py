"""Results that are there whole or not at all, after a power cut too.

Each is written under a scratch name of its own, flushed to the disk and renamed; then the folder, which holds
the names, is flushed. All that localjudge writes for a user goes this way; only a run's journal is appended to.
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
    """Give the path to write a file or a folder to; it becomes the target when the block ends without an error.

    Args:
        target: a file, which is replaced if it is there; or a folder, which must be new or empty.
        within: the folder of the scratch, on the target's file system; the default is the target's own.

    Raises:
        OSError: it cannot be written or renamed. The target is then as it was, and the scratch is removed.
    """
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
    """Flush a file, or a folder with all that is in it, and rename it.

    Raises:
        OSError: the target is as it was.
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
        # Some network file systems flush a folder by themselves and refuse to be asked.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)
