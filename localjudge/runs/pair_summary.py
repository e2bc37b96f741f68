"""Win rates of the systems of a run of pairs, and how much they depend on the order of the responses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from localjudge.pair_outcome import PairJoin, PairOutcome
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.aspect import Aspect
from localjudge.runs.order_effect import OrderEffect
from localjudge.system.quantities import bars, counted

_FIRST = "first response"
"""Name of the first responses of pairs whose systems are not known."""
_CLASSES = 10
"""Number of intervals of the preferences in the chart, from 0 to 1."""


@dataclass(slots=True)
class _Side:
    """The pairs of one system."""

    judged: int = 0
    failed: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, aspect: str, preference: float) -> None:
        self.sums[aspect] += preference
        self.counts[aspect, min(_CLASSES - 1, int(preference * _CLASSES))] += 1


class PairSummary:
    """Counts and win rates, from the outcomes of the rows of a run of pairs.

    A system's win rate is the mean of the preferences for its responses, each averaged over both orders; a tie
    counts half. A pair of two responses of one system does not enter it.

    Args:
        aspects: the aspects of the rubric.
        orders: the number of orders of each pair, 1 or 2.
        averaged: as for `PairOutcome.of`.

    Attributes:
        judged: number of pairs that were judged in every order.
        failed: number of pairs of which an order failed.
        reasons: number of failed pairs for each reason.
    """

    def __init__(self, aspects: Mapping[str, Aspect], orders: int, averaged: bool = False) -> None:
        self._join, self._orders = PairJoin(aspects, orders, averaged), orders
        self._systems: dict[str, _Side] = {}
        self._first = _Side()
        self._aspects = {name: OrderEffect() for name in aspects}
        self._winners: Counter[tuple[str, str | None]] = Counter()
        self._cut = self._truncated = 0
        self.judged = self.failed = 0
        self.reasons: Counter[str] = Counter()

    def add(self, outcome: Outcome) -> None:
        """Count a pair if this is the outcome of its last missing order."""
        pair = self._join.add(outcome)
        if pair is None:
            return
        a, b = pair.systems
        sides = [(self._systems.setdefault(name, _Side()), name == a) for name in (a, b) if name and a != b]
        for order in pair.orders:
            if isinstance(order, Judgement):
                self._cut += order.rationale_cut
                self._truncated += order.candidate_cut > 0
        if pair.error is not None:
            self._count_failure(pair)
            for side, _ in sides:
                side.failed += 1
            return
        self.judged += 1
        for aspect, preference in pair.preferences.items():
            self._aspects[aspect].add(preference.places)
            self._winners[aspect, preference.winner] += 1
            self._first.add(aspect, preference.value)
            for side, is_first in sides:
                side.add(aspect, preference.value if is_first else 1 - preference.value)
        for side in (self._first, *(side for side, _ in sides)):
            side.judged += 1

    def _count_failure(self, pair: PairOutcome) -> None:
        self.failed += 1
        self.reasons.update({order.reason for order in pair.orders if isinstance(order, Failure)})

    @property
    def counted(self) -> str:
        """The numbers of judged and failed pairs, in words."""
        return f"{pairs_in_words(self.judged, self._orders)} judged, {self.failed} failed"

    def as_dict(self) -> dict[str, Any]:
        """Return the counts of pairs and the effect of the order for `summary.json`."""
        return {
            "orders": self._orders,
            "judged": self.judged,
            "failed": self.failed,
            "failures": dict(self.reasons.most_common()),
            "rationales_cut": self._cut,
            "candidates_cut": self._truncated,
            "aspects": {
                name: {
                    "first_response": _share(self._first.sums[name], self.judged),
                    "ties": _share(self._winners[name, "tie"], self.judged),
                    "undecided": self._winners[name, None],
                    "decided_pairs": effect.decided,
                    "same_response": effect.same_response,
                    "tie_twice": effect.tie_twice,
                    "decided_comparisons": effect.shown_first[1],
                    "shown_first_wins": effect.shown_first[0],
                }
                for name, effect in self._aspects.items()
            },
        }

    def systems(self) -> list[dict[str, Any]]:
        """Return the pairs and win rates of each system for `summary.json`; of no pairs, a win rate is None."""
        return [
            {
                "system": name,
                "judged": side.judged,
                "failed": side.failed,
                "win_rate": {aspect: _share(side.sums[aspect], side.judged) for aspect in self._aspects},
            }
            for name, side in sorted(self._systems.items())
        ]

    def table(self) -> RenderableType:
        """Return the win rates as a terminal table, one system in each row, and a line on each aspect."""
        lines = [self._line(name, effect) for name, effect in self._aspects.items()]
        if not self._systems:
            return Group(*lines)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("win rate of", overflow="fold", min_width=11)
        counts = ("pairs", "failed") if self.failed else ("pairs",)
        for text in (*self._aspects, *counts):
            table.add_column(text, justify="right", no_wrap=True)
        for name, side in sorted(self._systems.items()):
            rates = [_decimals(_share(side.sums[aspect], side.judged)) for aspect in self._aspects]
            pairs = (side.judged, side.failed) if self.failed else (side.judged,)
            table.add_row(name, *rates, *map(str, pairs))
        return Group(table, *lines)

    def _line(self, name: str, effect: OrderEffect) -> str:
        """Return what one aspect says of the pairs and of the order of the responses."""
        ties, undecided = self._winners[name, "tie"], self._winners[name, None]
        parts = [counted(ties, "tie")] * bool(ties or not undecided)
        parts += [f"{undecided} undecided"] * bool(undecided)
        if self._orders > 1:
            same = f"both orders name the same response in {effect.same_response} of "
            parts.insert(0, same + counted(effect.decided, "decided pair"))
        wins, comparisons = effect.shown_first
        parts.append(f"the response shown first wins {wins} of {counted(comparisons, 'decided comparison')}")
        if not self._systems:
            own = _decimals(_share(self._first.sums[name], self.judged))
            parts.append(f"the input's first response wins {own}")
        head = f"{name:<{max(map(len, self._aspects))}}  " if len(self._aspects) > 1 else ""
        return head + " · ".join(parts)

    def chart(self) -> Table:
        """Return a terminal table of the frequencies of the preferences, one system in each row."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("preference 0 to 1", overflow="fold", min_width=17)
        for aspect in self._aspects:
            table.add_column(aspect, justify="right", no_wrap=True)
        for name, side in sorted(self._systems.items()) or [(_FIRST, self._first)]:
            cells = [
                bars([side.counts[aspect, rank] / side.judged for rank in range(_CLASSES)])
                if side.judged
                else "–"  # noqa: RUF001
                for aspect in self._aspects
            ]
            table.add_row(name, *cells)
        return table


def pairs_in_words(pairs: int, orders: int) -> str:
    """Return the number of pairs and the orders in which each is judged, in words."""
    return f"{pairs} pair{'s' * (pairs != 1)} in {'both orders' if orders > 1 else 'one order'}"


def _share(total: float, count: int) -> float | None:
    return round(total / count, 4) if count else None


def _decimals(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"  # noqa: RUF001
