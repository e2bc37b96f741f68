"""How much the labels of pairs depend on the order of the responses: counts, exact tests, and warning signs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import exp, lgamma, log

LEVEL = 0.05
"""Level of the test of the orders' agreement: a judge that chance alone can explain has a sign."""
PLACE_LEVEL = 0.01
"""Level of the test of the place: it is lower, because nearly every judge prefers a place a little."""


@dataclass(slots=True)
class OrderEffect:
    """Counts of the labels of pairs in one aspect: whether the responses decide, or the place in the prompt.

    A pair is without a tie if both orders name a response. Then they name the same response, or the same place
    twice.

    Attributes:
        pairs: number of pairs by what their orders name, sorted: 1 is the response that was shown first, -1 the
            other one, 0 a tie. A pair in one order has one of them.
        first_wins: the sum, over the pairs, of the mean probability that the response shown first is better.
    """

    pairs: Counter[tuple[int, ...]] = field(default_factory=Counter)
    first_wins: float = 0.0

    def add(self, places: Iterable[int], shown_first: Sequence[float]) -> None:
        """Count a pair, by the places of its `Preference` and its probabilities of the response shown first."""
        self.pairs[tuple(sorted(places))] += 1
        self.first_wins += sum(shown_first) / len(shown_first)

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

    def signs(self, aspect: str) -> Iterator[str]:
        """Yield the signs of an aspect whose orders do not agree beyond chance, or whose place decides."""
        pairs, decided, same = self.in_both_orders, self.decided, self.same_response
        if not decided:
            yield f"order: in {aspect}, none of {pairs} pairs has a label for a response in both orders"
        elif (p := self.agreement_p()) > LEVEL:
            yield (
                f"order: nothing shows that the judge compares the responses in {aspect}: both orders name "
                f"the same response in {same} of {decided} pairs without a tie, and "
                f"{self.same_by_chance:.1f} are expected if only the place decides ({_p(p)}); "
                "judge more pairs, or use a larger model"
            )
        if (p := self.place_p()) < PLACE_LEVEL:
            first, second = self.by_place
            wins, comparisons = self.shown_first
            yield (
                f"place: in {aspect}, {max(first, second)} of {first + second} pairs whose orders differ "
                f"favour the {'first' if first > second else 'second'} place ({_p(p)}); the response shown "
                f"first wins {wins} of {comparisons} comparisons without a tie"
            )

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


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= 0.001 else "p < 0.001"


def pairs_in_words(pairs: int, orders: int) -> str:
    """Return the number of pairs and the orders in which each is judged, in words."""
    return f"{pairs} pair{'s' * (pairs != 1)} in {'both orders' if orders > 1 else 'one order'}"
