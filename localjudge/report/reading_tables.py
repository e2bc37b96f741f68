"""The readings of files of rows as tables: each field with its column, its kind and an example."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from localjudge.report.tables import Table
from localjudge.rows.claims import overlap
from localjudge.rows.inputs import InputFile, Inputs
from localjudge.rows.reading import FieldSource, Reading

_LONGEST_EXAMPLE = 60
"""Characters of an example that are shown."""


def reading_tables(inputs: Inputs) -> list[Table | str]:
    """Return a table for each reading of the inputs, and the columns that no field reads."""
    parts: list[Table | str] = []
    shown: list[Reading] = []
    for file in inputs.files:
        if file.reading is None or file.reading in shown:
            continue
        shown.append(file.reading)
        names = [other.name for other in inputs.files if other.reading == file.reading]
        parts.append(_table(file, ", ".join(names)))
        if file.not_shown:
            parts.append(f"in no field: {', '.join(file.not_shown)}")
    return parts


def _table(file: InputFile, names: str) -> Table:
    """Return the table of a file's reading."""
    reading = file.reading
    assert reading is not None
    rows = []
    for name, source in reading.fields.items():
        kind = _kind(source, reading.encoded)
        example = _example(file.examples.get(name))
        rows.append((name, reading.columns_of(name), kind, example))
    row_count = f"{file.rows} of its first {file.records} records are rows"
    title = " · ".join(part for part in (names, reading.title, row_count) if part)
    return Table(title, ("field", "column", "kind", "example"), rows, words=("column", "kind", "example"))


def _kind(source: FieldSource, encoded: Sequence[str]) -> str:
    """Return the kind of a field's values in words."""
    sources = list(source.sources)
    paths = [part.path for part in sources]
    words: str = source.kind
    if any(part.file == "joined" for part in sources):
        words += ", joined"
    if any(_is_encoded(path, encoded) for path in paths):
        words += ", JSON"
    if any("[*]" in path for path in paths):
        words += ", each of a list"
    return words


def _is_encoded(path: str, encoded: Sequence[str]) -> bool:
    """Return whether the value at a path is JSON in a text, or inside one, or has one."""
    return any(overlap(path, encoded_path) for encoded_path in encoded)


def _example(value: Any) -> str:
    """Return the beginning of a value as one line; nothing without one."""
    if value is None:
        return ""
    text = value
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, default=str)
    line = " ".join(text.split())
    if len(line) <= _LONGEST_EXAMPLE:
        return line
    return f"{line[: _LONGEST_EXAMPLE - 1]}…"
