"""The reading of a file: which column is which field of a row, and of which kind.

A reading is decided once, from the flags and the first records (`localjudge.rows.decision`), and stored in the
run. Each record is then read strictly by it (`localjudge.rows.field_values`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from localjudge.rows.columns import CONVERSATION, MESSAGES
from localjudge.rows.messages import as_turns
from localjudge.rows.paths import is_missing
from localjudge.rows.shapes import COLUMNS, Shape, shape_named

Kind = Literal["text", "texts", "turns", "number", "data", "media"]
"""What a value is: a text; a list of texts; the messages of a conversation; a number or a boolean; any other
JSON; bytes."""

FileOf = Literal["rows", "joined"]
"""The file that has a value: the rows, or the file that they are joined with."""

KIND_NAMES: Mapping[Kind, str] = {
    "text": "a text",
    "texts": "a list of texts",
    "turns": "a list of messages",
    "number": "a number or a boolean",
    "data": "an object or a list",
    "media": "bytes",
}


def kind_of(value: Any) -> Kind | None:
    """Return the kind of a value; None for a missing value and for an empty list, which can be of any kind."""
    if is_missing(value) or value == []:
        return None
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | int | float):
        return "number"
    if isinstance(value, bytes):
        return "media"
    if as_turns(value) is not None:
        return "turns"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "texts"
    return "data"


class _ReadingPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(_ReadingPart):
    """The place of a value.

    Attributes:
        path: the path of the value in a record (`localjudge.rows.paths`).
        kind: the kind of the value.
        file: the file that has it: the rows, or the file that they are joined with.
    """

    path: str
    kind: Kind
    file: FileOf = "rows"


class TurnSource(_ReadingPart):
    """The sources of turns of a conversation.

    Attributes:
        roles: the source of each role, or of several texts that are one turn. With several roles, each source
            has a list, and their turns alternate. Instead of a role, `messages` and `history` are lists of
            messages, `pairs` a list of pairs of a question and an answer, `marked` a text with a word in
            capitals before each turn, and `events` a list of events of OpenHands.
        optional: whether a record may lack these turns.
    """

    roles: dict[str, tuple[Source, ...]]
    optional: bool = False


class FieldSource(_ReadingPart):
    """The sources of a field.

    Attributes:
        kind: the kind of the field's value.
        texts: the source of the value, or of several texts that are read with an empty line between them.
        turns: the sources of the turns of a conversation, in their order; then `texts` is empty.
    """

    kind: Kind
    texts: tuple[Source, ...] = ()
    turns: tuple[TurnSource, ...] = ()

    @property
    def sources(self) -> Iterator[Source]:
        """All sources, in their order."""
        yield from self.texts
        for part in self.turns:
            for sources in part.roles.values():
                yield from sources


class Reading(_ReadingPart):
    """How the records of a file are read as rows.

    Attributes:
        content: what the file holds, where its suffix does not say it: "an array of objects".
        rows_at: the path of the list of rows in a file that is one object; empty if the rows are not inside
            one.
        form: the name of the declared shape of the records, or "columns".
        any_form: whether records are read without regard to their form, because a flag names it.
        encoded: the columns whose texts are JSON.
        fields: the sources of each field.
        claimed: the columns of which a field reads all that is kept; other columns stay columns of the row.
        object_lists: the paths before `[*]` whose values are objects, and not lists.
        joined_name: the name of the joined file in the names of columns that both files have.
        shared_columns: the columns that both files have.
        responses_hold_prompt: whether a response that is a list of messages begins with the prompt.
        turns_are_instruction: whether a rubric without a conversation shows all turns before the response as
            the instruction: those of a prompt, of a history, or after the prompt of a system.
        candidate_is_transcript: whether the candidate is the text of a whole conversation.
    """

    content: str = ""
    rows_at: str = ""
    form: str = COLUMNS.name
    any_form: bool = False
    encoded: tuple[str, ...] = ()
    fields: dict[str, FieldSource]
    claimed: tuple[str, ...] = ()
    object_lists: tuple[str, ...] = ()
    joined_name: str = ""
    shared_columns: tuple[str, ...] = ()
    responses_hold_prompt: bool = False
    turns_are_instruction: bool = False
    candidate_is_transcript: bool = False

    @property
    def shape(self) -> Shape:
        """The declared shape of the records."""
        return shape_named(self.form)

    def shown_path(self, source: Source) -> str:
        """Return the path of a source as a user writes it, with the name of the joined file where needed."""
        if source.file == "joined" and source.path.partition(".")[0] in self.shared_columns:
            return f"{self.joined_name}.{source.path}"
        return source.path

    def columns_of(self, field: str) -> str:
        """Return the paths of a field in words: "instruction + input"."""
        paths = [self.shown_path(source) for source in self.fields[field].sources]
        gathered = " + ".join(self.shape.gather)
        shown = [gathered if path.startswith("@responses") else path for path in paths]
        return " + ".join(dict.fromkeys(shown))

    @property
    def title(self) -> str:
        """What the records are, and where; empty for rows with usual columns, at the top of the file."""
        title = self.shape.title
        if self.rows_at:
            return f"{title or 'a list'} at {self.rows_at}"
        return title

    def columns(self) -> dict[str, str]:
        """Return the columns of each field, without fields that are read from a column of their own name."""
        found = {field: self.columns_of(field) for field in self.fields}
        if MESSAGES in found:
            found[CONVERSATION] = found.pop(MESSAGES)
        return {field: path for field, path in found.items() if field != path}

    def __str__(self) -> str:
        """The reading in one line."""
        titles = [title for title in (self.content, self.title) if title]
        parts = []
        if titles:
            parts.append(f"read as: {', '.join(titles)}")
        if columns := self.columns():
            parts.append(" ".join(f"{field}={path}" for field, path in columns.items()))
        if self.encoded:
            parts.append(f"JSON in {', '.join(self.encoded)}")
        return ", ".join(parts)
