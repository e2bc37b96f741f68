"""Export a run as a table for other tools.

A table (JSON lines, CSV or Parquet) has one row for each judgement, or pair. The columns of a line keep their
names and types: scores are integers, probabilities are lists. The other columns of the input (`columns`) are
written as JSON text if the format has no objects.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from localjudge.errors import SettingError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import INTERVAL, MODEL, NOTICE, to_json, without_objects
from localjudge.runs.reader import count_lines, read_notices, read_row_outcomes
from localjudge.runs.reread_texts import with_text_columns
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.studies.calibration import read_intervals
from localjudge.system.durable import replacing
from localjudge.system.requirements import require
from localjudge.system.steps import Report, no_progress, with_progress

Line = Mapping[str, Any]
# A spreadsheet evaluates a cell that begins with one of these signs. Some programs split a cell at semicolons,
# tabs and line breaks, and drop spaces and quotes in front of the sign.
_FORMULA = re.compile(
    r"""(\A|[;\t\r\n])((?:[^\S\t\r\n]|["\0\ufeff\u200b])*)([=+\-@\uff1d\uff0b\uff0d\uff20])"""
)
_AT_ONCE = 10_000
Schema = Callable[[], Any]
"""Returns the Arrow schema of the columns, with the origin of the rows as metadata."""


def write_jsonl(lines: Iterable[Line], names: Sequence[str], schema: Schema, file: Path) -> None:
    with file.open("w", encoding="utf-8") as stream:
        stream.writelines(to_json(line, line) + "\n" for line in lines)


def write_csv(lines: Iterable[Line], names: Sequence[str], schema: Schema, file: Path) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(names)
        writer.writerows([_cell(line[name], line) for name in names] for line in lines)


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


def write_parquet(lines: Iterable[Line], names: Sequence[str], schema: Schema, file: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    typed, waiting = schema(), map(without_objects, lines)
    with pyarrow.parquet.ParquetWriter(file, typed) as writer:
        while some := [*islice(waiting, _AT_ONCE)]:
            writer.write_table(pyarrow.Table.from_pylist(some, typed))


TABLES = {"jsonl": write_jsonl, "csv": write_csv, "parquet": write_parquet}


def export(
    folder: Path,
    to: str,
    out: Path,
    with_texts: bool = False,
    report: Report = no_progress,
    intervals: Path | None = None,
) -> int:
    """Write a run as a table; a run of pairs is written pair by pair.

    Args:
        folder: the run directory.
        to: one of `TABLES`.
        out: the file to write, completely or not at all.
        with_texts: include the instruction, the reference and the candidate of each row, or both
            candidates of each pair, and the fields of the template. A field with the name of a column of the
            run is `input_NAME`.
        report: receives the number of rows or pairs that were written.
        intervals: the output file of `localjudge calibrate --interval`; `ASPECT_interval` is then
            the interval of its label.

    Returns:
        The number of rows or pairs written.

    Raises:
        UsageError: there is no such format or run, or the texts of its rows cannot be found.
        RunMismatchError: a start has changed the run while it was read; `out` is as it was.
    """
    if to not in TABLES:
        raise SettingError("to", to, f"give one of {', '.join(TABLES)}")
    if to == "parquet":
        require("the format parquet", to)
    state = RunState.of(folder)
    manifest = read_manifest(folder)
    inputs = {name for start in manifest.starts for name in start.inputs}
    target = out.resolve()
    if any(Path(name).resolve() == target or Path(name) in target.parents for name in inputs):
        raise SettingError("out", out, "is an input of this run; choose another name")
    notices, total = read_notices(folder), count_lines(folder) // manifest.orders
    origin = {MODEL: manifest.model.name, NOTICE: "\n".join(notices) or None}
    written = 0

    def told(done: int, total: int | None = None, /) -> None:
        nonlocal written
        written = done
        report(done, total)

    try:
        with replacing(out) as scratch:
            lines, names = _table(folder, manifest, with_texts, intervals, origin)
            metadata = {f"localjudge.{name}": value for name, value in origin.items() if value is not None}
            TABLES[to](
                with_progress(lines, told, total),
                names,
                lambda: manifest.rubric.mode.schema(manifest.rubric.columns, names).with_metadata(metadata),
                scratch,
            )
            state.refuse_change()
    except OSError as error:
        raise SettingError("out", out, error.strerror or str(error)) from None
    return written


def _table(
    folder: Path, manifest: RunManifest, with_texts: bool, intervals: Path | None, origin: Line
) -> tuple[Iterator[Line], list[str]]:
    """Return the lines of a table, which have the same columns, and the names of these columns."""
    columns = manifest.rubric.columns
    names, intervals_of = manifest.rubric.mode.column_names(columns), None
    if intervals:
        intervals_of = read_intervals(intervals, [folder])
        names += [aspect + INTERVAL for aspect in columns.aspects]
    outcomes: Iterator[tuple[RowOutcome, dict[str, str | None]]]
    if with_texts:
        text_names, outcomes = with_text_columns(folder, manifest, lambda: read_row_outcomes(folder), names)
        names += text_names
    else:
        outcomes = ((outcome, {}) for outcome in read_row_outcomes(folder))

    def lines() -> Iterator[Line]:
        for outcome, texts in outcomes:
            ends = intervals_of(outcome.first) if intervals_of else {}
            of_aspects = {aspect + INTERVAL: [*each] for aspect, each in ends.items()}
            line = outcome.line(columns) | texts | of_aspects
            yield {name: line.get(name) for name in names} | dict(origin)

    return lines(), [*names, *origin]
