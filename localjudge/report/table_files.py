"""Files with a table for other tools: JSON lines, CSV and Parquet.

The columns of a line keep their names and types: scores are integers, probabilities are lists. The other
columns of the input (`columns`) are written as JSON text if the format has no objects.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from localjudge.records.outcome_columns import to_json, without_objects

Line = Mapping[str, Any]
"""The values of a line by the names of their columns."""

# A spreadsheet evaluates a cell that begins with one of these signs. Some programs split a cell at semicolons,
# tabs and line breaks, and drop spaces and quotes in front of the sign.
_FORMULA = re.compile(
    r"""(\A|[;\t\r\n])((?:[^\S\t\r\n]|["\0\ufeff\u200b])*)([=+\-@\uff1d\uff0b\uff0d\uff20])"""
)
_BATCH = 10_000
"""Number of lines that are written to a Parquet file at once."""


@dataclass(frozen=True, slots=True)
class LineTable:
    """A table to write.

    Attributes:
        names: the names of the columns in order.
        lines: the lines; each has all columns.
        schema: returns the Arrow schema of the columns; called only for a format that has one.
    """

    names: Sequence[str]
    lines: Iterable[Line]
    schema: Callable[[], Any]


def write_jsonl(table: LineTable, file: Path) -> None:
    """Write a table as JSON lines."""
    with file.open("w", encoding="utf-8") as stream:
        for line in table.lines:
            stream.write(to_json(line, line) + "\n")


def write_csv(table: LineTable, file: Path) -> None:
    """Write a table as CSV; no cell is a formula."""
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table.names)
        for line in table.lines:
            writer.writerow([_cell(line[name], line) for name in table.names])


def write_parquet(table: LineTable, file: Path) -> None:
    """Write a table as Parquet."""
    import pyarrow
    import pyarrow.parquet

    schema = table.schema()
    lines = (without_objects(line) for line in table.lines)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        batch = list(islice(lines, _BATCH))
        while batch:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))
            batch = list(islice(lines, _BATCH))


FORMATS: dict[str, Callable[[LineTable, Path], None]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "parquet": write_parquet,
}
"""The function that writes each format."""


def _cell(value: Any, line: Line) -> Any:
    """Return a value as a cell of a CSV file, which no program takes for a formula."""
    if isinstance(value, str):
        text = _FORMULA.sub(r"\1'\2\3", value)
        # Some programs drop a tab or a carriage return at the very beginning.
        if value.startswith(("\t", "\r")):
            return f"'{text}"
        return text
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        # In JSON, only a string can have such a sign after ; and JSON has an escape for it.
        return _FORMULA.sub(_with_escaped_sign, to_json(value, line))
    return value


def _with_escaped_sign(match: re.Match[str]) -> str:
    """Return the beginning of a formula with its sign as an escape of JSON."""
    before, spaces, sign = match.groups()
    return f"{before}{spaces}\\u{ord(sign):04x}"
