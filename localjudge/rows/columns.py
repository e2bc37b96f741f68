"""The columns of an input: the usual names of each field, and the names that a person gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.rows.conversation import CONVERSATIONS, IN_FULL, MESSAGES, judges_conversation
from localjudge.rows.criteria import CRITERIA_COLUMNS, CRITERION, NUMBERED_CRITERIA
from localjudge.rows.pair_columns import PAIR, PAIR_COLUMN_NAMES, SYSTEMS, compares_responses

COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "instruction": ("instruction", "prompt", "question", "query", "user_query", "user_input", "input"),
    "reference": (
        "reference", "reference_answer", "reference_output", "gold", "gold_answer", "ground_truth",
        "expected_output", "correct_answer", "target", "__expected",
    ),
    "candidate": (
        "candidate", "output", "response", "completion", "generation", "prediction", "model_output",
        "model_answer", "actual_output", "answer",
    ),
    "id": ("id", "row_id", "uid", "example_id", "question_id", "idx", "prompt_id"),
    "system": ("system", "generator", "model", "model_name", "model_id"),
}  # fmt: skip
"""Column names recognized for each field; the first is the field's own name."""

CANDIDATE_OR_REFERENCE = ("answer", "output")
"""Names that some files give to the response and others to the reference."""

USED_FIELDS = ("instruction", "reference", "candidate")
"""Fields that a template uses if nothing else is known."""


Columns = Mapping[str, str]


def column_names(used: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the column names recognized for each field of a row.

    Args:
        used: the fields that the rubric's template uses.
    """
    if not compares_responses(used):
        own = {CRITERION: CRITERIA_COLUMNS, NUMBERED_CRITERIA: ()}
        return COLUMN_NAMES | ({**own} if CRITERION in used else {})
    shared = {field: names for field, names in COLUMN_NAMES.items() if field not in ("candidate", "system")}
    return {**shared, "id": (*shared["id"], "pair_id"), **PAIR_COLUMN_NAMES}


def names_of(field: str, columns: Columns, used: Iterable[str]) -> tuple[str, ...]:
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


SHAPE, ROWS_AT, JOIN, ON = "@shape", "@rows", "@join", "@on"
"""Keys of `Columns` beside the fields: the shape of the records, the path of the rows in a file of one object,
the file to join, and the column by which it is joined."""


def parse_columns(
    assignments: Iterable[str], used: Iterable[str] = (), **reading: str | None
) -> dict[str, str]:
    """Return `["candidate=my_col"]` as `{"candidate": "my_col"}`.

    Args:
        assignments: fields, each with its column.
        used: the fields that the rubric's template uses.
        reading: `shape`, `rows`, `join` and `on`, as far as they are given.

    Raises:
        UsageError: the field is unknown, the text is not an assignment, or two fields have the same column.
    """
    columns: dict[str, str] = {}
    fields = dict.fromkeys([*column_names(used), MESSAGES, *(field for field in used if field != IN_FULL)])
    for assignment in assignments:
        field, equals, name = assignment.partition("=")
        if not equals or not name or field not in fields:
            raise UsageError(
                f"`columns` {assignment}: write FIELD=COLUMN, where FIELD is one of {', '.join(fields)}"
            )
        if other := next((each for each, column in columns.items() if column == name and each != field), None):
            raise UsageError(f"`columns` {assignment}: {name!r} is the column of the {other}; give another one")
        columns[field] = name
    if reading.get("join") is not None:
        reading["join"] = str(Path(str(reading["join"])).resolve())  # the rows are read again from elsewhere
    return columns | {f"@{name}": value for name, value in reading.items() if value is not None}
