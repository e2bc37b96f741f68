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

QUIET, LOG_JSON = "--quiet", "--log-json"
_FORMS: dict[str, Form] = {QUIET: "quiet", LOG_JSON: "json"}


def options_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the options of the whole program first, where Click expects them.

    So they can stand anywhere; what follows `--` stays.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own = [each for each in arguments[:end] if each in _FORMS]
    return [*own, *(each for each in arguments[:end] if each not in _FORMS), *arguments[end:]]


_LACKS = {
    "too little memory": (
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
    found: BaseException | None = error
    while found is not None:
        said = f"{type(found).__name__}: {found}"
        for lack, words in _LACKS.items():
            if any(word in said.lower() for word in words) or (
                isinstance(found, MemoryError) and "memory" in lack
            ):
                said = said.partition("\n")[0]
                return f"{lack} ({said}); give this process more, and give the same command again"
        found = found.__cause__ or found.__context__
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
        asked: Iterator[Form] = (_FORMS[each] for each in options_first(sys.argv[1:]) if each in _FORMS)
        self.form: Form = next(asked, "text") if form is None else form

    @cached_property
    def console(self) -> Console:
        from localjudge.cli.console import Console

        return Console(stderr=True, soft_wrap=not sys.stderr.isatty())

    def say(self, text: str, *, always: bool = False) -> None:
        """Print a message about the progress; `always` prints it with `--quiet`, too."""
        self._tell("message", text, "", shown=always or self.form == "text")

    def warn(self, text: str, *, always: bool = False) -> None:
        """Print what a person should read before the results; `always` prints it with `--quiet`, too."""
        self._tell("warning", text, "yellow", shown=always or self.form == "text")

    def error(self, text: str) -> None:
        """Print why the command ends, in one line on a terminal, too."""
        if self.form == "json":
            self.event("error", text=in_flags(text).removeprefix("localjudge: "))
        else:
            print(in_flags(text), file=sys.stderr)

    def notices(self, found: Iterable[str], *, in_table: bool = False) -> None:
        """Print the notices of a run, unless a table on stdout has them as text."""
        for each in found:
            self._tell("notice", each, "", shown=self.form == "text" and not in_table)

    def event(self, name: str, **fields: Any) -> None:
        """Write an event with its fields, if the form is JSON."""
        if self.form == "json":
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = json.dumps({"time": now, "event": name, **fields})
            self.console.file.write(without_secrets(line) + "\n")
            self.console.file.flush()

    def _tell(self, event: str, text: str, style: str, *, shown: bool) -> None:
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
        begin, code, stderr, lines = time.monotonic(), 1, sys.stderr, _Lines(self)
        sys.stderr = cast(TextIO, lines)
        try:
            yield
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(bool(end.code))
            raise
        finally:
            sys.stderr = stderr
            with suppress(OSError):
                lines.end()
                self.event("end", exit_code=code, elapsed_seconds=round(time.monotonic() - begin, 3))


class _Lines:
    """A text stream of which each line becomes an event."""

    def __init__(self, messages: Messages) -> None:
        self._messages, self._rest = messages, ""
        self.unfiltered = messages.console.file  # JSON in ASCII cannot control a terminal

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in filter(str.strip, lines):
            self._messages.event("message", text=line)
        return len(text)

    def end(self) -> None:
        """Write the last line, if it was not ended."""
        self.write("\n")

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.unfiltered, name)
