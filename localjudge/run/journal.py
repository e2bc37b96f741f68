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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import numpy as np

from localjudge.errors import RunBrokenError, RunMismatchError
from localjudge.records import to_json

SYNC_EVERY = 5.0
"""Seconds, at most, until a line that was appended is safe from a power cut too."""


class Journal(AbstractContextManager["Journal"]):
    """A file of JSON lines, each with a `key`, open for appending.

    Args:
        file: made if it is not there.
        note: called with each line that is there already, and says whether it counts.

    Raises:
        RunMismatchError: a line in it is none of a run.
        OSError: the file cannot be opened.
    """

    def __init__(self, file: Path, note: Callable[[dict[str, Any]], bool] = lambda line: True) -> None:
        self.file = file
        self._keys, self._offsets = bytearray(), array("q")
        self._stream: IO[bytes] = file.open("ab+", buffering=0)
        try:
            self._end = self._read_back(note)
        except BaseException:
            self._stream.close()
            raise
        self._synced = time.monotonic()

    def __exit__(self, *exception: object) -> None:
        self._stream.close()

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, lines: Iterable[dict[str, Any]]) -> None:
        """Write lines, in one piece.

        Raises:
            RunBrokenError: the file is not there any more.
            OSError: they cannot be written, and nothing of them was.
        """
        self._check()
        block = bytearray()
        marks = []
        for line in lines:
            marks.append((line["key"], self._end + len(block)))
            block += to_bytes(line)
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

    def index(self) -> Index:
        """Of the lines that there are now."""
        return Index(self._keys, self._offsets)

    def _check(self) -> None:
        try:
            there = os.stat(self.file).st_ino == os.fstat(self._stream.fileno()).st_ino
        except OSError:
            there = False
        if not there:
            raise RunBrokenError(f"{self.file}: taken away while the run was writing it")

    def _read_back(self, note: Callable[[dict[str, Any]], bool]) -> int:
        """Note the lines that are there, and cut off one that was torn. Where they end."""
        end = 0
        with self.file.open("rb") as stream:
            for piece in stream:
                if not piece.endswith(b"\n"):
                    break
                try:
                    line = json.loads(piece)
                    if note(line):
                        self._remember(line["key"], end)
                except (ValueError, KeyError, TypeError):
                    raise RunMismatchError(
                        f"{self.file}: byte {end}: not a line of a run; move the file away"
                    ) from None
                end += len(piece)
        self._stream.truncate(end)
        return end

    def _remember(self, key: str, offset: int) -> None:
        self._keys += _digest(key)
        self._offsets.append(offset)


class Index:
    """Where lines stand, by their keys; of several with one key, the last.

    Args:
        keys: their digests, 16 bytes each.
        offsets: of the lines, in bytes.
    """

    def __init__(self, keys: bytes | bytearray, offsets: array[int]) -> None:
        found = np.frombuffer(bytes(keys), "S16")
        order = np.argsort(found, kind="stable")
        self._keys = found[order]
        self._offsets = np.asarray(offsets, np.int64)[order]
        self._used = np.zeros(len(order), bool)

    def __contains__(self, key: str) -> bool:
        return self._place(key) is not None

    def use(self, key: str) -> int | None:
        """The offset of this key's line, which then counts as used; None where there is none."""
        place = self._place(key)
        if place is None:
            return None
        self._used[place] = True
        return int(self._offsets[place])

    def unused(self) -> Iterator[int]:
        """The offsets of the lines of keys that were not used, in the file's order."""
        last = np.ones(len(self._keys), bool)
        last[:-1] = self._keys[1:] != self._keys[:-1]
        yield from sorted(self._offsets[last & ~self._used].tolist())

    def _place(self, key: str) -> int | None:
        wanted = _digest(key).rstrip(b"\0")  # as NumPy gives it back
        place = int(np.searchsorted(self._keys, wanted, side="right")) - 1
        return place if place >= 0 and self._keys[place] == wanted else None


def to_bytes(line: dict[str, Any]) -> bytes:
    """The line as it stands in the file.

    Raises:
        UsageError: it cannot be written as JSON.
    """
    return to_json(line, line).encode() + b"\n"


def read_journal(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal, a torn last one left out.

    Raises:
        RunMismatchError: a line in it is none of a run.
    """
    return (line for _, line in lines_with_offsets(file))


def lines_with_offsets(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same, each with the byte at which it begins."""
    if not file.exists():
        return
    offset = 0
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if line.endswith(b"\n"):
                try:
                    yield offset, json.loads(line)
                except ValueError:
                    raise RunMismatchError(f"{file}:{number}: not a line of a run") from None
            offset += len(line)


def _digest(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()
