"""A run directory as a Python program reads it: its outcomes, its notices, and tables of its lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.modes import ONE_ROW_PER_PROMPT
from localjudge.modes.mode import Mode
from localjudge.modes.row_outcome import RowOutcome
from localjudge.records.outcome_columns import without_objects
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.reader import is_complete, read_notices, read_outcomes, refuse_single
from localjudge.runs.reread_texts import with_text_columns
from localjudge.runs.run_manifest import read_manifest
from localjudge.runs.run_state import RunState


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run directory for programs. Iterating over it yields its outcomes, in the order of its lines.

        run = load_run("runs/monday")
        print(run.notices)
        table = run.to_pandas()

    Its notices are those of the run when it was loaded, and its outcomes are read when they are asked for. So
    after a start has continued the run, load it again: at the end of the outcomes, and in place of a table,
    there is a `RunMismatchError`.

    Attributes:
        folder: the run directory.
        rubric: the rubric that it was judged by.
        notices: the warnings that a reader needs before the scores, as every command prints them.
        complete: True if every row has its line, in the input's order.
        state: the state of the run when it was loaded.
        joined: False if each line is a row; True if the prompts of a row are joined, as in an export.
    """

    folder: Path
    rubric: Rubric
    notices: tuple[str, ...]
    complete: bool
    state: RunState
    joined: bool = False

    def __iter__(self) -> Iterator[Any]:
        """Yield the outcomes of the lines, or of the rows.

        Raises:
            RunMismatchError: after the last outcome, if a start has changed the run since it was loaded.
        """
        if self.joined:
            yield from self._rows()
        else:
            yield from read_outcomes(self.folder)
            self._refuse_change()

    @property
    def pairs(self) -> RecordedRun:
        """The pairs that have a line for every order.

        Raises:
            UsageError: the rubric of the run does not compare responses.
        """
        refuse_single(self.folder, self.rubric)
        return replace(self, joined=True)

    def to_pandas(self, with_texts: bool = False) -> Any:
        """Return a pandas DataFrame with a row for each line; `columns` has the input's other columns.

        Args:
            with_texts: include the texts of each row, read again from the inputs.

        Raises:
            UsageError: pandas is not installed, or the inputs are missing or have changed.
        """
        lines = self._lines_with_texts() if with_texts else self._lines()
        return _library("pandas").DataFrame.from_records(list(lines))

    def to_polars(self) -> Any:
        """Return a Polars DataFrame with a row for each line; `columns` is JSON text.

        Raises:
            UsageError: Polars is not installed.
        """
        lines = [without_objects(line) for line in self._lines()]
        return _library("polars").DataFrame(lines, infer_schema_length=None)

    def to_arrow(self) -> Any:
        """Return an Arrow table with a row for each line; `columns` is JSON text.

        Raises:
            UsageError: PyArrow is not installed.
        """
        lines = [without_objects(line) for line in self._lines()]
        return _library("pyarrow").Table.from_pylist(lines, self._mode.schema(self.rubric.columns))

    @property
    def _mode(self) -> Mode[Any]:
        """The mode of the rows of a table."""
        return self.rubric.mode if self.joined else ONE_ROW_PER_PROMPT

    def _rows(self) -> Iterator[RowOutcome]:
        """Yield what has a line in a table."""
        manifest = read_manifest(self.folder)
        if self.joined:
            join = manifest.join()
        else:
            join = ONE_ROW_PER_PROMPT.join(self.rubric.aspects, prompts=1)
        yield from join.all(read_outcomes(self.folder, manifest))
        self._refuse_change()

    def _refuse_change(self) -> None:
        """Check that no start has changed the run since it was loaded."""
        self.state.refuse_change("load it again with load_run")

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of a table."""
        for row in self._rows():
            yield row.line(self.rubric.columns)

    def _lines_with_texts(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of a table, each with the texts of its row."""
        manifest = read_manifest(self.folder)
        other_columns = self._mode.column_names(self.rubric.columns)
        _, rows = with_text_columns(self.folder, manifest, rows=self._rows, other_columns=other_columns)
        for row, texts in rows:
            yield row.line(self.rubric.columns) | texts


def load_run(folder: str | Path) -> RecordedRun:
    """Open a run directory for reading; a run that is continued afterwards is loaded again.

    Raises:
        RunMismatchError: the folder holds no run that this version can read, or a start changes it meanwhile.
    """
    folder = Path(folder)
    state = RunState.of(folder)
    run = RecordedRun(
        folder=folder,
        rubric=read_manifest(folder).rubric,
        notices=read_notices(folder),
        complete=is_complete(folder),
        state=state,
    )
    state.refuse_change("load it again with load_run")
    return run


def _library(name: str) -> Any:
    """Return the module of a library of tables.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed: pip install {name}") from None
