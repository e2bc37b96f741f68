"""One judgement, one row with criteria or one pair, to read on a terminal.

A wide terminal shows both orders of a pair side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shutil import get_terminal_size
from textwrap import fill, indent
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from localjudge.records import Failure, Judgement, Outcome
from localjudge.report.shown_values import points_text
from localjudge.rubrics.answer import shown
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.checklist_outcome import ChecklistOutcome, CriterionResult
from localjudge.rubrics.pair_outcome import PairOutcome, Preference
from localjudge.system.quantities import bars
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.runs.reread_texts import RowTexts

_LONGEST = 4000
"""Largest number of characters of a text that is printed."""
_MOST_BARS = 20
_SIDE_BY_SIDE = 100
"""Least width of a terminal, in characters, that shows two texts side by side."""


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
    parts = [*_head(outcome, text)]
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


def checklist_text(outcome: ChecklistOutcome, text: RowTexts | None = None) -> str:
    """Return the outcome of a row with criteria as text for a terminal.

    Args:
        outcome: the outcome.
        text: the texts of the row, if they were found.
    """
    parts = [*_head(outcome.first, text)]
    for each in outcome.results:
        parts += _criterion(each)
    if outcome.results:
        parts.append(f"  score {points_text(outcome.points)}")
        parts += [f"  {tag} {points_text(points)}" for tag, points in outcome.by_tag.items()]
    else:
        parts.append(f"failed: {outcome.error}")
    return "\n".join([*parts, ""])


def _criterion(result: CriterionResult) -> Iterator[str]:
    """Yield a criterion with its mark and its points, and below it the judge's answer."""
    asked, judged, below = result.criterion, result.outcome, " " * 10
    width = min(100, get_terminal_size().columns)

    def wrapped(said: str, first: str = below) -> str:
        return fill(said, width=width, initial_indent=first, subsequent_indent=below, break_on_hyphens=False)

    said = f"{asked.name}: {asked.text}" if asked.name else asked.text
    yield wrapped(" ".join(printable(said).split()), f"  {result.mark} {asked.points:>5g} ")
    if isinstance(judged, Failure):
        yield f"{below}failed: {printable(judged.error)}"
        return
    share = "" if result.probability is None else f"   probability {result.probability:.2f}"
    mass = "".join(f"   mass {mass:.2f}" for mass in judged.mass.values())
    yield "".join([below, *map(shown, judged.scores.values()), share, mass])
    yield from (wrapped(printable(text)) for text in judged.texts.values())


def _head(outcome: Outcome, text: RowTexts | None) -> Iterator[str]:
    """Yield the id, the system and the place of a row of one response, and its texts if they were found."""
    system = f" · {outcome.system}" if outcome.system else ""
    place = f" · {outcome.source}" if outcome.source != outcome.id else ""
    yield f"{outcome.id}{system}{place}"
    if text:
        yield from (_passage(name, said) for name, said in (*_given(text), ("candidate", text.candidate)))


def _given(text: RowTexts) -> Iterator[tuple[str, str]]:
    """Yield the heading and the text of what was answered."""
    yield from text.fields.items()
    if text.instruction or not text.fields:
        yield "instruction", text.instruction
    if text.reference is not None:
        yield "reference", text.reference


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


@dataclass(frozen=True, slots=True)
class ShownPair:
    """A pair as a renderable of rich.

    The responses are a and b in the input's order. The judge calls the response that it read first A, so the
    heading of each order says which one that is.

    Attributes:
        pair: the outcome of the pair.
        aspects: the aspects of its rubric.
        text: the texts of the pair, if they were found.
    """

    pair: PairOutcome
    aspects: Mapping[str, Aspect]
    text: RowTexts | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        wide = options.max_width >= _SIDE_BY_SIDE
        a, b = self._names
        source = self.pair.orders[0].source
        same = source == self.pair.id.replace(" vs ", " and ")  # a row without an id has its place as one
        yield Styled(self.pair.id if same else f"{self.pair.id} · {source}")
        if self.text:
            yield from (_block(name, said) for name, said in _given(self.text))
            first, second = self.text.responses(self.pair.orders[0].swapped)
            yield _beside([_block(a, first), _block(b, second or "")], wide)
        yield _beside([self._order(order) for order in self.pair.orders], wide)
        for name, preference in self.pair.preferences.items():
            yield Styled(f"{name}: {self._verdict(preference)}", style="bold")
        yield ""

    @property
    def _names(self) -> tuple[str, str]:
        a, b = self.pair.systems
        return f"a ({a})" if a else "a", f"b ({b})" if b else "b"

    def _verdict(self, preference: Preference) -> str:
        a, b = self._names
        won = {"a": f"{a} wins", "b": f"{b} wins", "tie": "a tie", None: "undecided"}[preference.winner]
        say = f" · {preference.orders_say}" * bool(preference.orders_say)
        return f"{won} · preference for a {preference.value:.3f}{say}"

    def _order(self, order: Outcome) -> RenderableType:
        """Return the judge's answer to one order."""
        names = self._names[::-1] if order.swapped else self._names
        parts: list[RenderableType] = [Styled(f"shown: A = {names[0]}, B = {names[1]}", style="bold")]
        if not isinstance(order, Judgement):
            return Group(*parts, Padding(Styled(f"failed: {order.error}"), (0, 0, 1, 2)))
        for name, aspect in self.aspects.items():
            shares = order.probabilities.get(name)
            labels = map(str, aspect.values.values())
            known = shares and " · ".join(
                f"{label} {share:.2f}" for label, share in zip(labels, shares, strict=True)
            )
            mass = f"   mass {order.mass[name]:.2f}" if name in order.mass else ""
            parts.append(
                Padding(Styled(f"{name}  {order.scores[name]}" + f"   ({known})" * bool(known) + mass), (0, 2))
            )
        parts += [_block(name.replace("_", " "), said) for name, said in order.texts.items()]
        if order.rationale_cut:
            parts.append(Styled("[a rationale was cut at its limit]"))
        return Group(*parts)


def _block(heading: str, said: str) -> RenderableType:
    text = Styled("\n".join(printable(shortened(said)).splitlines()) or "(empty)")
    return Group(Styled(heading, style="bold"), Padding(text, (0, 0, 1, 2)))


def _beside(parts: list[RenderableType], wide: bool) -> RenderableType:
    """Return the parts side by side on a wide terminal, and one below the other on a narrow one."""
    if not wide or len(parts) == 1:
        return Group(*parts)
    grid = Table.grid(expand=True, padding=(0, 3, 0, 0), pad_edge=False)
    for _ in parts:
        grid.add_column(ratio=1, overflow="fold")
    grid.add_row(*parts)
    return grid
