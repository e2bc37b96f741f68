"""Say which fields a record lacks, and how to name them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from localjudge.rows.columns import COLUMN_NAMES, CRITERION, PAIR, Columns, responses_of, usual_names

_COLUMNS_NAMED = 12
_PLAIN_ASSIGNMENT = re.compile(r"[\w.=:@\[\]-]+")


def missing_fields_reason(
    fields: Iterable[str], columns: Iterable[str], used: Sequence[str], given: Columns
) -> str:
    """Return why a record without these fields is not a row, with the flags to name them.

    Args:
        fields: the fields that it lacks.
        columns: the columns that it has.
        used: the fields that the rubric's template uses.
        given: the column of each field that a flag names.
    """
    columns = [str(name) for name in columns]
    known = {*used, *responses_of(used), *given}
    wanted = {name for name in fields if name in known}
    order = dict.fromkeys([*usual_names(used), *used])
    missing = [name for name in order if name in wanted]
    phrases = [_phrase(name, given) for name in missing]
    flags = " ".join(f"--column {name}=COLUMN" for name in missing)
    advice = _advice(missing, columns)
    return f"{', '.join(phrases)}; its columns are {known_columns(columns)}; name them with {flags}{advice}"


def _phrase(name: str, given: Columns) -> str:
    if name in given:
        return f"no column {given[name]!r} for the {name}"
    if name == CRITERION:
        return "no criteria"
    return f"no {name}"


def _advice(missing: Sequence[str], columns: Sequence[str]) -> str:
    """Return another rubric or command that can judge such records; empty if there is none."""
    names = {name: set(COLUMN_NAMES[name]) for name in (*PAIR, "candidate", "system")}
    pair_columns = names[PAIR[0]] | names[PAIR[1]] | {"conversation_a"}
    if (
        "candidate_a" in missing
        and names["candidate"].intersection(columns)
        and names["system"].intersection(columns)
    ):
        return ", or compare the systems of these rows: score --pairs all"
    if "candidate" in missing and pair_columns.intersection(columns):
        return ", or compare the two responses of each record: --rubric pairwise"
    if list(missing) == ["reference"]:
        return ", or judge without one: --rubric no-reference"
    return ""


def flag_of(name: str, path: str) -> str:
    """Return the flag that names the column of a field, as it is typed."""
    assignment = f"{name}={path}"
    if not _PLAIN_ASSIGNMENT.fullmatch(assignment):
        assignment = shlex.quote(assignment)
    return f"`columns` {assignment}"


def known_columns(columns: Iterable[str]) -> str:
    """Return the names of the first columns of a record, for a message."""
    names = [str(name) for name in columns]
    shown = ", ".join(names[:_COLUMNS_NAMED]) or "none"
    if len(names) > _COLUMNS_NAMED:
        shown += f" and {len(names) - _COLUMNS_NAMED} more"
    return shown
