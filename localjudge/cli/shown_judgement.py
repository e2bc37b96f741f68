"""The text of one judgement for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from shutil import get_terminal_size
from textwrap import fill, indent
from typing import TYPE_CHECKING

from localjudge.records import Failure, Outcome
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import Aspect
from localjudge.system.quantities import bars
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.runs.reread_texts import RowTexts

_LONGEST = 4000
"""Largest number of characters of a text that is printed."""
_MOST_BARS = 20


def judgement_text(
    outcome: Outcome,
    aspects: Mapping[str, Aspect],
    text: RowTexts | None = None,
    intervals: Mapping[str, tuple[float, float]] | None = None,
) -> str:
    """Return an outcome as text for a terminal.

    Args:
        outcome: a judgement or a failure.
        aspects: the aspects of its rubric.
        text: the texts of the row, if they were found.
        intervals: the interval of an aspect's label.
    """
    system = f" · {outcome.system}" if outcome.system else ""
    place = f" · {outcome.source}" if outcome.source != outcome.id else ""
    parts = [f"{outcome.id}{system}{place}", *(row_passages(text) if text else ())]
    if isinstance(outcome, Failure):
        if outcome.failed_answer is not None:
            parts.append(_passage("failed answer", outcome.failed_answer))
        return "\n".join([*parts, f"failed: {outcome.error}", ""])
    parts += [_passage(name.replace("_", " "), said) for name, said in outcome.texts.items()]
    if outcome.rationale_cut:
        parts.append("[a rationale was cut at its limit]\n")
    if cut := outcome.candidate_cut:
        parts.append(f"[the judge did not see {cut:,} characters of the candidate or its conversation]\n")
    widest = max(len(shown(score)) for score in outcome.scores.values())
    longest = max(14, *map(len, outcome.scores))
    for aspect, score in outcome.scores.items():
        row = f"  {aspect:<{longest}} {shown(score):>{max(3, widest)}}"
        probabilities = outcome.probabilities.get(aspect)
        if aspect in outcome.expected:
            row += f"   expected {outcome.expected[aspect]:.2f}"
        if intervals and aspect in intervals:
            row += "   [{:g}, {:g}]".format(*intervals[aspect])
        if probabilities and aspects[aspect].numbers is None:
            labels = map(shown, aspects[aspect].values.values())
            row += "   " + " · ".join(
                f"{label} {p:.2f}" for label, p in zip(labels, probabilities, strict=True)
            )
        elif probabilities and len(probabilities) <= _MOST_BARS:
            row += f"   {bars(probabilities)}"
        share = dict(zip(aspects[aspect].values.values(), probabilities or (), strict=False))
        if share and max(share.values()) > share.get(score, 1):
            row += f"   likeliest {shown(max(share, key=share.__getitem__))}"
        if aspect in outcome.mass:
            row += f"   mass {outcome.mass[aspect]:.2f}" + " *" * (not outcome.likeliest[aspect])
        parts.append(row)
    if not all(outcome.likeliest.values()):
        parts.append("  * the model's likeliest token began no value")
    return "\n".join([*parts, ""])


def row_passages(text: RowTexts) -> Iterator[str]:
    """Yield the texts of a row of one response, each below its name."""
    for name, said in text.fields.items():
        yield _passage(name, said)
    if text.instruction or not text.fields:
        yield _passage("instruction", text.instruction)
    if text.reference is not None:
        yield _passage("reference", text.reference)
    yield _passage("candidate", text.candidate)


def _passage(heading: str, said: str) -> str:
    """Return a heading and a text wrapped to the terminal's width; a very long text is cut."""
    width = min(100, get_terminal_size().columns) - 2
    lines = printable(shortened(said)).splitlines() or ["(empty)"]
    wrapped = [fill(line, width=width, break_on_hyphens=False) for line in lines]
    return indent("\n".join(wrapped), "  ").join([f"{heading}\n", "\n"])


def shortened(said: str) -> str:
    """Return a text to print; a very long one is cut, and says so."""
    more = f" … {len(said) - _LONGEST:,} more characters" if len(said) > _LONGEST else ""
    return said[:_LONGEST] + more
