"""The rows of a run as a list, a line each: id, system and scores, or the reason of a failure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localjudge.errors import UsageError
from localjudge.runs.reader import read_lines
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

    def takes(self, line: Mapping[str, Any]) -> bool:
        """Return whether the row of this line is to be listed, the limit aside."""
        is_failure = line["status"] == "failed"
        if is_failure if self.sort else self.failed and not is_failure:
            return False
        return self.system is None or self.system == _system(line)


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
        for line in read_lines(run):
            systems.add(_system(line))
            if not selection.takes(line):
                continue
            matching += 1
            if selection.sort or selection.limit is None or matching <= selection.limit:
                rows.append(_listed(line, aspects, selection.sort))
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


def _listed(line: Mapping[str, Any], aspects: Sequence[str], sort: str | None) -> ListedRow:
    if line["status"] == "failed":
        says, score = "failed: " + _flat(line["error"]), 0.0
    else:
        says = "  ".join(f"{line[aspect]:>{max(4, len(aspect))}}" for aspect in aspects)  # 1000 at most
        expected = line[f"{sort}_expected"] if sort else None
        score = line[sort] if sort and expected is None else expected or 0.0
    return ListedRow(_flat(line["id"]), _flat(_system(line)), says, score)


def _system(line: Mapping[str, Any]) -> str:
    return line["system"] or _NO_SYSTEM


def _flat(text: str) -> str:
    """Return the text on one line, as it will be printed, so that its length is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
