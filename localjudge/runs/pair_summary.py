"""Win rates of the systems of a run of pairs, and how much they depend on the order of the responses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, lgamma, log
from typing import Any

from localjudge.records import Failure, Judgement
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.system.quantities import counted

CLASSES = 10
"""Number of intervals of the preferences that are counted, from 0 to 1."""


@dataclass(slots=True)
class Side:
    """The pairs of one system."""

    judged: int = 0
    failed: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)

    def add(self, aspect: str, preference: float) -> None:
        self.sums[aspect] += preference
        self.counts[aspect, min(CLASSES - 1, int(preference * CLASSES))] += 1

    def win_rate(self, aspect: str) -> float | None:
        """The mean preference; None without pairs."""
        return _share(self.sums[aspect], self.judged)


class PairSummary:
    """Counts and win rates, from the outcomes of the pairs of a run.

    A system's win rate is the mean of the preferences for its responses, each averaged over both orders; a tie
    counts half. A pair of two responses of one system does not enter it.

    Args:
        aspects: the aspects of the rubric.
        orders: the number of orders of each pair, 1 or 2.

    Attributes:
        judged: number of pairs that were judged in every order.
        failed: number of pairs of which an order failed.
        reasons: number of failed pairs for each reason.
        aspects: the effect of the order, for each aspect.
        sides: the pairs of each system.
        first: the pairs, from the side of the input's first response.
    """

    def __init__(self, aspects: Mapping[str, Aspect], orders: int) -> None:
        self._orders = orders
        self.sides: dict[str, Side] = {}
        self.first = Side()
        self.aspects = {name: OrderEffect() for name in aspects}
        self._winners: Counter[tuple[str, str | None]] = Counter()
        self._cut = self._truncated = 0
        self.judged = self.failed = 0
        self.reasons: Counter[str] = Counter()

    def add(self, pair: PairOutcome) -> None:
        """Count a pair."""
        a, b = pair.systems
        sides = [(self.sides.setdefault(name, Side()), name == a) for name in (a, b) if name and a != b]
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
            self.aspects[aspect].add(preference.places)
            self._winners[aspect, preference.winner] += 1
            self.first.add(aspect, preference.value)
            for side, is_first in sides:
                side.add(aspect, preference.value if is_first else 1 - preference.value)
        for side in (self.first, *(side for side, _ in sides)):
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
                    "first_response": self.first.win_rate(name),
                    "ties": _share(self._winners[name, "tie"], self.judged),
                    "undecided": self._winners[name, None],
                    "decided_pairs": effect.decided,
                    "same_response": effect.same_response,
                    "tie_twice": effect.tie_twice,
                    "decided_comparisons": effect.shown_first[1],
                    "shown_first_wins": effect.shown_first[0],
                }
                for name, effect in self.aspects.items()
            },
        }

    def systems(self) -> list[dict[str, Any]]:
        """Return the pairs and win rates of each system for `summary.json`; of no pairs, a win rate is None."""
        return [
            {
                "system": name,
                "judged": side.judged,
                "failed": side.failed,
                "win_rate": {aspect: side.win_rate(aspect) for aspect in self.aspects},
            }
            for name, side in sorted(self.sides.items())
        ]

    def line(self, name: str) -> str:
        """Return a line with the verdicts in this aspect and the effect of the responses' order on them."""
        effect = self.aspects[name]
        ties, undecided = self._winners[name, "tie"], self._winners[name, None]
        parts = [counted(ties, "tie")] * bool(ties or not undecided)
        parts += [f"{undecided} undecided"] * bool(undecided)
        if self._orders > 1:
            same = f"both orders name the same response in {effect.same_response} of "
            parts.insert(0, same + f"{counted(effect.decided, 'pair')} without a tie")
        wins, comparisons = effect.shown_first
        parts.append(
            f"the response shown first wins {wins} of {counted(comparisons, 'comparison')} without a tie"
        )
        if not self.sides:
            own = "–" if not self.judged else f"{self.first.win_rate(name):.2f}"  # noqa: RUF001
            parts.append(f"the input's first response wins {own}")
        head = f"{name:<{max(map(len, self.aspects))}}  " if len(self.aspects) > 1 else ""
        return head + " · ".join(parts)


def pairs_in_words(pairs: int, orders: int) -> str:
    """Return the number of pairs and the orders in which each is judged, in words."""
    return f"{pairs} pair{'s' * (pairs != 1)} in {'both orders' if orders > 1 else 'one order'}"


def _share(total: float, count: int) -> float | None:
    return round(total / count, 4) if count else None


@dataclass(slots=True)
class OrderEffect:
    """Counts of the labels of pairs in one aspect: whether the responses decide, or the place in the prompt.

    A pair is without a tie if both orders name a response. Then they name the same response, or the same place
    twice.

    Attributes:
        pairs: number of pairs by what their orders name, sorted: 1 is the response that was shown first, -1 the
            other one, 0 a tie. A pair in one order has one of them.
    """

    pairs: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def add(self, places: Iterable[int]) -> None:
        """Count a pair, by the places of its `Preference`."""
        self.pairs[tuple(sorted(places))] += 1

    @property
    def same_response(self) -> int:
        """Number of pairs whose orders name the same response."""
        return self.pairs[-1, 1]

    @property
    def decided(self) -> int:
        """Number of pairs without a tie."""
        return self.same_response + self.pairs[1, 1] + self.pairs[-1, -1]

    @property
    def tie_twice(self) -> int:
        """Number of pairs whose orders both name a tie."""
        return self.pairs[0, 0]

    @property
    def in_both_orders(self) -> int:
        """Number of pairs that were judged in both orders."""
        return sum(count for places, count in self.pairs.items() if len(places) > 1)

    @property
    def shown_first(self) -> tuple[int, int]:
        """Number of comparisons without a tie that the first place wins, and of all without a tie.

        Each order of a pair is one comparison.
        """
        first, second = (sum(places.count(one) * n for places, n in self.pairs.items()) for one in (1, -1))
        return first, first + second

    @property
    def by_place(self) -> tuple[int, int]:
        """Number of pairs in which the first place is named more often than the second, and less often."""
        both = [(sum(places), count) for places, count in self.pairs.items() if len(places) > 1]
        return sum(n for named, n in both if named > 0), sum(n for named, n in both if named < 0)

    @property
    def same_by_chance(self) -> float:
        """Expected number of pairs whose orders name the same response, if only the place decides."""
        first, second = self._wins_of_decided
        return first * second / max(first + second - 1, 1)

    def agreement_p(self) -> float:
        """Return the p-value of the orders' agreement: how often chance gives as many equal responses or more.

        It is the exact conditional test of Hardy and Weinberg's proportions (Wigginton et al. 2005,
        doi:10.1086/429864): given how often each place wins in the pairs without a tie, all ways to distribute
        these wins over the pairs are equally probable, for verdicts that ignore the responses.
        """
        first, second = self._wins_of_decided

        def weight(same: int) -> float:
            twice = (first - same) // 2, (second - same) // 2
            return same * log(2) - lgamma(same + 1) - lgamma(twice[0] + 1) - lgamma(twice[1] + 1)

        possible = range(first % 2, min(first, second) + 1, 2)
        return _tail([(same, weight(same)) for same in possible], self.same_response)

    def place_p(self) -> float:
        """Return the p-value of the place: the exact two-sided binomial test of `by_place`."""
        first, second = self.by_place
        all_pairs = first + second
        ways = [(k, -lgamma(k + 1) - lgamma(all_pairs - k + 1)) for k in range(all_pairs + 1)]
        return min(1.0, 2 * _tail(ways, max(first, second)))

    @property
    def _wins_of_decided(self) -> tuple[int, int]:
        """Number of wins of each place in the pairs without a tie."""
        return (2 * self.pairs[1, 1] + self.same_response, 2 * self.pairs[-1, -1] + self.same_response)


def _tail(weights: list[tuple[int, float]], least: int) -> float:
    """Return the probability of `least` or more.

    Args:
        weights: each number with the logarithm of its weight.
        least: a number.
    """
    most = max(weight for _, weight in weights)
    total = sum(exp(weight - most) for _, weight in weights)
    return sum(exp(weight - most) for number, weight in weights if number >= least) / total
