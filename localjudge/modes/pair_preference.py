"""The judge's preference between two responses in one aspect, from the answers to both orders, and how much the
labels of many pairs depend on the order: counts, exact tests, and warning signs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, lgamma, log
from typing import Literal, Self

from localjudge.records import Judgement
from localjudge.rubrics.aspect import Aspect
from localjudge.system.quantities import counted, p_in_words

Winner = Literal["a", "b", "tie"]
WINNERS = ("a", "tie", "b", "undecided")
"""The possible verdicts on a pair."""
RESULTS: Mapping[str, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
"""The number of each result of a pair: 1 if the input's first response is better, 1/2 for a tie."""
RESULT, SAME_RESPONSE = "result", "same response"
"""The kinds of the numbers of a pair in a column (`Preference.numbers`), beside its value."""
ORDER_PREFERENCES, ORDER_RESULTS = ("preference 1", "preference 2"), ("result 1", "result 2")
"""Those of each order that was judged."""
SHOWN_FIRST = ("shown first", "shown first in reverse")
"""Those of the input's order, and of its reverse."""
_WINNERS: Mapping[int, Winner] = {1: "a", 0: "tie", -1: "b"}
_EQUAL = 1e-6
"""Largest difference of two probabilities that counts as none."""


@dataclass(frozen=True, slots=True)
class Odds:
    """The probabilities that the input's first response is better, that neither is, and that the second is."""

    a: float
    tie: float
    b: float

    @classmethod
    def from_judgement(cls, judgement: Judgement, name: str, aspect: Aspect) -> Self:
        """Return the odds of one order; without probabilities, the judgement's label has all of them."""
        numbers = aspect.numbers
        assert numbers is not None  # a preference has an order
        shares = judgement.probabilities.get(name)
        if shares is None:
            shares = [float(label == judgement.scores[name]) for label in numbers]
        first = tie = second = 0.0
        for share, step in zip(shares, numbers.values(), strict=True):
            first += share if step > 0 else 0
            tie += share if step == 0 else 0
            second += share if step < 0 else 0
        return cls(second, tie, first) if judgement.swapped else cls(first, tie, second)

    @classmethod
    def mean(cls, orders: Sequence[Self]) -> Self:
        """Return the mean of the odds of several orders."""
        sides = zip(*((each.a, each.tie, each.b) for each in orders), strict=True)
        return cls(*(sum(shares) / len(orders) for shares in sides))

    @property
    def preference(self) -> float:
        """The probability that the first is better; a tie counts half."""
        return self.a + self.tie / 2

    @property
    def winner(self) -> Winner:
        """The most probable result; a tie if two are equally probable."""
        most = max(self.a, self.tie, self.b)
        sides: tuple[tuple[Winner, float], ...] = ("a", self.a), ("tie", self.tie), ("b", self.b)
        found = [name for name, share in sides if most - share <= _EQUAL]
        return found[0] if len(found) == 1 else "tie"


@dataclass(frozen=True, slots=True)
class Preference:
    """The judge's preference between two responses in one aspect.

    Attributes:
        value: the probability that the input's first response is better, averaged over the orders that were
            judged; a tie counts half.
        winner: the verdict: what the labels of all orders say. If the labels of two orders differ, it is a tie,
            or None (undecided) if the aspect has no label for a tie.
        named_places: for each order, what its label names: 1 the response that was shown first, -1 the other
            one, 0 a tie.
        shown_first: for each order, the probability that the response that was shown first is better.
        odds: the odds of each order.
        mean: their mean.
    """

    value: float
    winner: Winner | None
    named_places: tuple[int, ...]
    shown_first: tuple[float, ...]
    odds: tuple[Odds, ...]
    mean: Odds

    @classmethod
    def from_orders(cls, orders: Sequence[Judgement], name: str, aspect: Aspect) -> Self:
        """Return the preference of the judgements of a pair's orders.

        Args:
            orders: the judgement of each order.
            name: the name of the aspect.
            aspect: the aspect.
        """
        odds = [Odds.from_judgement(each, name, aspect) for each in orders]
        mean = Odds.mean(odds)
        numbers = aspect.numbers
        assert numbers is not None  # a preference has an order
        places = [(number > 0) - (number < 0) for number in (numbers[each.scores[name]] for each in orders)]
        named = {-place if each.swapped else place for each, place in zip(orders, places, strict=True)}
        undecided: Winner | None = "tie" if aspect.has_tie else None
        winner = _WINNERS[named.pop()] if len(named) == 1 else undecided
        return cls(
            value=round(mean.preference, 6),
            winner=winner,
            named_places=tuple(places),
            shown_first=tuple(
                round(1 - each.preference if order.swapped else each.preference, 6)
                for order, each in zip(orders, odds, strict=True)
            ),
            odds=tuple(odds),
            mean=mean,
        )

    def numbers(self, reverse: Sequence[bool], has_tie: bool) -> Iterator[tuple[str, float]]:
        """Yield the kind and the number of what statistics compute with beside the value, see `PairVerdicts`.

        Args:
            reverse: for each order, whether it is the reverse of the input's.
            has_tie: whether the aspect has a label for a tie.
        """
        averaged = RESULTS[self.mean.winner]
        yield RESULT, averaged if self.winner is None or not has_tie else RESULTS[self.winner]
        if self.same_response is not None:
            yield SAME_RESPONSE, float(self.same_response)
        orders = zip(reverse, self.odds, self.named_places, self.shown_first, strict=True)
        for number, (is_reverse, odds, place, shown_first) in enumerate(orders):
            yield ORDER_PREFERENCES[number], odds.preference
            yield ORDER_RESULTS[number], (1 - place if is_reverse else 1 + place) / 2
            yield SHOWN_FIRST[is_reverse], shown_first

    @property
    def agree(self) -> bool | None:
        """Whether both orders say the same: the same response, or a tie twice; None if one order was judged."""
        return sum(self.named_places) == 0 if len(self.named_places) > 1 else None

    @property
    def same_response(self) -> bool | None:
        """Whether both orders name the same response; None if an order says a tie or was not judged."""
        return self.agree if len(self.named_places) > 1 and all(self.named_places) else None

    @property
    def orders_say(self) -> str:
        """What both orders say, for people; empty if one order was judged."""
        if self.agree is None:
            return ""
        if self.same_response is None:
            return "both orders say a tie" if self.agree else "one order says a tie"
        return "both orders name the same response" if self.agree else "each order names another response"


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
    """

    pairs: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def add(self, places: Iterable[int]) -> None:
        """Count a pair, by the `named_places` of its `Preference`."""
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
            yield f"order: in {aspect}, none of {pairs:,} pairs has a winner in both orders"
        elif (p := self.agreement_p()) > LEVEL:
            yield (
                f"order: nothing shows that the judge compares the responses in {aspect}: both orders name "
                f"the same winner in {same:,} of the {decided:,} pairs where each names one, and "
                f"{self.same_by_chance:.1f} are expected if only the place decides ({p_in_words(p)}); "
                "judge more pairs, or use a larger model"
            )
        if (p := self.place_p()) < PLACE_LEVEL:
            first, second = self.by_place
            yield (
                f"place: in {aspect}, of {first + second:,} pairs whose orders differ, {max(first, second):,} "
                f"favour the response that is shown {'first' if first > second else 'second'} ({p_in_words(p)})"
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


def pairs_in_words(pairs: int, orders: int) -> str:
    """Return the number of pairs and the orders in which each is judged, in words."""
    return f"{counted(pairs, 'pair')} in {'both orders' if orders > 1 else 'one order'}"
