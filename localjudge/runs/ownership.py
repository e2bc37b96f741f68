"""Who may write a run directory: one process at a time, also where a former owner wakes up again.

The owner holds a lock that expires, so a process on another host that was taken for dead may go on after its
run was taken over. What it does then must change nothing, whatever the moment at which it was stopped:

- Each owner works in a folder of its own. A file gets to its place, or away from it, by a rename out of that
  folder or into it.
- Whoever takes a run over first removes the folders of all owners before. Their renames fail from then on.
- Lines are appended to a journal that this owner itself has put in place. What a former owner still appends
  goes to a file that has no name any more (see `journal.py`).
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
from localjudge.system.durable import replacing

LOCK = ".lock"
LEASE = 30.0
"""Seconds without a sign of life after which the writer of a run on another host counts as dead."""
_OWN = ".owner-"
_ROOM = 16 * 1024
"""Bytes that the disk must have room for, or no run begins."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Ownership(AbstractContextManager["Ownership"]):
    """The right to write a folder. That it can be written is tried on entering.

    On leaving, folders that were made for it and hold nothing are removed.

    Args:
        folder: made if it is not there.
        say: told what a person should know, such as a wait.
        lease: seconds after which the owner counts as dead; the same for all who want the folder.

    Attributes:
        own: the folder of this owner's own, for scratch files.
        made: the names of the files that this owner was the first to write.

    Raises:
        RunLockedError: another process owns it.
        RunBrokenError: the disk is full.
        UsageError: there can be no such folder, or it cannot be written.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], lease: float = LEASE) -> None:
        self.folder = folder
        self.own = folder / f"{_OWN}{secrets.token_hex(8)}"
        self.made: list[str] = []
        self._say = say
        self._lease = SoftFileLease(folder / LOCK, lease_duration=lease)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            try:
                new = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
                stack.callback(_remove_empty, new)
                self.folder.mkdir(parents=True, exist_ok=True)
                self._acquire()
                stack.callback(self._lease.release)
                stack.callback(shutil.rmtree, self.own, ignore_errors=True)
                self._take_over()
            except OSError as error:
                why = f"--out {self.folder}: {error.strerror or error}"
                if error.errno in _FULL:
                    raise RunBrokenError(f"{why}; free some space, or choose another folder") from None
                raise UsageError(f"{why}; choose another folder") from None
            self._open = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def check(self) -> None:
        """See that the folder is still this process's.

        Raises:
            RunBrokenError: it was taken over, or taken away.
        """
        if not self.own.is_dir():
            raise RunBrokenError(
                f"{self.folder}: another localjudge has taken this run over"
                if self.folder.is_dir()
                else f"{self.folder}: taken away while the run was writing it"
            )

    @contextmanager
    def placing(self, name: str) -> Iterator[None]:
        """Put a file into place in this block, by a rename out of the own folder.

        Raises:
            RunBrokenError: the folder was taken over, or taken away.
        """
        new = not (self.folder / name).exists()
        try:
            yield
        except FileNotFoundError:
            self.check()
            raise
        if new:
            self.made.append(name)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Give the path to write a file to; it gets its name when the block ends without an error.

        Raises:
            RunBrokenError: the folder was taken over, or taken away; the file is as it was.
        """
        with self.placing(name), replacing(self.folder / name, self.own) as scratch:
            yield scratch

    def remove(self, name: str) -> None:
        """Remove a file, if it is there and the folder is still this process's."""
        with suppress(FileNotFoundError):
            os.replace(self.folder / name, self.own / name)

    def _acquire(self) -> None:
        """Take the lock: at once from a dead process of this host, from another host's after its lease."""
        lease = self._lease.lease_duration
        try:
            self._lease.acquire(timeout=1)
            return
        except Timeout:
            owner = self._lease.owner
        if owner is not None and owner.hostname != socket.gethostname():
            self._say(
                f"{self.folder} is locked from {owner.hostname}; waiting {lease:.0f} s for a sign of life"
            )
            try:
                self._lease.acquire(timeout=lease + 5)
                return
            except Timeout:
                owner = self._lease.owner
        who = f" (process {owner.pid} on {owner.hostname})" if owner else ""
        raise RunLockedError(f"--out {self.folder}: another localjudge{who} is writing this run")

    def _take_over(self) -> None:
        """Make the own folder, see that there is room, and remove the folders of all owners before.

        An owner that loses the lock before its folder is there finds that here; one that loses it later finds
        its folder gone.
        """
        self.own.mkdir()
        room = self.own / "room"
        with room.open("xb") as stream:
            stream.write(os.urandom(_ROOM))  # what no file system compresses
            stream.flush()
            os.fsync(stream.fileno())
        room.unlink()
        for pause in (0, 0.1, 0.3, 1):  # while others look at the lock it may be aside for a moment
            time.sleep(pause)
            owner = self._lease.owner
            if owner is not None and owner.token == self._lease.token:
                break
        else:
            raise RunLockedError(f"--out {self.folder}: another localjudge has taken this run over")
        for former in self.folder.glob(f"{_OWN}*"):
            if former != self.own:
                removed = former.replace(self.own / former.name)
                while removed.exists():  # over a network its owner may still find it, until it is gone
                    shutil.rmtree(removed, onerror=_raise_unless_filled)


def _raise_unless_filled(function: object, path: str, error: Any) -> None:
    """Let pass what comes of a folder being filled or emptied by another process while it is removed."""
    if getattr(error[1], "errno", None) not in (errno.ENOENT, errno.ENOTEMPTY):
        raise error[1]


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, up to the first that holds something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
