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
from typing import TYPE_CHECKING, Any

from localjudge.errors import SettingError, UsageError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import INTERVAL, MODEL, NOTICE, place_of, to_json, without_objects
from localjudge.report.export import alpaca_eval
from localjudge.report.export import inspect_log as inspect
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.reader import JUDGEMENTS, count_lines, read_notices, read_row_outcomes
from localjudge.runs.reread_texts import RowTexts, rows_with_texts, text_columns
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.system.durable import replacing
from localjudge.system.requirements import require
from localjudge.system.steps import Report, no_progress, with_progress

if TYPE_CHECKING:
    from localjudge.studies.calibrate import IntervalsOf

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
            `inspect` contains other files than Inspect's logs, or the format cannot hold pairs.
    """
    if to not in FORMS:
        raise SettingError("to", to, f"give one of {', '.join(FORMS)}")
    if to in ("parquet", "inspect"):
        require(f"the format {to}", to)
    if to == "inspect":
        refuse_other_files(out)
    manifest = read_manifest(folder)
    mode = manifest.rubric.mode
    if intervals and to not in TABLES:
        raise SettingError("intervals", intervals, f"is for a table: {', '.join(TABLES)}")
    if to not in TABLES:
        mode.require_whole_rows(f"`to` {to}")
    if to == "inspect":
        mode.require("aspects", f"`to` {to}: a sample of Inspect has one response, and this run", "; use jsonl")
    inputs = {name for start in manifest.starts for name in start.inputs}
    if any(same_file(name, out) or Path(name) in out.resolve().parents for name in inputs):
        raise SettingError("out", out, "is an input of this run; choose another name")
    notices, total = read_notices(folder), count_lines(folder) // manifest.orders
    origin = {MODEL: manifest.model.judge, NOTICE: "\n".join(notices) or None}
    try:
        with replacing(out) as scratch:
            if to in TABLES:
                lines, names = _table(folder, manifest, with_texts, intervals)
                schema = partial(mode.schema, manifest.rubric.columns)
                rows = TABLES[to](with_progress(lines, report, total), names, schema, scratch, origin)
            elif to == "alpaca-eval":
                rows = alpaca_eval.write_annotations(
                    lambda: with_progress(outcomes_with_texts(folder), report, total),
                    manifest,
                    scratch,
                    baseline,
                    origin,
                )
            else:
                completed = datetime.fromtimestamp((folder / JUDGEMENTS).stat().st_mtime, UTC)
                outcomes = ((row.first, text) for row, text in outcomes_with_texts(folder))
                rows = inspect.write_logs(
                    with_progress(outcomes, report, total),
                    manifest,
                    scratch,
                    notices,
                    completed,
                )
            if to == "inspect" and out.is_dir():
                refuse_other_files(out)
                for log in out.iterdir():
                    log.unlink()
                out.rmdir()
    except OSError as error:
        raise SettingError("out", out, error.strerror or str(error)) from None
    return rows


def same_file(one: str | Path, other: str | Path) -> bool:
    """Return whether two paths are the same existing file."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


def refuse_other_files(out: Path) -> None:
    """Check that an output folder is new, or contains only Inspect's logs, which are replaced.

    Raises:
        UsageError: it is not a folder, or contains something else.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise SettingError("out", out, "is not a folder; give a new one")
    others = [each.name for each in out.iterdir() if not _is_log(each)] if out.is_dir() else []
    if others:
        raise SettingError(
            "out", out, f"contains {min(others)}, which is not an Inspect log; give a new folder"
        )


def _is_log(file: Path) -> bool:
    return file.suffix == ".eval" and file.is_file() and not file.is_symlink()


def outcomes_with_texts(folder: Path) -> Iterator[tuple[RowOutcome, RowTexts | None]]:
    """Return the outcome of each row or pair of a run, with the texts that its first prompt shows."""
    return rows_with_texts(folder, read_manifest(folder), lambda: read_row_outcomes(folder))


def _table(
    folder: Path, manifest: RunManifest, with_texts: bool, intervals: Path | None
) -> tuple[Iterator[dict[str, Any]], list[str]]:
    """Return the lines of a table and the names of its columns."""
    columns, mode = manifest.rubric.columns, manifest.rubric.mode
    names, column_of, intervals_of = mode.column_names(columns), dict[str, str](), None
    if intervals:
        from localjudge.studies.calibrate import read_intervals

        intervals_of = read_intervals(intervals, [folder])
        names += [aspect + INTERVAL for aspect in columns.aspects]
    if with_texts:
        column_of = text_columns(manifest.rubric, names)
        names += [*mode.texts, *column_of.values()]
    alone = ((outcome, None) for outcome in read_row_outcomes(folder))
    outcomes = outcomes_with_texts(folder) if with_texts else alone
    lines = _lines(outcomes, manifest.rubric, column_of, intervals_of)
    return (dict.fromkeys(names) | line for line in lines), names


def _lines(
    outcomes: Iterable[tuple[RowOutcome, RowTexts | None]],
    rubric: Rubric,
    column_of: Mapping[str, str],
    intervals_of: IntervalsOf | None,
) -> Iterator[dict[str, Any]]:
    """Yield each line, with the texts of its row and the intervals of its scores."""
    mode = rubric.mode
    for outcome, text in outcomes:
        line = outcome.line(rubric.columns)
        if intervals_of:
            line |= {aspect + INTERVAL: [*ends] for aspect, ends in intervals_of(outcome.first).items()}
        if text:
            line |= text.columns(mode.texts, outcome.first.swapped, column_of)
        yield line
