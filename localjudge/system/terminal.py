"""All output to the terminal: text from outside cannot control it, whoever prints it, in any encoding.

`guarded_streams` puts a filter before stdout and stderr, so messages, usage errors, warnings and output of
libraries all pass through it, without the secrets that this process knows. `localjudge.cli.console.Console`
bypasses the filter, because it writes colours and the live line; it filters the text that it is given instead.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast

from localjudge.secret_texts import without_secrets

_UNUSUAL = re.compile(r"[^\n\t -~]+")
_STAND_INS = {"·": "-", "–": "-", "→": "->", "…": "...", "✓": "+", "✗": "x"} | {  # noqa: RUF001
    bar: str(height) for height, bar in enumerate("▁▂▃▄▅▆▇█", 1)
}


def printable(text: str) -> str:
    """Return the text with a JSON escape for each character that is invisible or controls a terminal.

    So JSON text remains JSON with the same meaning. Secrets that this process knows are hidden.
    """
    return _UNUSUAL.sub(lambda unusual: _visible(unusual[0]), without_secrets(text))


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def _escape(character: str) -> str:
    """Return the JSON escape of a character."""
    return json.dumps(character)[1:-1]


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks: bars and other signs by ASCII, the rest by JSON escapes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    replaced = [_STAND_INS[char] if char in _STAND_INS else _escape(char) for char in missing]
    return "".join(replaced), error.end


codecs.register_error("localjudge", cast(Callable[[UnicodeError], tuple[str, int]], _spell_out))


class _Filter:
    """A text stream that passes only printable text. It has no `buffer`, so nothing can bypass it."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        self.unfiltered.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


class _MessageFilter(_Filter):
    """The filter of stderr. A run does not end because nobody reads its progress: if the reader has closed the
    stream, the process goes on without messages."""

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            open_null(self.unfiltered.fileno())
            return len(text)

    def flush(self) -> None:
        try:
            self.unfiltered.flush()
        except BrokenPipeError:
            open_null(self.unfiltered.fileno())


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Filter the output of this process, and open standard streams that were closed at its start.

    Otherwise a file that is opened later could get the number of a closed stream, and with it the output.
    """
    if sys.stdin is None:  # stays None, so that reading rows from stdin reports it
        open_null(0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            open_null(number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    for stream in streams.values():
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="localjudge")
    sys.stdout = cast(TextIO, _Filter(sys.stdout))
    sys.stderr = cast(TextIO, _MessageFilter(sys.stderr))
    try:
        yield
    finally:
        for name, stream in streams.items():
            setattr(sys, name, stream)
            try:
                stream.flush()
            except (OSError, ValueError):  # it would fail again at interpreter exit, with a traceback
                with suppress(OSError, ValueError):
                    open_null(stream.fileno())


def open_null(number: int) -> None:
    """Open the null device under a file number."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    os.set_inheritable(number, True)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream behind the filter, for output that must keep every byte and is not for a terminal."""
    return getattr(stream, "unfiltered", stream)
