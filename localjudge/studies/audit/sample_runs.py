"""The runs of a sample of rows in the folder of an audit: one input, and a run directory for each run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from localjudge.errors import UsageError
from localjudge.judge import Judge
from localjudge.records import Failure, Outcome, Row
from localjudge.rows.columns import SHAPE
from localjudge.rows.inputs import Inputs
from localjudge.rows.pairs import Pairing
from localjudge.rows.record import MAX_ROW_BYTES
from localjudge.rows.row import record_of
from localjudge.rows.shapes import COLUMNS
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.pipeline import score_run
from localjudge.runs.row_source import RowSource
from localjudge.runs.run_directory import RunDirectory
from localjudge.runs.run_files import MANIFEST, refuse_foreign
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.run_observer import RunObserver
from localjudge.runs.stop_request import NEVER, StopRequest
from localjudge.system.durable import replacing

ROWS = "rows.jsonl"
"""The input of the runs."""
SAMPLED = "sampled_row"
"""The column with the number of the sampled row or pair."""


@dataclass(frozen=True, slots=True)
class SampleRuns:
    """The runs of the rows of an audit.

    Attributes:
        out: the folder of the runs.
        inputs: the file of the rows.
        columns: the column of each field in it.
        pairing: the pairing of its rows; None if they are no pairs.
        observer: receives steps, warnings and outcomes.
        stopping: a context that is active while rows are judged; when it requests a stop, rows in flight are
            finished.
    """

    out: Path
    inputs: Inputs
    columns: Mapping[str, str]
    pairing: Pairing | None
    observer: RunObserver | None = None
    stopping: StopRequest = NEVER

    @classmethod
    def of(
        cls,
        rows: Iterable[Row],
        rubric: Rubric,
        out: Path,
        *,
        observer: RunObserver | None = None,
        stopping: StopRequest = NEVER,
    ) -> Self:
        """Write the rows as the input of the runs.

        Raises:
            UsageError: the folder or the file cannot be written.
        """
        columns = {SHAPE: COLUMNS.name}
        file = _write_rows(rows, out, rubric)
        return cls(
            out=out,
            inputs=Inputs([str(file)], columns, rubric.fields),
            columns=columns,
            pairing=Pairing.usual(rubric.fields),
            observer=observer,
            stopping=stopping,
        )

    def judge(self, judge: Judge, folder: str, rows: Sequence[Row | Failure]) -> bool:
        """Judge rows of the input in a folder of their own, and return whether each has its line."""
        source = RowSource(
            rows=rows if self.pairing is None else self.pairing.rows(rows),
            inputs=self.inputs.names,
            columns=self.columns,
            pairing=self.pairing,
            readings=self.inputs.readings,
        )
        result = score_run(judge, source, self.out / folder, observer=self.observer, stopping=self.stopping)
        return result.complete


def refuse_another(judge: Judge, out: Path, folders: Sequence[str]) -> bool:
    """Check that a folder is new, or has an audit by the same judge.

    Args:
        judge: the judge.
        out: the folder.
        folders: the names of the runs of the audit; the first one is that of the judge's own settings.

    Returns:
        Whether the folder has rows of an audit.

    Raises:
        UsageError: it contains something else, or the audit of another judge.
    """
    runs_of_audit = [out / name for name in folders]
    refuse_foreign(out)
    for folder in runs_of_audit:
        refuse_foreign(folder)
    # A start that was stopped at once leaves a folder without a manifest; the next start begins its run anew.
    begun = [folder for folder in runs_of_audit if (folder / MANIFEST).exists()]
    if not begun and not (out / ROWS).exists():
        return False
    if not _is_of_audit(out / ROWS):
        raise UsageError(
            f"`out` {out}: its {ROWS} is missing or was not written by an audit; choose another folder"
        )
    for folder in begun:
        inputs: set[str] = set()
        for start in read_manifest(folder).starts:
            inputs.update(Path(name).name for name in start.inputs)
        if inputs != {ROWS}:
            raise UsageError(
                f"`out` {folder}: has a run that does not belong to an audit; choose another folder"
            )
    if runs_of_audit[0] in begun:
        RunDirectory(runs_of_audit[0]).refuse_another(judge)
    return True


def _is_of_audit(file: Path) -> bool:
    """Return whether a file has the beginning that `_write_rows` writes."""
    try:
        with file.open("rb") as stream:
            first = json.loads(stream.readline(MAX_ROW_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and SAMPLED in first


def sampled_row(outcome: Outcome) -> int:
    """Return the number of the sampled row or pair behind a judged row."""
    return int(outcome.columns[SAMPLED])


def written_row(row: Row, rubric: Rubric) -> str:
    """Return the line of a row in the input of the runs."""
    return json.dumps(record_of(row, rubric.fields), ensure_ascii=False) + "\n"


def _write_rows(rows: Iterable[Row], out: Path, rubric: Rubric) -> Path:
    """Write the input of the runs, and return the file."""
    file = out / ROWS
    try:
        out.mkdir(parents=True, exist_ok=True)
        with replacing(file) as scratch, scratch.open("w", encoding="utf-8") as stream:
            for row in rows:
                stream.write(written_row(row, rubric))
    except OSError as error:
        raise UsageError(f"`out` {out}: {error.strerror}") from None
    return file
