"""The form of a file: the declared shape that most of its first records fit, and what its writer encodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from localjudge.rows.columns import ReadingFlags
from localjudge.rows.field_values import decoded, gathered, merged
from localjudge.rows.paths import is_missing, look_up
from localjudge.rows.record import RecordError
from localjudge.rows.shapes import COLUMNS, Shape, recognized, shape_named


def form_of(records: Sequence[dict[str, Any]], flags: ReadingFlags) -> Shape:
    """Return the shape that a flag names, or that most of the records fit.

    Raises:
        RecordError: two shapes fit equally many records.
    """
    if flags.shape is not None:
        return shape_named(flags.shape)
    votes: Counter[str] = Counter()
    for record in records:
        try:
            votes[recognized(merged(decoded(record, flags.encoded))).name] += 1
        except RecordError:
            continue
    if not votes:
        return COLUMNS
    most = max(votes.values())
    best = [shape_named(name) for name, count in votes.items() if count == most]
    form = _widest(best[0], [shape_named(name) for name in votes])
    others = [shape for shape in best if not form.reads(shape)]
    if others:
        titles = " and ".join(shape.title or "rows with usual columns" for shape in (form, *others))
        choices = " or ".join(f"--shape {shape.name}" for shape in (form, *others))
        raise RecordError(f"its records have several forms equally often: {titles}; choose one: {choices}")
    return form


def _widest(form: Shape, others: Sequence[Shape]) -> Shape:
    """Return the one of several shapes that reads all records which a declared form reads."""
    for shape in others:
        if form is not COLUMNS and shape.reads(form):
            form = shape
    return form


def encoded_paths(records: Sequence[dict[str, Any]], form: Shape, flags: ReadingFlags) -> tuple[str, ...]:
    """Return the paths of the texts that are JSON: those of the flags, and those that the writer encodes.

    A file in which most values there are no texts was written with decoded values.
    """
    for path in form.encoding:
        values = [look_up(merged(record), path) for record in records]
        known = [value for value in values if not is_missing(value)]
        texts = [value for value in known if isinstance(value, str)]
        if len(texts) * 2 < len(known):
            return flags.encoded
    return tuple(dict.fromkeys([*flags.encoded, *form.encoding]))


def records_of_form(
    records: Sequence[dict[str, Any]], form: Shape, flags: ReadingFlags, encoded: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the records of a form, with the values that encoded texts stand for."""
    found = []
    for record in records:
        try:
            plain = gathered(decoded(record, encoded), form.gather)
        except RecordError:
            continue
        if flags.shape is not None or form.reads(recognized(merged(plain))):
            found.append(plain)
    return found
