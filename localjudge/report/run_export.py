"""Export a run as a table for other tools, which has one row for each judgement, or pair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import SettingError
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import INTERVAL, MODEL, NOTICE
from localjudge.report.table_files import FORMATS, Line, LineTable
from localjudge.runs.reader import count_lines, read_notices, read_row_outcomes
from localjudge.runs.reread_texts import with_text_columns
from localjudge.runs.run_manifest import RunManifest, read_manifest
from localjudge.runs.run_state import RunState
from localjudge.studies.calibration import IntervalsOf, read_intervals
from localjudge.system.durable import replacing
from localjudge.system.requirements import require
from localjudge.system.steps import Report, no_progress, with_progress

_Texts = dict[str, str | None]
"""The texts of a row, by the names of their columns."""


def export(
    folder: Path,
    to: str,
    out: Path,
    *,
    with_texts: bool = False,
    report: Report = no_progress,
    intervals: Path | None = None,
) -> int:
    """Write a run as a table; a run of pairs is written pair by pair.

    Args:
        folder: the run directory.
        to: one of `FORMATS`.
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
    if to not in FORMATS:
        raise SettingError("to", to, f"give one of {', '.join(FORMATS)}")
    if to == "parquet":
        require("the format parquet", to)
    state = RunState.of(folder)
    manifest = read_manifest(folder)
    _refuse_input(out, manifest)
    total = count_lines(folder) // manifest.orders
    notices = read_notices(folder)
    run_columns = {MODEL: manifest.model.name, NOTICE: "\n".join(notices) or None}
    count = _RowCount(report)
    try:
        with replacing(out) as scratch:
            table = _RunTable.of_run(
                folder, manifest, with_texts=with_texts, intervals=intervals, run_columns=run_columns
            )
            lines = with_progress(table.lines(), count, total=total)
            FORMATS[to](LineTable(table.names, lines, schema=table.schema), scratch)
            state.refuse_change()
    except OSError as error:
        raise SettingError("out", out, error.strerror or str(error)) from None
    return count.rows


def _refuse_input(out: Path, manifest: RunManifest) -> None:
    """Refuse a file that is an input of the run, or inside one."""
    target = out.resolve()
    for start in manifest.starts:
        for name in start.inputs:
            if Path(name).resolve() == target or Path(name) in target.parents:
                raise SettingError("out", out, "is an input of this run; choose another name")


@dataclass(slots=True)
class _RowCount:
    """Receives the progress of the export, and keeps the number of rows that were written."""

    report: Report
    rows: int = 0

    def __call__(self, done: int, total: int | None = None, /) -> None:
        """Receive the number of rows that were written, and pass it on."""
        self.rows = done
        self.report(done, total)


@dataclass(frozen=True, slots=True)
class _RunTable:
    """The table of a run.

    Attributes:
        manifest: the manifest of the run.
        names: the names of the columns in order.
        outcomes: the outcome of each row, and its texts.
        intervals_of: returns the intervals of an outcome's scores; None for a table without intervals.
        run_columns: the columns that have the same value in all rows, the last of the table.
    """

    manifest: RunManifest
    names: Sequence[str]
    outcomes: Iterable[tuple[RowOutcome, _Texts]]
    intervals_of: IntervalsOf | None
    run_columns: Line

    @classmethod
    def of_run(
        cls,
        folder: Path,
        manifest: RunManifest,
        *,
        with_texts: bool,
        intervals: Path | None,
        run_columns: Line,
    ) -> _RunTable:
        """Return the table of a run; the arguments are those of `export`, and the attributes."""
        columns = manifest.rubric.columns
        names = manifest.rubric.mode.column_names(columns)
        intervals_of = None
        if intervals is not None:
            intervals_of = read_intervals(intervals, [folder])
            names += [aspect + INTERVAL for aspect in columns.aspects]
        outcomes: Iterable[tuple[RowOutcome, _Texts]]
        if with_texts:
            text_names, outcomes = with_text_columns(
                folder, manifest, rows=lambda: read_row_outcomes(folder), other_columns=names
            )
            names += text_names
        else:
            outcomes = ((outcome, {}) for outcome in read_row_outcomes(folder))
        names += list(run_columns)
        return cls(manifest, names, outcomes, intervals_of=intervals_of, run_columns=run_columns)

    def lines(self) -> Iterator[Line]:
        """Yield a line for each row; all have the same columns."""
        columns = self.manifest.rubric.columns
        for outcome, texts in self.outcomes:
            values = outcome.line(columns) | texts | self._intervals(outcome) | dict(self.run_columns)
            yield {name: values.get(name) for name in self.names}

    def schema(self) -> Any:
        """Return the Arrow schema of the columns, with the columns of the run as metadata, too."""
        metadata = {}
        for name, value in self.run_columns.items():
            if value is not None:
                metadata[f"localjudge.{name}"] = value
        rubric = self.manifest.rubric
        return rubric.mode.schema(rubric.columns, self.names).with_metadata(metadata)

    def _intervals(self, outcome: RowOutcome) -> dict[str, list[float]]:
        """Return the ends of the interval of each score, by the names of their columns."""
        if self.intervals_of is None:
            return {}
        intervals = self.intervals_of(outcome.first)
        return {aspect + INTERVAL: list(ends) for aspect, ends in intervals.items()}
