"""The rows of a run as a list, a line each: id, system and scores, or the reason of a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.records import Failure, Outcome
from localjudge.runs.reader import read_outcomes
from localjudge.system.terminal import printable

_NO_SYSTEM = "(none)"
_WIDEST = 40
"""Columns that an id or a system is padded to, at most."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Which rows of a run to list, and in which order.

    Args:
        system: only the rows of this system; "(none)" stands for rows without one.
        failed: only the failures.
        sort: the aspect to sort by, which leaves out the failures; None keeps the run's order.
        descending: the highest score first.
        limit: only the first so many rows of these.
    """

    system: str | None = None
    failed: bool = False
    sort: str | None = None
    descending: bool = False
    limit: int | None = None

    def takes(self, outcome: Outcome) -> bool:
        """Return whether this row is to be listed, the limit aside."""
        is_failure = isinstance(outcome, Failure)
        if is_failure if self.sort else self.failed and not is_failure:
            return False
        return self.system is None or self.system == _system(outcome)


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A row of the list: `says` holds its scores or the reason of its failure; `score` is the sort key."""

    id: str
    system: str
    says: str
    score: float


@dataclass(frozen=True, slots=True)
class RowList:
    """The rows to print, and how many there were before the limit."""

    aspects: tuple[str, ...]
    rows: tuple[ListedRow, ...]
    matching: int

    @classmethod
    def read(cls, run: Path, aspects: Sequence[str], selection: RowSelection) -> RowList:
        """Read the rows that are selected.

        Raises:
            UsageError: no such aspect or system, or failures are to be sorted by a score.
            RunMismatchError: the folder holds no run.
        """
        if selection.sort is not None and selection.sort not in aspects:
            raise UsageError(f"--sort {selection.sort}: the aspects of {run} are {', '.join(aspects)}")
        if selection.sort is not None and selection.failed:
            raise UsageError("--failed --sort: a failure has no scores; leave out one of the two")
        systems: set[str] = set()
        rows: list[ListedRow] = []
        matching = 0
        for outcome in read_outcomes(run):
            systems.add(_system(outcome))
            if not selection.takes(outcome):
                continue
            matching += 1
            if selection.sort or selection.limit is None or matching <= selection.limit:
                rows.append(_listed(outcome, selection.sort))
        if selection.system is not None and selection.system not in systems:
            there = ", ".join(sorted(systems)) or "none"
            raise UsageError(f"--system {selection.system}: {run} has no row of it; its systems are {there}")
        if selection.sort:
            rows.sort(key=lambda row: row.score, reverse=selection.descending)
        return cls(tuple(aspects), tuple(rows[: selection.limit]), matching)

    def texts(self) -> Iterator[str]:
        """Yield a heading, and then a line for each row; the columns are aligned."""
        heading = ListedRow("id", "system", "  ".join(f"{aspect:>4}" for aspect in self.aspects), 0)
        lines = [heading, *self.rows]
        ids = min(_WIDEST, max(len(row.id) for row in lines))
        systems = min(_WIDEST, max(len(row.system) for row in lines))
        for row in lines:
            yield f"{row.id:<{ids}}  {row.system:<{systems}}  {row.says}"


def _listed(outcome: Outcome, sort: str | None) -> ListedRow:
    if isinstance(outcome, Failure):
        says, score = "failed: " + _flat(outcome.error), 0.0
    else:
        scores = outcome.scores.items()
        says = "  ".join(f"{given:>{max(4, len(aspect))}}" for aspect, given in scores)  # 1000 at most
        score = (outcome.expected or outcome.scores)[sort] if sort else 0.0
    return ListedRow(_flat(outcome.id), _flat(_system(outcome)), says, score)


def _system(outcome: Outcome) -> str:
    return outcome.system or _NO_SYSTEM


def _flat(text: str) -> str:
    """Return the text on one line, as it will be printed, so that its length is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
