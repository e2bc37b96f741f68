"""The journal of a run: whole lines, appended as rows finish, found again by their keys.

A line that was torn off is dropped when the journal is opened again. Lines reach the disk itself at a bounded
interval; a full disk leaves nothing half-written behind. Memory: 24 bytes a line.
"""

from __future__ import annotations

import hashlib
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from localjudge.errors import RunBrokenError, RunMismatchError
from localjudge.outcome_columns import from_bytes
from localjudge.records import Outcome
from localjudge.system.durable import replacing

SYNC_EVERY = 5.0
"""Seconds, at most, until a line that was appended is safe from a power cut too."""


class Journal(AbstractContextManager["Journal"]):
    """A file of lines, each with a key, open for appending by the owner of the run.

    The lines to begin with are copied into a new file, which takes the place of the old one. A former owner
    that has the old one open appends to a file without a name, and learns that at its next append.

    Args:
        file: where the journal stands.
        within: a folder of the same file system, for the scratch.
        pieces: the lines to begin with, each with its key. They may come from the file itself.

    Raises:
        OSError: the file cannot be written; it is then as it was.
    """

    def __init__(self, file: Path, within: Path, pieces: Iterable[tuple[str, bytes]] = ()) -> None:
        self.file = file
        self._keys, self._offsets, self._end = bytearray(), array("q"), 0
        with ExitStack() as stack:
            with replacing(file, within) as scratch:
                with scratch.open("xb") as stream:
                    for key, piece in pieces:
                        self._remember(key, self._end)
                        self._end += stream.write(piece)
                self._stream: IO[bytes] = stack.enter_context(scratch.open("ab", buffering=0))
                self._reader: IO[bytes] = stack.enter_context(scratch.open("rb"))
            self._open = stack.pop_all()
        self._synced = time.monotonic()

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, pieces: Iterable[tuple[str, bytes]]) -> None:
        """Write lines, each given with its key, all at once.

        Raises:
            RunBrokenError: the file is not there any more, or is another owner's.
            OSError: they cannot be written, and nothing of them was.
        """
        self._check()
        block = bytearray()
        marks = []
        for key, piece in pieces:
            marks.append((key, self._end + len(block)))
            block += piece
        try:
            written = 0
            while written < len(block):
                written += self._stream.write(block[written:])
        except OSError:
            os.ftruncate(self._stream.fileno(), self._end)
            raise
        self._end += len(block)
        for mark in marks:
            self._remember(*mark)
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Have the disk itself hold what was appended."""
        self._check()
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def line_at(self, offset: int) -> bytes:
        """The line that begins at this byte."""
        self._reader.seek(offset)
        return self._reader.readline()

    def index(self) -> OffsetIndex:
        """Of the lines that there are now."""
        return OffsetIndex(self._keys, self._offsets)

    def _check(self) -> None:
        try:
            there = os.stat(self.file).st_ino
        except OSError:
            raise RunBrokenError(f"{self.file}: taken away while the run was writing it") from None
        if there != os.fstat(self._stream.fileno()).st_ino:
            raise RunBrokenError(f"{self.file}: another localjudge has taken this run over")

    def _remember(self, key: str, offset: int) -> None:
        self._keys += key_digest(key)
        self._offsets.append(offset)


class OffsetIndex:
    """Where things stand, by their keys; of several with one key, the last.

    Args:
        keys: their digests, 16 bytes each.
        places: of each; of a line, the byte at which it begins.
    """

    def __init__(self, keys: bytes | bytearray, places: Sequence[int]) -> None:
        found = np.frombuffer(bytes(keys), "S16")
        order = np.argsort(found, kind="stable")
        self._keys = found[order]
        self._places = np.asarray(places, np.int64)[order]
        self._taken = np.zeros(len(order), np.int64)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> int | None:
        """Where this key's thing stands; None where there is none."""
        wanted = key_digest(key).rstrip(b"\0")  # as NumPy gives it back
        rank = int(np.searchsorted(self._keys, wanted, side="right")) - 1
        return int(self._places[rank]) if rank >= 0 and self._keys[rank] == wanted else None

    def take(self, key: str) -> bool:
        """Take one of the places of this key; return False if it has none left that was not taken."""
        wanted = key_digest(key).rstrip(b"\0")
        first, end = (int(np.searchsorted(self._keys, wanted, side=side)) for side in ("left", "right"))
        if first == end or self._taken[first] == end - first:
            return False
        self._taken[first] += 1
        return True

    def count_in(self, other: OffsetIndex) -> int:
        """How many of these, equal keys counted each, have a key that the other has too."""
        return int(np.isin(self._keys, other._keys).sum())


def read_journal(file: Path, aspects: Sequence[str]) -> Iterator[tuple[bytes, Outcome]]:
    """Yield the lines of a journal, each as its bytes and its outcome; a torn last line is left out.

    Args:
        file: the journal; a missing file has no lines.
        aspects: the aspects of the run's rubric.

    Raises:
        RunMismatchError: a line does not belong to such a run, or is damaged.
    """
    if file.exists():
        if not file.is_file():
            raise RunMismatchError(f"{file}: is no file")
        with file.open("rb") as stream:
            yield from ((piece, outcome) for _, piece, outcome in journal_lines(stream, aspects))


def journal_lines(stream: IO[bytes], aspects: Sequence[str]) -> Iterator[tuple[int, bytes, Outcome]]:
    """Yield the same of an open journal, each line with the offset of its first byte."""
    offset = 0
    for number, piece in enumerate(stream, 1):
        if piece.endswith(b"\n"):
            try:
                outcome = from_bytes(piece, aspects)
            except ValueError:
                raise RunMismatchError(
                    f"{stream.name}:{number}: not a line of a run, or damaged; delete this line, and the same "
                    "score command judges its row again"
                ) from None
            yield offset, piece, outcome
        offset += len(piece)


def key_digest(key: str) -> bytes:
    """16 bytes for a key of any length."""
    return hashlib.sha256(key.encode()).digest()[:16]
