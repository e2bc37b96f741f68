"""One pair to read on a terminal: both responses and both orders, side by side where the terminal is wide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from localjudge.cli.shown_judgement import shortened
from localjudge.records import Judgement, Outcome
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.pair_outcome import PairOutcome, Preference
from localjudge.system.terminal import printable

if TYPE_CHECKING:
    from localjudge.runs.reread_texts import RowTexts

_SIDE_BY_SIDE = 100
"""Least width of a terminal, in characters, that shows two texts side by side."""


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
            for name, said in self.text.fields.items():
                yield _passage(name, said)
            if self.text.instruction or not self.text.fields:
                yield _passage("instruction", self.text.instruction)
            if self.text.reference is not None:
                yield _passage("reference", self.text.reference)
            first, second = self.text.responses(self.pair.orders[0].swapped)
            yield _beside([_passage(a, first), _passage(b, second or "")], wide)
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
        parts += [_passage(name.replace("_", " "), said) for name, said in order.texts.items()]
        if order.rationale_cut:
            parts.append(Styled("[a rationale was cut at its limit]"))
        return Group(*parts)


def _passage(heading: str, said: str) -> RenderableType:
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
