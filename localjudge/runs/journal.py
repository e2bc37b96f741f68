"""The journal of a run: complete lines, appended as rows finish, with an index by key.

An incomplete last line is dropped when the journal is opened again. Appended lines are flushed to the disk at a
fixed interval, and a full disk leaves no incomplete line. The index takes 24 bytes of memory for each line.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO

from localjudge.errors import RunBrokenError, RunMismatchError
from localjudge.records import Outcome
from localjudge.records.outcome_columns import AnswerColumns, from_bytes
from localjudge.runs.key_index import KeyIndex, key_digest
from localjudge.system.durable import LineStore, replacing

SYNC_EVERY = 5.0
"""Largest number of seconds before an appended line is flushed to the disk and survives a power failure."""


class Journal(AbstractContextManager["Journal"]):
    """A file of lines, each with a key, open for appending by the owner of the run.

    The first lines are copied into a new file, which replaces the old file. A former owner that has the old
    file open appends to a file without a name, and its next append raises an error.

    Args:
        file: the path of the journal.
        within: a folder on the same file system, for the temporary file.
        lines: the first lines, each after its key. They may come from the old file.

    Raises:
        OSError: the file cannot be written; the old file is unchanged.
    """

    def __init__(self, file: Path, within: Path, lines: Iterable[tuple[str, bytes]] = ()) -> None:
        self.file = file
        self._keys = bytearray()
        with ExitStack() as stack:
            with replacing(file, within) as scratch:
                sizes = array("q")
                with scratch.open("xb") as stream:
                    for key, line in lines:
                        self._keys += key_digest(key)
                        size = stream.write(line)
                        sizes.append(size)
                self._stream: IO[bytes] = stack.enter_context(scratch.open("a+b", buffering=0))
                self._lines = LineStore(self._stream)
                for size in sizes:
                    self._lines.add(size)
            self._open = stack.pop_all()
        self._synced = time.monotonic()

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return len(self._lines)

    def append(self, keyed_lines: Iterable[tuple[str, bytes]]) -> None:
        """Write lines, each given after its key, all or none.

        Raises:
            RunBrokenError: the file was removed or cut, or another owner has replaced it.
            OSError: the lines cannot be written; none of them was written.
        """
        self._check()
        keys = bytearray()
        lines = []
        for key, line in keyed_lines:
            keys += key_digest(key)
            lines.append(line)
        block = b"".join(lines)
        try:
            written = 0
            while written < len(block):
                written += self._stream.write(block[written:])
        except OSError:
            os.ftruncate(self._stream.fileno(), self._lines.size)
            raise
        self._keys += keys
        for line in lines:
            self._lines.add(len(line))
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Flush the appended lines to the disk."""
        self._check()
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def line_at(self, number: int) -> bytes:
        """Return the line of this number, from 0.

        Raises:
            RunBrokenError: the file was cut.
        """
        line = self._lines[number]
        if not line.endswith(b"\n"):
            raise self.was_cut
        return line

    def index(self) -> KeyIndex:
        """Return the numbers of the current lines, by their keys."""
        return KeyIndex(self._keys)

    def _check(self) -> None:
        """Check that the file is the one that is open, and is not shorter than what was written.

        Raises:
            RunBrokenError: it is another one, or was removed or cut.
        """
        try:
            file_status = os.stat(self.file)
        except OSError:
            raise RunBrokenError(
                f"{self.file}: removed or renamed while the run was writing it; put it back, and the same "
                "command continues it"
            ) from None
        if not os.path.samestat(file_status, os.fstat(self._stream.fileno())):
            raise RunBrokenError(f"{self.file}: another localjudge has taken this run over")
        if file_status.st_size < self._lines.size:
            raise self.was_cut

    @property
    def was_cut(self) -> RunBrokenError:
        """The error that says that another program has cut the file."""
        return RunBrokenError(
            f"{self.file}: another program has cut it while the run was writing it; the same command judges "
            "the rows that lost their line again"
        )


def read_journal(file: Path, columns: AnswerColumns) -> Iterator[tuple[bytes, Outcome]]:
    """Yield the lines of a journal, each as its bytes and its outcome, without an incomplete last line.

    Args:
        file: the journal; a missing file has no lines.
        columns: the columns of the run's rubric.

    Raises:
        RunMismatchError: the path is not a file, or a line does not belong to such a run.
    """
    if not file.exists():
        return
    if not file.is_file():
        raise RunMismatchError(f"{file}: is not a file")
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                continue
            try:
                outcome = from_bytes(line, columns)
            except ValueError:
                raise RunMismatchError(
                    f"{file}:{number}: not a line of a run, or damaged; delete this line, and the same score "
                    "command judges its row again"
                ) from None
            yield line, outcome
