"""The file of labels: a line of JSON for each row that a person has labelled or skipped.

A label is on disk before its person sees the next row. Other programs (an editor, git, rsync) may change or
replace the file at any time, so it is read again before each answer if it is not as this program left it. A
line that a crash has cut was never confirmed; the next start moves it to a file beside. Only one `localjudge
label` at a time writes a file.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any

from localjudge.errors import UsageError
from localjudge.records.keys import RESPONSE_DIGESTS
from localjudge.records.outcome_columns import PAIR_DIGESTS, PAIR_SYSTEMS
from localjudge.system.durable import WrittenError, remove_abandoned, replacing

_OF_LABEL: Mapping[str, Any] = {
    "row": str,
    "chance": int | float,
    "skipped": str | None,
    "note": str | None,
    "seconds": int | float | None,
}
"""The types of what the `label` of each line has, among others."""
_BEGINNING = b'{"id": '
"""The beginning of each line."""
_FIRST_KEYS = (
    ("id", "system", RESPONSE_DIGESTS[0], "annotator"),
    ("id", *PAIR_SYSTEMS, *PAIR_DIGESTS, "annotator"),
)
"""The first keys of a line, of one response and of two; their values are texts or null."""
_VALUE = re.compile(rb'null|"(?:[^"\\]|\\.)*"')
_CUT_VALUE = re.compile(rb'n|nu|nul||"(?:[^"\\]|\\.)*\\?')


class LabelFile(AbstractContextManager["LabelFile"]):
    """The lines of a label file, in memory and on disk.

    Args:
        file: its path; it is made if it is missing.

    Attributes:
        lines: the lines, in their order.
        lost: number of answers that another program has removed from the file since it was opened.
        torn: the file to which a line was moved that a crash had cut; None without such a line.

    Raises:
        UsageError: the file cannot be written, another program writes it, or a line is not a label of
            `localjudge label`; the file is unchanged.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.lines: list[dict[str, Any]] = []
        self.lost = 0
        self.torn: Path | None = None
        self._lacks_newline = False
        self._known: tuple[int, ...] = ()
        try:
            remove_abandoned(Path(os.path.realpath(file)))
            self._stream = self._opened(at_start=True)
        except OSError as error:
            raise UsageError(f"`out` {file}: cannot be written: {error.strerror}") from None

    def __exit__(self, *exception: object) -> None:
        self._stream.close()

    def refresh(self) -> bool:
        """Read the file again if another program has changed or replaced it; return whether it has.

        Raises:
            UsageError: the file was removed or is not a label file any more, or another program writes it.
            OSError: it cannot be read.
        """
        try:
            if _state(os.stat(self._file)) == self._known:
                return False
        except FileNotFoundError:
            raise UsageError(f"{self._file}: was removed or renamed; put it back, then answer again") from None
        lines_before = self.lines
        self._read_again()
        answers = {_answer(line) for line in self.lines}
        self.lost += sum(_answer(line) not in answers for line in lines_before)
        return True

    def add(self, line: Mapping[str, Any]) -> None:
        """Write a line, and flush it to the disk.

        Raises:
            UsageError: as for `refresh`.
            OSError: it cannot be written, and the file is unchanged.
        """
        self.refresh()
        self._append(line)
        # Another program may have replaced the file since it was looked at.
        while not os.path.samestat(os.stat(self._file), os.fstat(self._stream.fileno())):
            self._read_again()
            self._append(line)

    def remove_last(self, chosen: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any] | None:
        """Remove and return the last of the chosen lines; None if there is none.

        Raises:
            UsageError: as for `refresh`.
            OSError: the line could not be removed, and the file is unchanged.
        """
        self.refresh()
        numbers = [number for number, line in enumerate(self.lines) if chosen(line)]
        if not numbers:
            return None
        last = numbers[-1]
        removed = self.lines[last]
        kept = self.lines[:last] + self.lines[last + 1 :]
        try:
            with replacing(self._file) as scratch:
                scratch.write_bytes(b"".join(_bytes(line) for line in kept))
        except WrittenError:
            pass  # only the flush of the folder has failed
        self.lines = kept
        with suppress(OSError):  # then the next call reads it again
            self._read_again()
        return removed

    def _append(self, line: Mapping[str, Any]) -> None:
        """Write a line to the end of the open file, and flush it.

        Raises:
            OSError: it cannot be written, and the file is unchanged.
        """
        size_before = os.fstat(self._stream.fileno()).st_size
        content = _bytes(line)
        if self._lacks_newline:
            content = b"\n" + content
        try:
            while content:
                written = self._stream.write(content)
                content = content[written:]
            os.fsync(self._stream.fileno())
        except OSError:
            self._stream.truncate(size_before)
            raise
        self._lacks_newline = False
        self._known = _state(os.fstat(self._stream.fileno()))
        self.lines.append(dict(line))

    def _read_again(self) -> None:
        """Read the file, which is opened again if another one has its name now."""
        if os.path.samestat(os.stat(self._file), os.fstat(self._stream.fileno())):
            self._read(self._stream)
            return
        replaced = self._stream
        self._stream = self._opened()
        replaced.close()

    def _opened(self, at_start: bool = False) -> IO[bytes]:
        """Return the locked file after its lines were read; a file that cannot be used is unchanged."""
        stream = self._file.open("a+b", buffering=0)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read(stream, at_start)
        except BaseException as error:
            stream.close()
            if isinstance(error, BlockingIOError):
                raise UsageError(f"`out` {self._file}: another program writes it; end that one first") from None
            raise
        return stream

    def _read(self, stream: IO[bytes], at_start: bool = False) -> None:
        """Read the lines of a file.

        Args:
            stream: the file.
            at_start: whether nobody labels yet, so that a line that a crash has cut is moved to a file beside.

        Raises:
            UsageError: a line is not a label.
        """
        stream.seek(0)
        *ended, last = stream.read().split(b"\n")
        lines = [self._checked(line, number) for number, line in enumerate(ended, 1)]
        if last:
            try:
                lines.append(self._checked(last, len(lines) + 1))
            except UsageError:
                # While people label, it may be the beginning of what another program is writing.
                if not at_start or not _is_cut_line(last, is_first=not lines):
                    raise
                self._move(last)
                stream.truncate(stream.seek(0, os.SEEK_END) - len(last))
                last = b""
        self.lines = lines
        self._lacks_newline = bool(last)
        self._known = _state(os.fstat(stream.fileno()))

    def _checked(self, line: bytes, number: int) -> dict[str, Any]:
        """Return the record of a line.

        Raises:
            UsageError: it is not a label.
        """
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            record: dict[str, Any] = json.loads(line)
            if _is_label(record):
                return record
        raise UsageError(
            f"`out` {self._file}:{number}: is not a line of localjudge label; correct it or choose another file"
        )

    def _move(self, torn: bytes) -> None:
        """Write a cut line into a new file; one that is there may be a user's, or of an earlier crash."""
        self.torn = _free_name(self._file)
        with replacing(self.torn) as scratch:
            scratch.write_bytes(torn + b"\n")


def _is_label(record: Mapping[str, Any]) -> bool:
    """Return whether a record has an annotator, and what the label of each line has.

    Raises:
        KeyError: a part is missing.
        TypeError: it has another form.
    """
    if not isinstance(record["annotator"], str):
        return False
    label = record["label"]
    return all(isinstance(label[name], kind) for name, kind in _OF_LABEL.items())


def _free_name(file: Path) -> Path:
    """Return the first of `X.torn`, `X.2.torn`, `X.3.torn` and so on that no file beside this one has."""
    name = file.with_name(f"{file.name}.torn")
    number = 1
    while os.path.lexists(name):
        number += 1
        name = file.with_name(f"{file.name}.{number}.torn")
    return name


def _is_cut_line(text: bytes, *, is_first: bool) -> bool:
    """Return whether a text without an end is the beginning of a label's line.

    After labels, the beginning of its first key tells. A file that begins with it may be of something else, so
    there all first keys count, as far as the text goes.
    """
    if not is_first:
        return text.startswith(_BEGINNING) or _BEGINNING.startswith(text)
    with suppress(ValueError, RecursionError):
        json.loads(text)
        return False
    return any(_begins_with_keys(text, keys) for keys in _FIRST_KEYS)


def _begins_with_keys(text: bytes, keys: Sequence[str]) -> bool:
    """Return whether a text is an object that begins with these keys, or the beginning of such an object."""
    position = 0
    before_key = "{"
    for key in keys:
        start = f'{before_key}"{key}": '.encode()
        if start.startswith(text[position:]):
            return True
        if not text.startswith(start, position):
            return False
        begin_of_value = position + len(start)
        value = _VALUE.match(text, begin_of_value)
        if value is None:
            return _CUT_VALUE.fullmatch(text, begin_of_value) is not None
        position = value.end()
        before_key = ", "
    return True


def _bytes(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _answer(line: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what tells an answer from all others of its file."""
    return line["annotator"], line["label"]["row"]


def _state(file: os.stat_result) -> tuple[int, ...]:
    """Return what changes if another program writes a file, or replaces it."""
    return file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns
