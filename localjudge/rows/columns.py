"""The fields of rows and of templates, the usual names of their columns, and the names that a person gives."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from localjudge.errors import UsageError

PAIR = ("candidate_a", "candidate_b")
"""The fields of a template that compares two responses."""
SYSTEMS = ("system_a", "system_b")
"""The systems that wrote them."""
MESSAGES, CONVERSATION = "messages", "conversation"
"""The column with the turns, and the field of a template with their text."""
HISTORY = "history"
"""The column with the turns before a question that has a column of its own."""
IN_FULL = "@turns"
"""Among the fields that a row needs: a conversation of several turns of the user is the whole candidate."""
TURN = "turn"
"""The column with the number of the turn that is judged, as the judgements of MT-Bench name it."""
SYSTEM_PROMPT = "system_prompt"
"""The field with the instructions that a system works under: the first turn of a conversation."""
WITH_REASONING = "conversation_with_reasoning"
"""The field of a template with their text and the assistant's reasoning."""
CONVERSATIONS = frozenset({CONVERSATION, WITH_REASONING})
CRITERION = "criterion"
"""The field of a template that asks for one criterion of the row."""

_NAMES = tomllib.loads((files("localjudge") / "rows" / "columns.toml").read_text("utf-8"))
COLUMN_NAMES: Mapping[str, Sequence[str]] = _NAMES["columns"]
"""Column names recognized for each field; of a row of one or of two responses."""
ROLE_NAMES: Mapping[str, Sequence[str]] = _NAMES["roles"]
"""Other names of the roles of messages."""

USED_FIELDS = ("instruction", "reference", "candidate")
"""Fields that a template uses if nothing else is known."""


Columns = Mapping[str, str]


def compares_responses(used: Iterable[str]) -> bool:
    """Return whether a template with these fields compares two responses."""
    return set(PAIR) <= set(used)


def judges_conversation(used: Iterable[str]) -> bool:
    """Return whether a template with these fields judges a whole conversation, which then is the candidate."""
    used = set(used)
    return not CONVERSATIONS.isdisjoint(used) and "candidate" not in used


def column_names(used: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return the column names recognized for each field of a row.

    Args:
        used: the fields that the rubric's template uses.
    """
    if compares_responses(used):
        found = {field: COLUMN_NAMES[field] for field in ("instruction", "reference", "id", *PAIR, *SYSTEMS)}
        return found | {"id": [*found["id"], "pair_id"]}
    found = {field: COLUMN_NAMES[field] for field in ("instruction", "reference", "candidate", "id", "system")}
    return found | ({CRITERION: COLUMN_NAMES[CRITERION]} if CRITERION in used else {})


def usual_names(used: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return the column names recognized for each field of a row and for the turns of a conversation.

    Args:
        used: the fields that the rubric's template uses.
    """
    return column_names(used) | {name: COLUMN_NAMES[name] for name in (MESSAGES, HISTORY, SYSTEM_PROMPT)}


def names_of(field: str, columns: Columns, used: Iterable[str]) -> Sequence[str]:
    """Return the possible columns of a field: its custom name, or the usual ones."""
    return (columns[field],) if field in columns else column_names(used).get(field, (field,))


def responses_of(used: Iterable[str]) -> dict[str, str]:
    """Return the field of each response that is judged, and the field of its system."""
    pair = compares_responses(used)
    return dict(zip(PAIR, SYSTEMS, strict=True)) if pair else {"candidate": "system"}


def own_fields(used: Iterable[str]) -> list[str]:
    """Return the fields of a template that are columns of its own, such as a context."""
    used = list(used)
    whole = CONVERSATIONS if judges_conversation(used) else ()
    return [name for name in used if name not in (*column_names(used), *whole, IN_FULL)]


@lru_cache(maxsize=4096)
def folded(name: str) -> str:
    """Return the name of a column in the form of the usual names: `Model Output` is `model_output`."""
    return "_".join(name.strip().lower().replace("-", " ").split())


SHAPE, ROWS_AT, JOIN, ON, ENCODED = "@shape", "@rows", "@join", "@on", "@encoded"
"""Keys of `Columns` beside the fields: the shape of the records, the path of the rows in a file of one object,
the file to join, the column by which it is joined, and a JSON list of the columns that are encoded."""


@dataclass(frozen=True, slots=True)
class ReadingFlags:
    """What the user says of the files of rows.

    Attributes:
        columns: the path of each field whose column is given.
        shape: the shape of the records; None to recognize it.
        rows_at: the path of the rows in a file of one object; None to find it.
        join: the file that the records are joined with; None for none.
        on: the column by which they are joined.
        encoded: the columns whose texts are JSON.
    """

    columns: Columns = field(default_factory=dict)
    shape: str | None = None
    rows_at: str | None = None
    join: str | None = None
    on: str = ""
    encoded: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Columns) -> ReadingFlags:
        """Return the flags in a mapping that `parse_columns` returned, or that a program gives."""
        return cls(
            columns={name: path for name, path in columns.items() if not name.startswith("@")},
            shape=columns.get(SHAPE),
            rows_at=columns.get(ROWS_AT),
            join=columns.get(JOIN),
            on=columns.get(ON, ""),
            encoded=tuple(json.loads(columns[ENCODED])) if ENCODED in columns else (),
        )


def parse_columns(
    assignments: Iterable[str],
    used: Iterable[str] = (),
    encoded: Sequence[str] = (),
    **reading: str | None,
) -> dict[str, str]:
    """Return `["candidate=my_col"]` as `{"candidate": "my_col"}`.

    Args:
        assignments: fields, each with its column.
        used: the fields that the rubric's template uses.
        encoded: the columns whose texts are JSON.
        reading: `shape`, `rows`, `join` and `on`, as far as they are given.

    Raises:
        UsageError: the field is unknown, the text is not an assignment, or two fields have the same column.
    """
    columns: dict[str, str] = {}
    own = [name for name in used if name != IN_FULL]
    fields = dict.fromkeys([*column_names(used), MESSAGES, HISTORY, SYSTEM_PROMPT, *own])
    for assignment in assignments:
        name, equals, path = assignment.partition("=")
        if not equals or not path or name not in fields:
            raise UsageError(
                f"`columns` {assignment}: write FIELD=COLUMN, where FIELD is one of {', '.join(fields)}"
            )
        other = next((each for each, taken in columns.items() if taken == path and each != name), None)
        if other is not None:
            raise UsageError(f"`columns` {assignment}: {path!r} is the column of the {other}; give another one")
        if path.count("[*]") > 1:
            raise UsageError(f"`columns` {assignment}: a path may have one [*]; name the list of the responses")
        columns[name] = path
    for path in encoded:
        if "[*]" in path:
            raise UsageError(f"`encoded` {path}: name a column, or a path without [*]")
    if reading.get("join") is not None:
        reading["join"] = str(Path(str(reading["join"])).resolve())  # the rows are read again from elsewhere
    if encoded:
        columns[ENCODED] = json.dumps(list(encoded))
    return columns | {f"@{key}": value for key, value in reading.items() if value is not None}
