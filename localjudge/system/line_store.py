"""A file of lines and the offset of each, so that any line can be read again without keeping all in memory."""

from __future__ import annotations

import os
import tempfile
from array import array
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Self


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
        return path.exists() and os.path.samestat(os.fstat(self._file.fileno()), path.stat())

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

    def __getitem__(self, place: int) -> bytes:
        begin, end = self._begins[place], self._begins[place + 1]
        self._file.flush()
        return os.pread(self._file.fileno(), end - begin, begin)
