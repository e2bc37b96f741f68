"""The rows of a run as a list, one line each: id, system and scores, or the reason for a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.records import Failure, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_outcomes
from localjudge.system.terminal import printable

_NO_SYSTEM = "(none)"
_WIDEST = 40
"""Largest width to which an id or a system is padded, in characters."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The selection and the order of the rows to list.

    Args:
        system: list only the rows of this system; "(none)" means rows without one.
        failed: list only the failures.
        sort: the aspect to sort by, which excludes the failures; None keeps the run's order.
        descending: list the highest score first.
        limit: the largest number of rows to list.
    """

    system: str | None = None
    failed: bool = False
    sort: str | None = None
    descending: bool = False
    limit: int | None = None

    def takes(self, outcome: Outcome) -> bool:
        """Return whether this row is listed, apart from the limit."""
        is_failure = isinstance(outcome, Failure)
        if is_failure if self.sort else self.failed and not is_failure:
            return False
        return self.system is None or self.system == _system(outcome)


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of the list: `says` has its scores or the reason for its failure; `score` is the sort key."""

    id: str
    system: str
    says: str
    score: float


@dataclass(frozen=True, slots=True)
class RowList:
    """The rows to print, and the number of selected rows before the limit."""

    rubric: Rubric
    rows: tuple[ListedRow, ...]
    matching: int

    @classmethod
    def read(cls, run: Path, rubric: Rubric, selection: RowSelection) -> RowList:
        """Read the rows that are selected.

        Raises:
            UsageError: there is no such aspect or system, or failures would be sorted by a score.
            RunMismatchError: the folder is not a run directory.
        """
        columns = {column.name: column for column in rubric.score_columns}
        if selection.sort is not None and selection.sort not in columns:
            raise UsageError(f"--sort {selection.sort}: the aspects of {run} are {', '.join(columns)}")
        sort = None if selection.sort is None else columns[selection.sort]
        if selection.sort is not None and selection.failed:
            raise UsageError("--failed --sort: failures have no scores to sort by; give only one of the two")
        systems: set[str] = set()
        widths = _widths(rubric)
        rows: list[ListedRow] = []
        matching = 0
        for outcome in read_outcomes(run):
            systems.add(_system(outcome))
            if not selection.takes(outcome):
                continue
            matching += 1
            if selection.sort or selection.limit is None or matching <= selection.limit:
                rows.append(_listed(outcome, widths, sort))
        if selection.system is not None and selection.system not in systems:
            there = ", ".join(sorted(systems)) or "none"
            raise UsageError(
                f"--system {selection.system}: {run} has no row of this system; its systems are {there}"
            )
        if selection.sort:
            rows.sort(key=lambda row: row.score, reverse=selection.descending)
        return cls(rubric, tuple(rows[: selection.limit]), matching)

    def texts(self) -> Iterator[str]:
        """Yield a heading and a line for each row, with aligned columns."""
        columns = (f"{aspect:>{width}}" for aspect, width in _widths(self.rubric).items())
        heading = ListedRow("id", "system", "  ".join(columns), 0)
        lines = [heading, *self.rows]
        ids = min(_WIDEST, max(len(row.id) for row in lines))
        systems = min(_WIDEST, max(len(row.system) for row in lines))
        for row in lines:
            yield f"{row.id:<{ids}}  {row.system:<{systems}}  {row.says}"


def _widths(rubric: Rubric) -> dict[str, int]:
    """Return the width of each aspect's column: its name, and its longest value."""
    return {
        name: max(4, len(name), *(len(shown(value)) for value in aspect.values.values()))
        for name, aspect in rubric.aspects.items()
    }


def _listed(outcome: Outcome, widths: Mapping[str, int], sort: ScoreColumn | None) -> ListedRow:
    if isinstance(outcome, Failure):
        says, score = "failed: " + _flat(outcome.error), 0.0
    else:
        scores = outcome.scores.items()
        says = "  ".join(f"{shown(given):>{widths[aspect]}}" for aspect, given in scores)
        score = 0.0
        if sort is not None:
            expected = sort.expected(outcome)
            score = sort.number(outcome) if expected is None else expected
    return ListedRow(_flat(outcome.id), _flat(_system(outcome)), says, score)


def _system(outcome: Outcome) -> str:
    return outcome.system or _NO_SYSTEM


def _flat(text: str) -> str:
    """Return the text as one printable line, so that its printed width is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
