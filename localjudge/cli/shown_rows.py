"""The rows or the pairs of a run as a list, one line each: id, system and scores, or why it failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.pair_outcome import PairOutcome, Preference
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_outcomes, read_pairs
from localjudge.system.terminal import printable

_NO_SYSTEM = "(none)"
_LONGEST = Preference(0.0, "tie", False, ())
"""A preference whose text is the longest."""
_WIDEST = 40
"""Largest width to which an id or a system is padded, in characters; those of a pair, to twice this width."""


@dataclass(frozen=True, slots=True)
class RowSelection:
    """The selection and the order of the rows or pairs to list.

    Args:
        system: list only the rows of this system, or the pairs with it; "(none)" means rows without one.
        failed: list only the failures.
        sort: the aspect to sort by, which excludes the failures; None keeps the run's order. The key of a pair
            is the preference for its first response.
        descending: list the highest score first.
        limit: the largest number of rows to list.
    """

    system: str | None = None
    failed: bool = False
    sort: str | None = None
    descending: bool = False
    limit: int | None = None

    def takes(self, outcome: Outcome | PairOutcome) -> bool:
        """Return whether this row or pair is listed, apart from the limit."""
        is_failure = _error(outcome) is not None
        if is_failure if self.sort else self.failed and not is_failure:
            return False
        return self.system is None or self.system in _systems(outcome)


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A line of the list: `says` has the scores or the reason for the failure; `score` is the sort key."""

    id: str
    system: str
    says: str
    score: float


@dataclass(frozen=True, slots=True)
class RowList:
    """The rows or pairs to print, and the number of selected ones before the limit."""

    rubric: Rubric
    rows: tuple[ListedRow, ...]
    matching: int

    @classmethod
    def read(cls, run: Path, rubric: Rubric, selection: RowSelection) -> RowList:
        """Read the rows or pairs that are selected.

        Raises:
            UsageError: there is no such aspect or system, or failures would be sorted by a score.
            RunMismatchError: the folder is not a run directory.
        """
        columns = {column.name: column for column in rubric.score_columns}
        if selection.sort is not None and selection.sort not in columns:
            raise UsageError(f"--sort {selection.sort}: the aspects of {run} are {', '.join(columns)}")
        if selection.sort is not None and selection.failed:
            raise UsageError("--failed --sort: failures have no scores to sort by; give only one of the two")
        systems: set[str] = set()
        widths = _widths(rubric)
        rows: list[ListedRow] = []
        matching = 0
        for outcome in read_pairs(run) if rubric.compares else read_outcomes(run):
            systems.update(_systems(outcome))
            if not selection.takes(outcome):
                continue
            matching += 1
            if selection.sort or selection.limit is None or matching <= selection.limit:
                rows.append(_listed(outcome, widths, columns.get(selection.sort or "")))
        if selection.system is not None and selection.system not in systems:
            there = ", ".join(sorted(systems)) or "none"
            of = "pair with" if rubric.compares else "row of"
            raise UsageError(
                f"--system {selection.system}: {run} has no {of} this system; its systems are {there}"
            )
        if selection.sort:
            rows.sort(key=lambda row: row.score, reverse=selection.descending)
        return cls(rubric, tuple(rows[: selection.limit]), matching)

    def texts(self) -> Iterator[str]:
        """Yield a heading and a line for each row, with aligned columns."""
        columns = (f"{aspect:>{width}}" for aspect, width in _widths(self.rubric).items())
        heading = ListedRow("id", "systems" if self.rubric.compares else "system", "  ".join(columns), 0)
        lines = [heading, *self.rows]
        widest = _WIDEST * (1 + self.rubric.compares)
        ids = min(widest, max(len(row.id) for row in lines))
        systems = min(widest, max(len(row.system) for row in lines))
        for row in lines:
            yield f"{row.id:<{ids}}  {row.system:<{systems}}  {row.says}"


def _widths(rubric: Rubric) -> dict[str, int]:
    """Return the width of each aspect's column: its name, and its longest value."""
    if rubric.compares:
        return {name: max(len(name), len(_preferred(_LONGEST))) for name in rubric.aspects}
    return {
        name: max(4, len(name), *(len(shown(value)) for value in aspect.values.values()))
        for name, aspect in rubric.aspects.items()
    }


def _listed(outcome: Outcome | PairOutcome, widths: Mapping[str, int], sort: ScoreColumn | None) -> ListedRow:
    score = 0.0
    if (error := _error(outcome)) is not None:
        says = "failed: " + _flat(error)
    elif isinstance(outcome, PairOutcome):
        preferences = outcome.preferences
        says = "  ".join(f"{_preferred(each):>{widths[aspect]}}" for aspect, each in preferences.items())
        score = 0.0 if sort is None else preferences[sort.aspect].value
    elif isinstance(outcome, Judgement):
        scores = outcome.scores.items()
        says = "  ".join(f"{shown(given):>{widths[aspect]}}" for aspect, given in scores)
        if sort is not None:
            expected = sort.expected(outcome)
            score = sort.number(outcome) if expected is None else expected
    return ListedRow(_flat(outcome.id), _flat(" vs ".join(_systems(outcome))), says, score)


def _preferred(preference: Preference) -> str:
    """Return the winner, the preference for the first response, and whether both orders agree."""
    agree = "" if preference.agree is None else f" {'agree' if preference.agree else 'differ':<6}"
    return f"{preference.winner:>3} {preference.value:.3f}{agree}"


def _error(outcome: Outcome | PairOutcome) -> str | None:
    return outcome.error if isinstance(outcome, PairOutcome | Failure) else None


def _systems(outcome: Outcome | PairOutcome) -> tuple[str, ...]:
    """Return the system of a row, or both systems of a pair."""
    systems = outcome.systems if isinstance(outcome, PairOutcome) else (outcome.system,)
    return tuple(system or _NO_SYSTEM for system in systems)


def _flat(text: str) -> str:
    """Return the text as one printable line, so that its printed width is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
