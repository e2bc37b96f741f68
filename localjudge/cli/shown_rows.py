"""The rows or the pairs of a run as a list, one line each: id, system and scores, or why it failed.

Where a row's texts can still be read, its line ends with the beginnings of the response and the instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path

from localjudge.errors import UsageError
from localjudge.records import Judgement
from localjudge.rubrics.answer import shown
from localjudge.rubrics.checklist_outcome import SCORE, ChecklistOutcome
from localjudge.rubrics.mode import CHECKLIST, RowOutcome
from localjudge.rubrics.pair_outcome import Odds, PairOutcome, Preference
from localjudge.rubrics.rubric import Rubric
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_row_outcomes
from localjudge.runs.reread_texts import RowTexts, RowTextStore
from localjudge.statistics import two_decimals
from localjudge.system.terminal import printable

_NO_SYSTEM = "(none)"
_SNIPPET = 40
"""Largest number of characters of a text in a line."""
_SHORTEST = 20
"""Least number of characters of a text in a line; on a narrower terminal the texts have a line of their own."""
_LONGEST = Preference(0.0, "tie", (1, 1), (), (), Odds(0.0, 1.0, 0.0))
"""A preference whose text is the longest."""
_MARKS = 16
"""Largest number of criteria that are shown as marks."""
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

    def takes(self, outcome: RowOutcome) -> bool:
        """Return whether this row or pair is listed, apart from the limit."""
        is_failure = outcome.error is not None
        if is_failure if self.sort else self.failed and not is_failure:
            return False
        return self.system is None or self.system in _systems(outcome)


@dataclass(frozen=True, slots=True)
class ListedRow:
    """A line of the list: `says` has the scores or the reason for the failure; `score` is the sort key.

    `digest` is that of the row's texts; of a pair, that of its first order, `swapped` or not.
    """

    id: str
    system: str
    says: str
    score: float = 0.0
    digest: str | None = None
    swapped: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class RowList:
    """The rows or pairs to print, and the number of selected ones before the limit.

    `key` is the column of expected scores that the rows are sorted by; None if another column or nothing is.
    """

    rubric: Rubric
    rows: tuple[ListedRow, ...]
    matching: int
    key: str | None = None

    @classmethod
    def read(cls, run: Path, rubric: Rubric, selection: RowSelection) -> RowList:
        """Read the rows or pairs that are selected.

        Raises:
            UsageError: there is no such aspect or system, or failures would be sorted by a score.
            RunMismatchError: the folder is not a run directory.
        """
        columns = {column.name: column for column in rubric.row_columns}
        if selection.sort is not None and selection.sort not in columns:
            raise UsageError(f"--sort {selection.sort}: the aspects of {run} are {', '.join(columns)}")
        if selection.sort is not None and selection.failed:
            raise UsageError("--failed --sort: failures have no scores to sort by; give only one of the two")
        systems: set[str] = set()
        widths = _widths(rubric)
        rows: list[ListedRow] = []
        matching = 0
        by_expected = False
        for outcome in read_row_outcomes(run):
            systems.update(_systems(outcome))
            if not selection.takes(outcome):
                continue
            matching += 1
            if selection.sort or selection.limit is None or matching <= selection.limit:
                sort = columns.get(selection.sort or "")
                rows.append(_listed(outcome, widths, sort))
                by_expected |= bool(
                    sort and isinstance(outcome, Judgement) and sort.expected(outcome) is not None
                )
        if selection.system is not None and selection.system not in systems:
            there = ", ".join(sorted(systems)) or "none"
            raise UsageError(
                f"--system {selection.system}: {run} has no {rubric.mode.item} of this system; its systems are "
                f"{there}"
            )
        if selection.sort:
            rows.sort(key=lambda row: row.score, reverse=selection.descending)
        key = f"{selection.sort}_expected" if by_expected else None
        return cls(rubric, tuple(rows[: selection.limit]), matching, key)

    def lines(self, texts: RowTextStore, width: int | None) -> Iterator[str]:
        """Yield a heading and a line for each row, with aligned columns.

        Args:
            texts: the texts of the rows, as far as they can still be read.
            width: the terminal's width in characters; None without a terminal.
        """
        columns = "  ".join(f"{aspect:>{size}}" for aspect, size in _widths(self.rubric).items())
        key = f"{self.key}  " if self.key else ""
        responses = len(self.rubric.mode.responses)
        system = "system" + "s" * (responses > 1)
        widest = _WIDEST * responses
        ids = min(widest, max(len(text) for text in ("id", *(row.id for row in self.rows))))
        systems = min(widest, max(len(text) for text in (system, *(row.system for row in self.rows))))
        heading = f"{'id':<{ids}}  {system:<{systems}}  {key}{columns}"
        found = [texts.get(row.digest) for row in self.rows]
        names = (*self.rubric.mode.responses, "instruction") if any(found) else ()
        share = _SNIPPET if width is None else (width - len(heading)) // max(1, len(names)) - 2
        fits = share >= _SHORTEST
        yield "  ".join([heading, *(f"{name:<{min(share, _SNIPPET)}}" for name in names if fits)]).rstrip()
        for row, text in zip(self.rows, found, strict=True):
            says = row.says if row.failed or not key else f"{row.score:>{len(key) - 2}.2f}  {row.says}"
            line = f"{row.id:<{ids}}  {row.system:<{systems}}  {says}"
            if text is None or row.failed:
                yield line
            elif fits:
                yield "  ".join([line, *_snippets(text, row.swapped, names, min(share, _SNIPPET))]).rstrip()
            else:
                yield line
                each = ((width or 80) - 4) // len(names) - 2
                yield "    " + "  ".join(_snippets(text, row.swapped, names, each)).rstrip()


def _snippets(text: RowTexts, swapped: bool, names: Sequence[str], width: int) -> Iterator[str]:
    """Yield the beginning of each text, padded to this width."""
    responses = text.responses(swapped)[: len(names) - 1]
    instruction = text.instruction or next(iter(text.fields.values()), "")
    for said in (*responses, instruction):
        flat = _flat(" ".join((said or "").split())) or "(empty)"
        yield f"{flat if len(flat) <= width else flat[: width - 1] + '…':<{width}}"


def _widths(rubric: Rubric) -> dict[str, int]:
    """Return the width of each aspect's column: its name, and its longest value."""
    if rubric.mode is CHECKLIST:
        return {SCORE: len("-0.00"), "criteria": _MARKS}
    longest = {
        name: max(4, *(len(shown(value)) for value in aspect.values.values()))
        if aspect.preference is None
        else len(_preferred(_LONGEST))
        for name, aspect in rubric.aspects.items()
    }
    return {name: max(len(name), width) for name, width in longest.items()}


def _listed(outcome: RowOutcome, widths: Mapping[str, int], sort: ScoreColumn | None) -> ListedRow:
    score = 0.0
    if outcome.error is not None:
        says = "failed: " + _flat(outcome.error)
    elif isinstance(outcome, PairOutcome):
        preferences = outcome.preferences
        says = "  ".join(f"{_preferred(each):>{widths[aspect]}}" for aspect, each in preferences.items())
        score = 0.0 if sort is None else preferences[sort.aspect].value
    elif isinstance(outcome, ChecklistOutcome):
        known = outcome.points.score
        says = f"{two_decimals(known):>5}  {_marks(outcome):>{_MARKS}}"
        score = -inf if known is None else known
    elif isinstance(outcome, Judgement):
        scores = outcome.scores.items()
        says = "  ".join(f"{shown(given):>{widths[aspect]}}" for aspect, given in scores)
        if sort is not None:
            expected = sort.expected(outcome)
            score = sort.number(outcome) if expected is None else expected
    return ListedRow(
        id=_flat(outcome.id),
        system=_flat(" vs ".join(_systems(outcome))),
        says=says,
        score=score,
        digest=outcome.first.digest,
        swapped=outcome.first.swapped,
        failed=outcome.error is not None,
    )


def _marks(outcome: ChecklistOutcome) -> str:
    """Return the mark of each criterion; of many, their number."""
    found = "".join(each.mark for each in outcome.results)
    return found if len(found) <= _MARKS else f"{found.count('✓')} of {len(found)} met"


def _preferred(preference: Preference) -> str:
    """Return the verdict, the preference for the first response, and whether both orders say the same."""
    agree = "" if preference.agree is None else f" {'agree' if preference.agree else 'differ':<6}"
    return f"{preference.winner or '?':>3} {preference.value:.3f}{agree}"


def _systems(outcome: RowOutcome) -> tuple[str, ...]:
    """Return the system of a row, or both systems of a pair."""
    return tuple(system or _NO_SYSTEM for system in outcome.systems)


def _flat(text: str) -> str:
    """Return the text as one printable line, so that its printed width is known."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
