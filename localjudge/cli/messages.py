"""Messages of a command on stderr: text, errors alone (`--quiet`), or JSON (`--log-json`)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from localjudge.cli.commands import in_flags
from localjudge.secret_texts import without_secrets

if TYPE_CHECKING:
    from localjudge.cli.console import Console

Form = Literal["text", "quiet", "json"]

QUIET = "--quiet"
LOG_JSON = "--log-json"
_FORMS: dict[str, Form] = {QUIET: "quiet", LOG_JSON: "json"}


def options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the options of the whole program first, where Click expects them.

    So they can stand anywhere; what follows `--` stays.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    program_options = []
    others = []
    for argument in arguments[:end]:
        if argument in _FORMS:
            program_options.append(argument)
        else:
            others.append(argument)
    return program_options + others + list(arguments[end:])


def _typed_form() -> Form:
    """Return the form that the command line asks for."""
    for argument in options_first(sys.argv[1:]):
        if argument in _FORMS:
            return _FORMS[argument]
    return "text"


_MEMORY = "too little memory"
_LACKS = {
    _MEMORY: (
        "failed to map segment",
        "cannot allocate memory",
        "memory allocation",
        "unable to allocate",
    ),
    "too many open files, see ulimit -n": ("too many open files",),
    "too many threads or processes, see ulimit -u": (
        "can't start new thread",
        "resource temporarily unavailable",
    ),
}
"""What a process can lack, and what libraries say of it, in lower case."""


def lacking(error: BaseException) -> str | None:
    """Return in one line what this process lacks, if that is the cause of an error; None if it is not."""
    cause: BaseException | None = error
    while cause is not None:
        message = f"{type(cause).__name__}: {cause}"
        lack = _lack(cause, message.lower())
        if lack is not None:
            first_line = message.partition("\n")[0]
            return f"{lack} ({first_line}); give this process more, and give the same command again"
        cause = cause.__cause__ or cause.__context__
    return None


def _lack(error: BaseException, message: str) -> str | None:
    """Return what a process lacks by an error and its message in lower case; None if it is another error."""
    for lack, texts in _LACKS.items():
        if any(text in message for text in texts):
            return lack
        if isinstance(error, MemoryError) and lack == _MEMORY:
            return lack
    return None


class Messages:
    """What a command says on stderr, besides its results on stdout.

    Args:
        form: `text`; `quiet`, which is errors alone; `json`, which is one object in each line, with the fields
            `time` (ISO 8601, UTC), `event`, and those of the event; None for the form that the command line
            asks for. It is read before Click reads it, because Click's own errors have this form, too.

    Attributes:
        console: writes to stderr, or where `Progress` points it to; it is made when it is first used.
    """

    def __init__(self, form: Form | None = None) -> None:
        self.form: Form = _typed_form() if form is None else form

    @cached_property
    def console(self) -> Console:
        from localjudge.cli.console import Console

        return Console(stderr=True, soft_wrap=not sys.stderr.isatty())

    def say(self, text: str, *, always: bool = False) -> None:
        """Print a message about the progress; `always` prints it with `--quiet`, too."""
        self._tell("message", text, style="", shown=always or self.form == "text")

    def warn(self, text: str, *, always: bool = False) -> None:
        """Print what a person should read before the results; `always` prints it with `--quiet`, too."""
        self._tell("warning", text, style="yellow", shown=always or self.form == "text")

    def error(self, text: str) -> None:
        """Print why the command ends, in one line on a terminal, too."""
        message = in_flags(text)
        if self.form == "json":
            self.event("error", text=message.removeprefix("localjudge: "))
        else:
            print(message, file=sys.stderr)

    def notices(self, notices: Iterable[str], *, in_table: bool = False) -> None:
        """Print the notices of a run, unless a table on stdout has them as text."""
        for notice in notices:
            self._tell("notice", notice, style="", shown=self.form == "text" and not in_table)

    def event(self, name: str, **fields: Any) -> None:
        """Write an event with its fields, if the form is JSON."""
        if self.form == "json":
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = json.dumps({"time": now, "event": name} | fields)
            self.console.file.write(without_secrets(line) + "\n")
            self.console.file.flush()

    def _tell(self, event: str, text: str, style: str, *, shown: bool) -> None:
        """Write an event with a text, or print the text if it is `shown`."""
        text = in_flags(text)
        if self.form == "json":
            self.event(event, text=text)
        elif shown:
            from rich.text import Text

            self.console.print(Text(text, style=style))

    @contextmanager
    def until_the_end(self) -> Iterator[None]:
        """If the form is JSON, make an event of each line that is printed to stderr, and of the exit."""
        if self.form != "json":
            yield
            return
        begin = time.monotonic()
        exit_code = 1
        stderr = sys.stderr
        lines = _Lines(self)
        sys.stderr = cast(TextIO, lines)
        try:
            yield
        except SystemExit as end:
            if isinstance(end.code, int):
                exit_code = end.code
            else:  # a message to print is a failure, as in Python
                exit_code = 1 if end.code else 0
            raise
        finally:
            sys.stderr = stderr
            with suppress(OSError):
                lines.end()
                elapsed = round(time.monotonic() - begin, 3)
                self.event("end", exit_code=exit_code, elapsed_seconds=elapsed)


class _Lines:
    """A text stream of which each line becomes an event."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._unfinished_line = ""
        self.unfiltered = messages.console.file  # JSON in ASCII cannot control a terminal

    def write(self, text: str) -> int:
        lines = (self._unfinished_line + text).split("\n")
        self._unfinished_line = lines.pop()
        for line in lines:
            if line.strip():
                self._messages.event("message", text=line)
        return len(text)

    def end(self) -> None:
        """Write the last line, if it was not ended."""
        self.write("\n")

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.unfiltered, name)
