"""Ownership of a run directory: only one process writes it at a time, even if a former owner resumes.

The owner holds a lock with a lease. A process on another host whose lease has expired may resume after another
process has taken over its run. Its operations must then have no effect, whenever it was suspended:

- Each owner has a private folder. A file is created or removed by a rename out of this folder or into it.
- A new owner first removes the private folders of all former owners. From then on, their renames fail.
- Each owner appends lines only to a journal file that it created. Lines that a former owner appends go to a
  file without a name (see `journal.py`).
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import SoftFileLease, Timeout

from localjudge.errors import RunBrokenError, RunLockedError, UsageError
from localjudge.runs.run_files import LOCK, mark, remove_needless_mark
from localjudge.system.durable import StoppedAfterWriting, WrittenError, replacing

LEASE = 30.0
"""Lease in seconds: an owner on another host that has not renewed its lock for this time counts as dead."""
_PRIVATE = ".owner-"
"""The beginning of the name of an owner's private folder."""
_ROOM = 16 * 1024
"""Free disk space in bytes that a run needs to start."""
_NAMESPACE = "?pidns-"
_FIRST_NAMESPACE = 0xEFFFFFFC
"""Inode number of the PID namespace of a Linux host outside of all containers."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Ownership(AbstractContextManager["Ownership"]):
    """The exclusive right to write to a folder. Entering the context checks that the folder can be written.

    A folder without `run.json` is marked first (`run_files`). Leaving the context removes the mark if it is not
    needed any more, and the folders that it created, if they are empty.

    Args:
        folder: the folder; it is created if it does not exist.
        say: receives messages for a person, for example about a wait.
        lease: the lease in seconds; all processes that write to the folder must use the same value.

    Attributes:
        private_folder: the private folder of this owner, for temporary files.

    Raises:
        RunLockedError: another process owns the folder.
        RunBrokenError: the disk is full.
        RunMismatchError: the folder has a foreign file with the name of one of a run.
        UsageError: the folder cannot be created or written.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], lease: float = LEASE) -> None:
        self.folder = folder
        self.private_folder = folder / f"{_PRIVATE}{secrets.token_hex(8)}"
        self._say = say
        self._lease = SoftFileLease(folder / LOCK, lease_duration=lease)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            try:
                folders = (self.folder, *self.folder.parents)
                new_folders = [folder for folder in folders if not folder.exists()]
                stack.callback(_remove_empty, new_folders)
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.callback(remove_needless_mark, self.folder)
                mark(self.folder)
                stack.callback(self._lease.release)  # a signal may come right after it was acquired
                self._acquire()
                mark(self.folder)  # the owner that this one has waited for may have removed the mark
                stack.callback(shutil.rmtree, self.private_folder, ignore_errors=True)
                self._take_over()
            except OSError as error:
                problem = f"`out` {self.folder}: {error.strerror or error}"
                if error.errno in _FULL:
                    raise RunBrokenError(f"{problem}; free some space, or choose another folder") from None
                raise UsageError(f"{problem}; choose another folder") from None
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def check(self) -> None:
        """Check that this process still owns the folder.

        Raises:
            RunBrokenError: another process has taken the folder over, or the folder was removed.
        """
        if self.private_folder.is_dir():
            return
        if self.folder.is_dir():
            raise RunBrokenError(f"{self.folder}: another localjudge has taken this run over")
        raise RunBrokenError(
            f"{self.folder}: removed or renamed while the run was writing it; put it back, and the same "
            "command continues it"
        )

    @contextmanager
    def placing(self) -> Iterator[None]:
        """Enclose a rename that moves a file out of the private folder to its final path.

        Raises:
            RunBrokenError: another process has taken the folder over, or the folder was removed.
        """
        try:
            yield
        except FileNotFoundError:
            self.check()
            raise
        except (WrittenError, StoppedAfterWriting) as written:
            raise written.reason from None  # one file of the run is whole, and the run is not

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a temporary path to write to; it is renamed to `name` if the block ends without an error.

        Raises:
            RunBrokenError: another process has taken the folder over, or the folder was removed; the old file
                is unchanged.
        """
        with self.placing(), replacing(self.folder / name, self.private_folder) as scratch:
            yield scratch

    def remove(self, name: str) -> None:
        """Remove a file if it exists and this process still owns the folder."""
        with suppress(FileNotFoundError):
            os.replace(self.folder / name, self.private_folder / name)

    @property
    def _was_taken_over(self) -> RunLockedError:
        """The error that says that another process has taken the folder over."""
        return RunLockedError(f"`out` {self.folder}: another localjudge has taken this run over")

    def _acquire(self) -> None:
        """Acquire the lock; wait for the end of the lease if the owner is on another host.

        The lock of a dead process on this host is taken over at once.
        """
        if self._acquires(timeout=1):
            return
        owner = self._lease.owner
        if owner is None:
            self._remove_unreadable_lock()
            if self._acquires(timeout=1):
                return
            owner = self._lease.owner
        elif not _is_here(owner.hostname):
            lease = self._lease.lease_duration
            host = _host(owner.hostname)
            self._say(f"{self.folder} is locked from {host}; waiting {lease:.0f} s for a sign of life")
            if self._acquires(timeout=lease + 5):
                return
            owner = self._lease.owner
        process = ""
        if owner is not None:
            process = f" (process {owner.pid} on {_host(owner.hostname)})"
        raise RunLockedError(f"`out` {self.folder}: another localjudge{process} is writing this run")

    def _acquires(self, timeout: float) -> bool:
        """Acquire the lock within a time in seconds. Return False if it cannot be had."""
        try:
            self._lease.acquire(timeout=timeout)
        except Timeout:
            return False
        return True

    def _remove_unreadable_lock(self) -> None:
        """Remove a lock that names no owner and is older than a lease: a power cut or a full disk cut it.

        A younger lock may belong to a process that is writing it: wait, and see whether it changes.
        """
        import fcntl  # Unix alone has it, and only a damaged lock needs it

        lock = self.folder / LOCK
        with suppress(FileNotFoundError), lock.open("rb+") as stream:  # an open file keeps its inode number
            before = os.fstat(stream.fileno())
            if time.time() - before.st_mtime < self._lease.lease_duration:
                self._say(
                    f"{lock}: names no owner; waiting {self._lease.lease_duration:.0f} s for a sign of life"
                )
                time.sleep(self._lease.lease_duration)
            fcntl.flock(stream, fcntl.LOCK_EX)  # of two starts, one removes it
            now = lock.stat()
            is_unchanged = now.st_ino == before.st_ino and now.st_mtime_ns == before.st_mtime_ns
            if is_unchanged and self._lease.owner is None:
                lock.unlink()
                self._say(f"{lock}: names no owner, and no process writes it; taken over")

    def _take_over(self) -> None:
        """Create the private folder, check the free disk space, and remove the folders of all former owners.

        An owner that loses the lock before its folder exists detects this here; an owner that loses the lock
        later finds that its folder was removed.
        """
        self.private_folder.mkdir()
        self._check_disk()
        if not self._holds_lock():
            raise self._was_taken_over
        for former in self.folder.glob(f"{_PRIVATE}*"):
            if former == self.private_folder:
                continue
            removed = former.replace(self.private_folder / former.name)
            while removed.exists():  # on a network file system, its owner may still write to it
                shutil.rmtree(removed, onerror=_raise_unless_filled)

    def _check_disk(self) -> None:
        """Check the free space of the disk, and that an open file of the private folder can be renamed.

        Raises:
            RunLockedError: another process has removed the private folder.
            OSError: the disk is full.
        """
        room = self.private_folder / "room"
        with room.open("xb") as stream:
            stream.write(os.urandom(_ROOM))  # random bytes, which no file system compresses
            stream.flush()
            os.fsync(stream.fileno())
            try:
                room = room.replace(self.private_folder / "renamed")
            except FileNotFoundError:
                raise self._was_taken_over from None
        room.unlink()

    def _holds_lock(self) -> bool:
        """Return whether the lock names this process."""
        for pause in (0, 0.1, 0.3, 1):  # another process that reads the lock may move it for a moment
            time.sleep(pause)
            owner = self._lease.owner
            if owner is not None and owner.token == self._lease.token:
                return True
        return False


def _raise_unless_filled(function: object, path: str, error: Any) -> None:
    """Raise an error of removing a folder, unless another process adds or removes files at the same time."""
    if getattr(error[1], "errno", None) not in (errno.ENOENT, errno.ENOTEMPTY):
        raise error[1]


def _host(name: str) -> str:
    """Return the name of a host from an owner's record, without the PID namespace that filelock adds."""
    return name.partition(_NAMESPACE)[0]


def _is_here(name: str) -> bool:
    """Return whether a host in an owner's record is this one, with the same PID namespace."""
    try:
        inode = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        inode = _FIRST_NAMESPACE
    host = socket.gethostname()
    if inode != _FIRST_NAMESPACE:
        host += f"{_NAMESPACE}{inode:x}"
    return name == host


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, innermost first, until one is not empty."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
