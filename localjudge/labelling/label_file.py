"""The file of labels: a line of JSON for each row that a person has labelled or skipped.

A label is on disk before its person sees the next row. A line that a crash has cut was never confirmed, and is
removed at the next start. One program at a time writes a file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from localjudge.errors import UsageError
from localjudge.system.durable import replacing


class LabelFile(AbstractContextManager["LabelFile"]):
    """The lines of a label file, in memory and on disk.

    Args:
        file: its path; it is made if it is missing.

    Attributes:
        lines: the lines, in their order.

    Raises:
        UsageError: the file cannot be written, another program writes it, or a line is not a label of
            `localjudge label`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            self._stream = self._opened()
        except OSError as error:
            raise UsageError(f"`out` {file}: cannot be written: {error.strerror}") from None
        content = self._stream.read()
        whole = content.rfind(b"\n") + 1
        self._stream.truncate(whole)
        self.lines: list[dict[str, Any]] = []
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                record = json.loads(line)
                record["label"]["row"], record["annotator"]
            except (ValueError, TypeError, KeyError):
                self._stream.close()
                raise UsageError(
                    f"`out` {file}:{number}: is not a line of localjudge label; choose another file"
                ) from None
            self.lines.append(record)

    def _opened(self) -> IO[bytes]:
        stream = self._file.open("a+b", buffering=0)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.close()
            raise UsageError(f"`out` {self._file}: another program writes it; end that one first") from None
        stream.seek(0)
        return stream

    def __exit__(self, *exception: object) -> None:
        self._stream.close()

    def add(self, line: Mapping[str, Any]) -> None:
        """Write a line, and flush it to the disk.

        Raises:
            OSError: it cannot be written, and the file is unchanged.
        """
        before = os.fstat(self._stream.fileno()).st_size
        content = _bytes(line)
        try:
            while content:
                content = content[self._stream.write(content) :]
            os.fsync(self._stream.fileno())
        except OSError:
            self._stream.truncate(before)
            raise
        self.lines.append(dict(line))

    def remove_last(self, chosen: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any] | None:
        """Remove and return the last of the chosen lines; None if there is none.

        Raises:
            OSError: the file cannot be written, and is unchanged.
        """
        place = next((at for at in reversed(range(len(self.lines))) if chosen(self.lines[at])), None)
        if place is None:
            return None
        rest = self.lines[:place] + self.lines[place + 1 :]
        with replacing(self._file) as scratch:
            scratch.write_bytes(b"".join(map(_bytes, rest)))
        own, self._stream = self._stream, self._opened()
        own.close()
        removed, self.lines = self.lines[place], rest
        return removed


def _bytes(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"
