"""Export a run as a table (JSON lines, CSV or Parquet) with one row per judgement, or per pair.

The columns of a line keep their names and types: scores are integers, probabilities are lists. The other
columns of the input (`columns`) are written as JSON text if the format has no objects.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.records.outcome_columns import place_of, to_json, without_objects

Line = Mapping[str, Any]
Origin = Mapping[str, str | None]
"""Columns that every row has besides the columns of its line."""
# A spreadsheet evaluates a cell that begins with one of these signs. Some programs split a cell at semicolons,
# tabs and line breaks, and drop spaces and quotes in front of the sign.
_FORMULA = re.compile(
    r"""(\A|[;\t\r\n])((?:[^\S\t\r\n]|["\0\ufeff\u200b])*)([=+\-@\uff1d\uff0b\uff0d\uff20])"""
)
_AT_ONCE = 10_000
Schema = Callable[[Sequence[str]], Any]
"""Returns the Arrow schema of these columns."""


def write_jsonl(lines: Iterable[Line], names: Sequence[str], schema: Schema, file: Path, origin: Origin) -> int:
    rows = 0
    with file.open("w", encoding="utf-8") as stream:
        for line in lines:
            stream.write(to_json(_fields(line, names, origin), line) + "\n")
            rows += 1
    return rows


def write_csv(lines: Iterable[Line], names: Sequence[str], schema: Schema, file: Path, origin: Origin) -> int:
    rows = 0
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*names, *origin])
        for line in lines:
            writer.writerow([_cell(value, line) for value in _fields(line, names, origin).values()])
            rows += 1
    return rows


def _cell(value: Any, line: Line) -> Any:
    if isinstance(value, str):
        # Some programs drop a tab or a carriage return at the very beginning.
        return "'" * value.startswith(("\t", "\r")) + _FORMULA.sub(r"\1'\2\3", value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        # In JSON, only a string can have such a sign after ; and JSON has an escape for it.
        return _FORMULA.sub(lambda match: f"{match[1]}{match[2]}\\u{ord(match[3]):04x}", to_json(value, line))
    return value


def write_parquet(
    lines: Iterable[Line], names: Sequence[str], schema: Schema, file: Path, origin: Origin
) -> int:
    """Write the rows and put the origin into the file's metadata."""
    import pyarrow
    import pyarrow.parquet

    known = {f"localjudge.{name}": value for name, value in origin.items() if value is not None}
    typed = schema((*names, *origin)).with_metadata(known)
    rows, waiting = 0, iter(lines)
    with pyarrow.parquet.ParquetWriter(file, typed) as writer:
        while some := [without_objects(_fields(line, names, origin)) for line in islice(waiting, _AT_ONCE)]:
            writer.write_table(pyarrow.Table.from_pylist(some, typed))
            rows += len(some)
    return rows


def _fields(line: Line, columns: Sequence[str], origin: Origin) -> dict[str, Any]:
    """Return the columns of a row.

    Raises:
        UsageError: the line lacks a column.
    """
    if lacking := [name for name in columns if name not in line]:
        raise UsageError(
            f"{place_of(line)}: has no {', '.join(lacking)}; every line of a table has the same columns"
        )
    return {name: line[name] for name in columns} | dict(origin)
