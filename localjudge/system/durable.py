"""Files: results written completely or not at all, even after a power cut; the cache; lines read by number.

Each result is written under a scratch name, flushed to the disk and renamed; then its folder is flushed. All
output for users is written in this way, except that a run's journal and a label file are appended to. A scratch
name says which process writes it, so that the next one can remove what a killed process left.

The user's cache is written in the same way. It only saves time: everything in it can be computed again.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import secrets
import shutil
import socket
import stat
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Self

from localjudge.system.quantities import file_size


class WrittenError(OSError):
    """An error after a file or folder got its name: it is whole, and is not removed.

    Attributes:
        reason: the error.
    """

    def __init__(self, target: Path, reason: OSError) -> None:
        why = reason.strerror or str(reason)
        super().__init__(reason.errno, f"{target} is written whole; after that: {why}")
        self.reason = reason

    def __str__(self) -> str:
        return str(self.strerror)


class StoppedAfterWriting(KeyboardInterrupt):
    """A stop after a file or folder got its name: it is whole, and is not removed.

    Attributes:
        target: its path.
        reason: the stop.
    """

    def __init__(self, target: Path, reason: KeyboardInterrupt) -> None:
        super().__init__()
        self.target = target
        self.reason = reason


@contextmanager
def after_writing(target: Path) -> Iterator[None]:
    """Say of an error or a stop within the block that a result is whole.

    Raises:
        WrittenError: there was an error, but not that the reader of the output has closed it, or that a file or
            a folder is missing.
        StoppedAfterWriting: Ctrl-C.
    """
    try:
        yield
    except (BrokenPipeError, FileNotFoundError):
        raise
    except OSError as error:
        raise WrittenError(target, error) from None
    except KeyboardInterrupt as stopped:
        raise StoppedAfterWriting(target, stopped) from None


@contextmanager
def replacing(target: Path, within: Path | None = None) -> Iterator[Path]:
    """Yield a scratch path for a file or a folder; it becomes the target if the block ends without an error.

    Args:
        target: a file, which is replaced if it exists; or a folder, which must be new or empty. Of a symbolic
            link, the file or folder that it names.
        within: the folder of the scratch path, on the target's file system; default: the target's folder.

    Raises:
        WrittenError: the target is written, and only the flush of its folder failed.
        StoppedAfterWriting: Ctrl-C after the target was written.
        OSError: it cannot be written or renamed. The target is unchanged, and the scratch path is removed.
    """
    if target.is_symlink():
        target = Path(os.path.realpath(target))
    scratch = scratch_path(target, within)
    try:
        yield scratch
        settle(scratch, target)
    except (WrittenError, StoppedAfterWriting):
        raise
    except BaseException:
        with suppress(OSError):  # the next start removes it
            _remove(scratch)
        raise


def _remove(scratch: Path) -> None:
    """Remove a scratch path if it can be removed; an error here would hide the one that came before."""
    if scratch.is_dir():
        shutil.rmtree(scratch, ignore_errors=True)
    else:
        with suppress(OSError):
            scratch.unlink()


def scratch_path(target: Path, within: Path | None = None) -> Path:
    """Return a new scratch path for a target, and remove what ended processes have left of it.

    Args:
        target: the file or folder.
        within: the folder of the scratch path; default: the target's folder.
    """
    remove_abandoned(target)
    if within is None:
        within = target.parent
    writer = f"{_machine()}-{os.getpid()}-{secrets.token_hex(4)}"
    return within / f".{target.name}.{writer}.tmp"


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that only this user can read; it is removed at the end of the block.

    What a killed process leaves is removed by the next block for the same target.

    Args:
        target: a path beside it, after which it is named.

    Raises:
        OSError: it cannot be made.
    """
    scratch = scratch_path(target)
    try:
        scratch.mkdir(mode=0o700)
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_abandoned(target: Path) -> None:
    """Remove what processes of this machine that have ended left of a target beside it."""
    for scratch in target.parent.glob(f".{glob.escape(target.name)}.{_machine()}-*-*.tmp"):
        process = scratch.name.split("-")[-2]
        if process.isdecimal() and not _is_running(int(process)):
            _remove(scratch)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@cache
def _machine() -> str:
    """Return 8 characters that identify this machine and the space of its process numbers."""
    try:
        space = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        space = ""
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def write_text(target: Path, text: str) -> None:
    """Write a file of text in UTF-8.

    Raises:
        OSError: it cannot be written; the target is unchanged.
    """
    with replacing(target) as scratch:
        scratch.write_text(text, encoding="utf-8")


def settle(scratch: Path, target: Path) -> None:
    """Flush a file, or a folder with its content, and rename it.

    Raises:
        WrittenError: it is renamed, and only the flush of its new folder failed.
        StoppedAfterWriting: Ctrl-C after it was renamed.
        OSError: it cannot be flushed or renamed; the target is unchanged.
    """
    for path in scratch.rglob("*"):
        flush(path)
    flush(scratch)
    try:
        os.replace(scratch, target)
    except KeyboardInterrupt as stopped:
        if os.path.lexists(scratch):
            raise
        raise StoppedAfterWriting(target, stopped) from None
    with after_writing(target):
        flush(target.parent)


def flush(path: Path) -> None:
    """Flush a file or a folder to the disk.

    Raises:
        OSError: it cannot be opened or flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems flush folders automatically and reject a request to do so.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def unwritable(folder: Path, least: int) -> str:
    """Return why files of this many bytes cannot be written into a folder, which may be new; empty if they can.

    It leaves nothing in the folder.
    """
    nearest = _nearest_existing(folder)
    if not nearest.is_dir():
        if nearest == folder.absolute():
            return "is a file"
        return f"{nearest} is a file"
    try:
        with tempfile.TemporaryFile(dir=nearest) as trial:
            trial.write(b"x" * 4096)
            trial.flush()
    except OSError as error:
        return f"cannot be written: {error.strerror}"
    free = shutil.disk_usage(nearest).free
    if free >= least:
        return ""
    return f"only {file_size(free)} free, less than {file_size(least)}"


def free_space(folder: Path) -> str:
    """Return how much space is free for a folder, which may be new, in words."""
    free = shutil.disk_usage(_nearest_existing(folder)).free
    return f"{file_size(free)} free"


def _nearest_existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    nearest = folder.absolute()
    while not os.path.exists(nearest):  # False, without an exception, if it cannot be read
        nearest = nearest.parent
    return nearest


def cache_folder() -> Path:
    """Return `LOCALJUDGE_CACHE`, or a folder below `XDG_CACHE_HOME` or `~/.cache`.

    Without any of them, return a path that cannot be written, so nothing is cached.
    """
    own_cache = os.environ.get("LOCALJUDGE_CACHE")
    if own_cache:
        return Path(own_cache)
    shared_cache = os.environ.get("XDG_CACHE_HOME")
    if shared_cache:
        return Path(shared_cache) / "localjudge"
    try:
        return Path.home() / ".cache" / "localjudge"
    except RuntimeError:  # a user without a home folder; a cache must not be in a folder that others can write
        return Path(os.devnull) / "localjudge"


def recalled(file: Path) -> Path:
    """Return a file of the cache after a check that only this user (or root) can have written it.

    A file that another user can write is refused: a forged digest could hide a changed model.

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


class LineStore(AbstractContextManager["LineStore"]):
    """The lines of a file by number, from 0; it needs 8 bytes of memory per line.

    A line may contain any bytes: it ends where the next one begins. Reading and appending can alternate.

    Args:
        file: a file open for reading, and for appending if lines are appended; it is closed on exit.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._begins = array("q", [0])

    @classmethod
    def scratch(cls, folder: Path | None = None) -> Self:
        """Return an empty store in an unnamed temporary file, in this folder or the system's default one."""
        return cls(tempfile.TemporaryFile(dir=folder))

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return the lines of a file.

        Raises:
            OSError: it cannot be read.
        """
        store = cls(path.open("rb"))
        for line in store._file:
            store.add(len(line))
        return store

    def is_in(self, path: Path) -> bool:
        """Return whether this path is still the file of this store."""
        if not path.exists():
            return False
        return os.path.samestat(os.fstat(self._file.fileno()), path.stat())

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._begins) - 1

    @property
    def size(self) -> int:
        """Bytes of all lines."""
        return self._begins[-1]

    def append(self, line: bytes) -> None:
        """Append a line.

        Raises:
            OSError: it cannot be written.
        """
        self._file.write(line)
        self.add(len(line))

    def add(self, size: int) -> None:
        """Register the next line, which is already in the file and has this many bytes."""
        self._begins.append(self.size + size)

    def __getitem__(self, number: int) -> bytes:
        begin = self._begins[number]
        end = self._begins[number + 1]
        self._file.flush()
        return os.pread(self._file.fileno(), end - begin, begin)
