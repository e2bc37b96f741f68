"""The journal of a run: whole lines, appended as rows finish, found again by their keys.

A line that was torn off is dropped when the journal is opened again. Lines reach the disk itself at a bounded
interval; a full disk leaves nothing half-written behind. Memory: 24 bytes a line.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from localjudge.errors import RunBrokenError, RunMismatchError
from localjudge.line_format import is_line, to_json
from localjudge.system.durable import replacing
from localjudge.system.line_store import LineStore

SYNC_EVERY = 5.0
"""Seconds, at most, until a line that was appended is safe from a power cut too."""


class Journal(AbstractContextManager["Journal"]):
    """A file of JSON lines, each with a `key`, open for appending by the owner of the run.

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
        self._keys = bytearray()
        with ExitStack() as stack:
            with replacing(file, within) as scratch:
                sizes = array("q")
                with scratch.open("xb") as stream:
                    for key, piece in pieces:
                        self._keys += key_digest(key)
                        sizes.append(stream.write(piece))
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

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write lines, in one piece.

        Raises:
            RunBrokenError: the file is not there any more, or is another owner's.
            OSError: they cannot be written, and nothing of them was.
        """
        self._check()
        keys, pieces = bytearray(), []
        for line in lines:
            keys += key_digest(line["key"])
            pieces.append(to_bytes(line))
        block = b"".join(pieces)
        try:
            written = 0
            while written < len(block):
                written += self._stream.write(block[written:])
        except OSError:
            os.ftruncate(self._stream.fileno(), self._lines.size)
            raise
        self._keys += keys
        for piece in pieces:
            self._lines.add(len(piece))
        if time.monotonic() - self._synced >= SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Have the disk itself hold what was appended."""
        self._check()
        os.fsync(self._stream.fileno())
        self._synced = time.monotonic()

    def line_at(self, place: int) -> bytes:
        """Return the line at this place, from 0."""
        return self._lines[place]

    def index(self) -> KeyIndex:
        """Return the places of the lines that there are now."""
        return KeyIndex(self._keys)

    def _check(self) -> None:
        try:
            there = os.stat(self.file).st_ino
        except OSError:
            raise RunBrokenError(f"{self.file}: taken away while the run was writing it") from None
        if there != os.fstat(self._stream.fileno()).st_ino:
            raise RunBrokenError(f"{self.file}: another localjudge has taken this run over")


class KeyIndex:
    """The places of keys in a sequence, from 0; of several equal keys, the last place.

    Args:
        keys: their digests, 16 bytes each.
    """

    def __init__(self, keys: bytes | bytearray) -> None:
        found = np.frombuffer(bytes(keys), "S16")
        self._places = np.argsort(found, kind="stable")
        self._keys = found[self._places]
        self._taken = np.zeros(len(found), np.int64)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def get(self, key: str) -> int | None:
        """Return the place of this key; None if it is not there."""
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

    def count_in(self, other: KeyIndex) -> int:
        """How many of these, equal keys counted each, have a key that the other has too."""
        return int(np.isin(self._keys, other._keys).sum())


def to_bytes(line: dict[str, Any]) -> bytes:
    """The line as it stands in the file.

    Raises:
        UsageError: it cannot be written as JSON.
    """
    return to_json(line, line).encode() + b"\n"


def read_journal(file: Path, aspects: Sequence[str]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines of a journal, each as its bytes and as what they say; a torn last one is left out.

    Args:
        file: the journal; one that is not there has no lines.
        aspects: of the run's rubric.

    Raises:
        RunMismatchError: a line in it is none of such a run.
    """
    if file.exists():
        if not file.is_file():
            raise RunMismatchError(f"{file}: is no file")
        with file.open("rb") as stream:
            yield from journal_lines(stream, aspects)


def journal_lines(stream: IO[bytes], aspects: Sequence[str]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the same of an open journal."""
    for number, piece in enumerate(stream, 1):
        if piece.endswith(b"\n"):
            try:
                line = json.loads(piece)
            except (ValueError, RecursionError):
                line = None
            if not is_line(line, aspects):
                raise RunMismatchError(
                    f"{stream.name}:{number}: not a line of a run, or damaged; delete this line, and the same "
                    "score command judges its row again"
                )
            yield piece, line


def key_digest(key: str) -> bytes:
    """16 bytes for a key of any length."""
    return hashlib.sha256(key.encode()).digest()[:16]
