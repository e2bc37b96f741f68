"""A file of lines and where each begins, so that any of them is read again without keeping them in memory."""

from __future__ import annotations

import os
import tempfile
from array import array
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Self


class LineStore(AbstractContextManager["LineStore"]):
    """The lines of a file by their places, from 0; memory: 8 bytes a line.

    A line may hold any bytes: it ends where the next one begins. Lines can be read and appended in turns.

    Args:
        file: open for reading, and for writing at its end if lines are appended; closed on exit.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._begins = array("q", [0])

    @classmethod
    def scratch(cls, folder: Path | None = None) -> Self:
        """Return an empty store in a file without a name, in this folder or in the system's own."""
        return cls(tempfile.TemporaryFile(dir=folder))

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return len(self._begins) - 1

    @property
    def size(self) -> int:
        """Bytes of all lines."""
        return self._begins[-1]

    def append(self, line: bytes) -> None:
        """Write a line behind the last one.

        Raises:
            OSError: it cannot be written.
        """
        self._file.write(line)
        self.add(len(line))

    def add(self, size: int) -> None:
        """Add the next line of the file, which is there already and has this many bytes."""
        self._begins.append(self.size + size)

    def __getitem__(self, place: int) -> bytes:
        begin, end = self._begins[place], self._begins[place + 1]
        self._file.flush()
        return os.pread(self._file.fileno(), end - begin, begin)
