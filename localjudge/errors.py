"""The errors of localjudge, as one tree.

* LocalJudgeError
    * UsageError: a flag, a rubric or an input that cannot be used as given (exit code 2)
        * SettingError: a setting of the judge with a value that it cannot have
        * RubricError: a rubric file that cannot be read or is inconsistent
        * ModelError: a model that cannot be found, loaded or used as a judge
        * RunMismatchError: a run directory that belongs to a different run
        * RunLockedError: a run directory that another process is writing
    * EngineError: the engine failed during a run (exit code 1)
    * ServiceBusyError: too many rows wait for a judge that serves
    * RunBrokenError: the run directory was removed or taken over, or its disk is full (exit code 1)

A row that cannot be judged raises no exception: it becomes a `Failure`. The reason is stored in files, so it
names a setting by its flag. The key of an unreadable row depends on the `RowProblem`, not on the sentence.

The message of an exception names a setting as a Python program does, in backquotes: "allow larger rows with
`max_row_bytes`". The command line shows its flag instead, --max-row-bytes (`localjudge.cli.commands.in_flags`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from localjudge.secret_texts import without_secrets


class LocalJudgeError(Exception):
    """The root of the tree. Its message says what, where, and what to do."""

    exit_code = 1


class UsageError(LocalJudgeError):
    """A flag, an argument or an input that cannot be used as given."""

    exit_code = 2


class SettingError(UsageError):
    """A setting of the judge has a value that it cannot have.

    Args:
        name: the setting's name, such as `top_p`.
        value: the value that was given.
        advice: what to give instead.
    """

    def __init__(self, name: str, value: object, advice: str) -> None:
        super().__init__(f"`{name}` {value}: {advice}")
        self.name = name
        self.value = value
        self.advice = advice


class RubricError(UsageError):
    """A rubric that cannot be used."""


class ModelError(UsageError):
    """A model that cannot be found, loaded or used as a judge."""


class RunMismatchError(UsageError):
    """A run directory that holds a different run."""


class RunLockedError(UsageError):
    """A run directory that another process is writing."""


class EngineError(LocalJudgeError):
    """The engine failed while judging."""


class ServiceBusyError(LocalJudgeError):
    """Too many rows wait for a judge that serves; the same request can be sent again later."""


class RunBrokenError(LocalJudgeError):
    """A run directory that this process can no longer write."""


_LONGEST_LINE = 300
"""The most characters of a line of another library's error."""
_LINK = "For further information visit"
"""The beginning of a line that has only a link; errors of pydantic have such lines."""


def in_one_line(error: BaseException) -> str:
    """Return the message of an error from another library in one line; the name of its type without one.

    Of several lines, the first says what was tried and the last one what was wrong. A link to a page that
    explains the error is no such line. Secrets are hidden.
    """
    lines = []
    for line in without_secrets(str(error)).splitlines():
        text = line.strip()
        if text and not text.startswith(_LINK):
            lines.append(text)
    if not lines:
        return type(error).__name__
    shown = [line[:_LONGEST_LINE] for line in dict.fromkeys([lines[0], lines[-1]])]
    return " … ".join(shown)


class RowProblem(StrEnum):
    """The kind of problem of a record that is not a row; a part of the key of its failure."""

    SYNTAX = "syntax"
    """The record is not JSON, CSV or a valid table row, or not an object with named fields."""
    ENCODING = "encoding"
    """A text is not UTF-8, or UTF-8 cannot encode it."""
    DAMAGED = "damaged"
    """The rest of the file cannot be read."""
    TOO_LARGE = "too-large"
    """The record is above the size limit, or nested too deep."""
    FORM = "form"
    """The record is of another form than the file."""
    MISSING = "missing"
    """A field has no value."""
    KIND = "kind"
    """The value of a field is of another kind than in the file."""
    VALUE = "value"
    """The value of a field cannot be used."""
    CONVERSATION = "conversation"
    """The turns are not a conversation that can be judged."""
    JOIN = "join"
    """The other file has no record for this one."""
    MEDIA = "media"
    """The record has images, sound or video."""


@dataclass(frozen=True, slots=True)
class RowError:
    """The reason why a record is not a row, or a row cannot be judged: a value, which is never raised.

    `record` has the columns of a record that could be read otherwise; they tell which row it is.
    """

    reason: str
    record: Mapping[str, Any] | None = None
    problem: RowProblem = RowProblem.SYNTAX
