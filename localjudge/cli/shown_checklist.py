"""One row with criteria to read on a terminal: each criterion with its mark, its points and its probability."""

from __future__ import annotations

from collections.abc import Iterator
from shutil import get_terminal_size
from textwrap import fill
from typing import TYPE_CHECKING

from localjudge.analysis.statistics import UNDEFINED_SIGN, two_decimals
from localjudge.cli.shown_outcome import row_passages
from localjudge.records import Judgement
from localjudge.records.outcome_columns import AnswerColumns
from localjudge.rubrics.answer import shown
from localjudge.rubrics.checklist_outcome import ChecklistOutcome, CriterionResult, Points
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.runs.reread_texts import RowTexts

_NEXT = " " * 10


def checklist_text(outcome: ChecklistOutcome, columns: AnswerColumns, text: RowTexts | None = None) -> str:
    """Return the outcome of a row with criteria as text for a terminal.

    Args:
        outcome: the outcome.
        columns: the columns of its rubric.
        text: the texts of the row, if they were found.
    """
    first = outcome.first
    system = f" · {first.system}" if first.system else ""
    place = f" · {first.source}" if first.source != outcome.id else ""
    parts = [f"{outcome.id}{system}{place}", *(row_passages(text) if text else ())]
    parts += [line for each in outcome.results for line in _criterion(each)]
    if not outcome.results:
        return "\n".join([*parts, f"failed: {outcome.error}", ""])
    parts.append(f"  score {points_text(outcome.points)}")
    parts += [f"  {tag} {points_text(points)}" for tag, points in outcome.by_tag.items()]
    return "\n".join([*parts, ""])


def points_text(points: Points) -> str:
    """Return a score in words, or why there is none."""
    if points.low is None:
        return f"{UNDEFINED_SIGN} (no criterion has positive points)"
    if points.score is None:
        judged = f"{points.judged} of {points.criteria} criteria were judged"
        return f"{UNDEFINED_SIGN} ({judged}: it could be {points.low:.2f} to {points.high:.2f})"
    expected = "" if points.expected is None else f"   expected {two_decimals(points.expected)}"
    return f"{two_decimals(points.score)}{expected}"


def _criterion(result: CriterionResult) -> Iterator[str]:
    asked, name = result.criterion, f"{result.criterion.name}: " if result.criterion.name else ""
    said = " ".join(printable(name + asked.text).split())
    width = min(100, get_terminal_size().columns)
    head = f"  {result.mark} {asked.points:>5g} "
    yield fill(said, width=width, initial_indent=head, subsequent_indent=_NEXT, break_on_hyphens=False)
    if isinstance(result.outcome, Judgement):
        share = "" if result.probability is None else f"   probability {result.probability:.2f}"
        mass = "" if not result.outcome.mass else f"   mass {next(iter(result.outcome.mass.values())):.2f}"
        value = shown(result.value if result.value is not None else "")
        yield f"{_NEXT}{value}{share}{mass}"
        for text in result.outcome.texts.values():
            yield fill(printable(text), width=width, initial_indent=_NEXT, subsequent_indent=_NEXT)
    else:
        yield f"{_NEXT}failed: {printable(result.outcome.error or '')}"
