"""A run as a table: JSON lines, CSV or Parquet, a row a judgement.

A line's columns keep their names and types: scores are integers, probabilities lists. What a row had besides
(`columns`) stands as JSON where a table has no room for objects.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]
# A spreadsheet takes a cell that begins so for a formula, and runs it.
_FORMULA = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")
_AT_ONCE = 10_000


def write_jsonl(lines: Iterable[Line], columns: Sequence[str], aspects: Sequence[str], file: Path) -> int:
    rows = 0
    with file.open("w", encoding="utf-8") as stream:
        for line in lines:
            stream.write(json.dumps({name: line[name] for name in columns}, ensure_ascii=False) + "\n")
            rows += 1
    return rows


def write_csv(lines: Iterable[Line], columns: Sequence[str], aspects: Sequence[str], file: Path) -> int:
    rows = 0
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for line in lines:
            writer.writerow([_cell(line[name]) for name in columns])
            rows += 1
    return rows


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def write_parquet(lines: Iterable[Line], columns: Sequence[str], aspects: Sequence[str], file: Path) -> int:
    import pyarrow
    import pyarrow.parquet

    number, real, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
    types = dict.fromkeys(columns, text) | {
        "rationale_cut": pyarrow.bool_(), "candidate_cut": number, "prompt_tokens": number,
        "output_tokens": number, "row": number,
    }  # fmt: skip
    for aspect in aspects:
        types |= {aspect: number, f"{aspect}_expected": real, f"{aspect}_probabilities": pyarrow.list_(real)}
    schema = pyarrow.schema(list(types.items()))
    rows, waiting = 0, iter(lines)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while some := [_flat(line, columns) for line in islice(waiting, _AT_ONCE)]:
            writer.write_table(pyarrow.Table.from_pylist(some, schema))
            rows += len(some)
    return rows


def _flat(line: Line, columns: Sequence[str]) -> dict[str, Any]:
    own = {name: line[name] for name in columns}
    return own | {"columns": json.dumps(own["columns"], ensure_ascii=False)}
