"""Export a run to the formats of other tools.

A table (JSON lines, CSV or Parquet) has one row for each judgement, or pair. The columns of a line keep their
names and types: scores are integers, probabilities are lists. The other columns of the input (`columns`) are
written as JSON text if the format has no objects.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from localjudge.errors import SettingError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records import Row
from localjudge.records.outcome_columns import INTERVAL, MODEL, NOTICE, to_json, without_objects
from localjudge.report.harness_formats import write_annotations, write_logs
from localjudge.runs.reader import JUDGEMENTS, count_lines, read_notices, read_row_outcomes
from localjudge.runs.reread_texts import rows_with_texts, with_text_columns
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.studies.calibrate import read_intervals
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
FORMS = (*TABLES, "alpaca-eval", "inspect")


def export(
    folder: Path,
    to: str,
    out: Path,
    with_texts: bool = False,
    baseline: str | None = None,
    report: Report = no_progress,
    intervals: Path | None = None,
) -> int:
    """Write a run in the format of another tool; a run of pairs is written pair by pair.

    Args:
        folder: the run directory.
        to: one of `FORMS`.
        out: the file to write, or for `inspect` a folder; written completely or not at all.
        with_texts: for a table, include the instruction, the reference and the candidate of each row, or both
            candidates of each pair, and the fields of the template. A field with the name of a column of the
            run is `input_NAME`.
        baseline: for `alpaca-eval`, the system to compare the others with. In a run of pairs, only the pairs
            with this system are written; None writes all.
        report: receives the number of rows or pairs that were written.
        intervals: for a table, the output file of `localjudge calibrate --interval`; `ASPECT_interval` is then
            the interval of its label.

    Returns:
        The number of rows or pairs written.

    Raises:
        UsageError: there is no such format or run, the texts of its rows cannot be found, the folder for
            `inspect` exists, or the format cannot hold pairs.
    """
    if to not in FORMS:
        raise SettingError("to", to, f"give one of {', '.join(FORMS)}")
    if to in ("parquet", "inspect"):
        require(f"the format {to}", to)
    manifest = read_manifest(folder)
    mode = manifest.rubric.mode
    if intervals and to not in TABLES:
        raise SettingError("intervals", intervals, f"is for a table: {', '.join(TABLES)}")
    if to not in TABLES:
        mode.require_whole_rows(f"`to` {to}")
    if to == "inspect":
        mode.require("aspects", f"`to` {to}: a sample of Inspect has one response, and this run", "; use jsonl")
        if os.path.lexists(out):
            raise SettingError("out", out, "exists already; give a new folder")
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
            if to in TABLES:
                lines, names = _table(folder, manifest, with_texts, intervals, origin)
                metadata = {f"localjudge.{name}": value for name, value in origin.items() if value is not None}
                TABLES[to](
                    with_progress(lines, told, total),
                    names,
                    lambda: mode.schema(manifest.rubric.columns, names).with_metadata(metadata),
                    scratch,
                )
            elif to == "alpaca-eval":
                rows = partial(outcomes_with_texts, folder)
                written = write_annotations(rows, manifest, scratch, baseline, origin)
            else:
                completed = datetime.fromtimestamp((folder / JUDGEMENTS).stat().st_mtime, UTC)
                outcomes = ((row.first, text) for row, text in outcomes_with_texts(folder))
                samples = with_progress(outcomes, told, total)
                write_logs(samples, manifest, scratch, notices, completed)
    except OSError as error:
        raise SettingError("out", out, error.strerror or str(error)) from None
    return written


def outcomes_with_texts(folder: Path) -> Iterator[tuple[RowOutcome, Row | None]]:
    """Return the outcome of each row or pair of a run, with the row that its first prompt shows."""
    return rows_with_texts(folder, read_manifest(folder), lambda: read_row_outcomes(folder))


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
