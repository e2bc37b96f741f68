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
# The kinds of the numbers of a pair in a column (`Preference.numbers`), beside its value.
RESULT = "result"
"""The number of the pair's result."""
SAME_RESPONSE = "same response"
"""1 if both orders name the same response, 0 if each names another."""
ORDER_PREFERENCES = ("preference 1", "preference 2")
"""The probability that the input's first response is better, in each order that was judged."""
ORDER_RESULTS = ("result 1", "result 2")
"""The number of the result that the label of each judged order names."""
SHOWN_IN_ORDER = "shown first"
SHOWN_IN_REVERSE = "shown first in reverse"
"""The probability that the response shown first is better, in the input's order and in its reverse."""
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
        shown_first = 0.0
        tie = 0.0
        shown_second = 0.0
        for share, number in zip(shares, numbers.values(), strict=True):
            if number > 0:
                shown_first += share
            elif number < 0:
                shown_second += share
            else:
                tie += share
        if judgement.swapped:
            return cls(a=shown_second, tie=tie, b=shown_first)
        return cls(a=shown_first, tie=tie, b=shown_second)

    @classmethod
    def mean(cls, orders: Sequence[Self]) -> Self:
        """Return the mean of the odds of several orders."""
        return cls(
            a=sum(odds.a for odds in orders) / len(orders),
            tie=sum(odds.tie for odds in orders) / len(orders),
            b=sum(odds.b for odds in orders) / len(orders),
        )

    @property
    def preference(self) -> float:
        """The probability that the first is better; a tie counts half."""
        return self.a + self.tie / 2

    @property
    def winner(self) -> Winner:
        """The most probable result; a tie if two are equally probable."""
        if self.a - max(self.tie, self.b) > _EQUAL:
            return "a"
        if self.b - max(self.tie, self.a) > _EQUAL:
            return "b"
        return "tie"

    def probability(self, winner: Winner) -> float:
        """Return the probability of a result."""
        if winner == "a":
            return self.a
        if winner == "b":
            return self.b
        return self.tie


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
        odds = [Odds.from_judgement(order, name, aspect) for order in orders]
        mean = Odds.mean(odds)
        return cls(
            value=round(mean.preference, 6),
            winner=_common_winner(orders, name, aspect),
            named_places=tuple(_named_place(order, name, aspect) for order in orders),
            shown_first=tuple(
                _shown_first(of_order, order.swapped) for order, of_order in zip(orders, odds, strict=True)
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
        if has_tie and self.winner is not None:
            yield RESULT, RESULTS[self.winner]
        else:
            yield RESULT, RESULTS[self.mean.winner]
        if self.same_response is not None:
            yield SAME_RESPONSE, float(self.same_response)
        for index, is_reverse in enumerate(reverse):
            named = self.named_places[index]
            named_response = -named if is_reverse else named
            yield ORDER_PREFERENCES[index], self.odds[index].preference
            yield ORDER_RESULTS[index], (1 + named_response) / 2
            yield (SHOWN_IN_REVERSE if is_reverse else SHOWN_IN_ORDER), self.shown_first[index]

    @property
    def agree(self) -> bool | None:
        """Whether both orders say the same: the same response, or a tie twice; None if one order was judged."""
        if len(self.named_places) < 2:
            return None
        # Of the same response, one order names the first place (1) and the other one the second (-1).
        return sum(self.named_places) == 0

    @property
    def same_response(self) -> bool | None:
        """Whether both orders name the same response; None if an order says a tie or was not judged."""
        if 0 in self.named_places:
            return None
        return self.agree

    @property
    def orders_say(self) -> str:
        """What both orders say, for people; empty if one order was judged."""
        if self.agree is None:
            return ""
        if self.same_response is None:
            return "both orders say a tie" if self.agree else "one order says a tie"
        return "both orders name the same response" if self.agree else "each order names another response"


def _named_place(order: Judgement, name: str, aspect: Aspect) -> int:
    """Return 1 if the label of an order names the response that was shown first, -1 the other one, 0 a tie."""
    assert aspect.numbers is not None  # a preference has an order
    number = aspect.numbers[order.scores[name]]
    if number > 0:
        return 1
    if number < 0:
        return -1
    return 0


def _common_winner(orders: Sequence[Judgement], name: str, aspect: Aspect) -> Winner | None:
    """Return the result that the labels of all orders name.

    If they name different ones, it is a tie, or None if the aspect has no label for a tie.
    """
    named_responses = set()
    for order in orders:
        place = _named_place(order, name, aspect)
        named_responses.add(-place if order.swapped else place)
    if len(named_responses) == 1:
        return _WINNERS[named_responses.pop()]
    if aspect.has_tie:
        return "tie"
    return None


def _shown_first(odds: Odds, is_reverse: bool) -> float:
    """Return the probability that the response that was shown first is better."""
    if is_reverse:
        return round(1 - odds.preference, 6)
    return round(odds.preference, 6)


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
        first = sum(places.count(1) * count for places, count in self.pairs.items())
        second = sum(places.count(-1) * count for places, count in self.pairs.items())
        return first, first + second

    @property
    def by_place(self) -> tuple[int, int]:
        """Number of pairs in which the first place is named more often than the second, and less often."""
        more = 0
        less = 0
        for places, count in self.pairs.items():
            if len(places) < 2:
                continue
            if sum(places) > 0:
                more += count
            elif sum(places) < 0:
                less += count
        return more, less

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
            first_twice = (first - same) // 2
            second_twice = (second - same) // 2
            return same * log(2) - lgamma(same + 1) - lgamma(first_twice + 1) - lgamma(second_twice + 1)

        possible = range(first % 2, min(first, second) + 1, 2)
        return _tail([(same, weight(same)) for same in possible], self.same_response)

    def place_p(self) -> float:
        """Return the p-value of the place: the exact two-sided binomial test of `by_place`."""
        first, second = self.by_place
        pairs = first + second
        weights = [(wins, -lgamma(wins + 1) - lgamma(pairs - wins + 1)) for wins in range(pairs + 1)]
        return min(1.0, 2 * _tail(weights, max(first, second)))

    def signs(self, aspect: str) -> Iterator[str]:
        """Yield the signs of an aspect whose orders do not agree beyond chance, or whose place decides."""
        if self.decided == 0:
            yield f"order: in {aspect}, none of {self.in_both_orders:,} pairs has a winner in both orders"
        elif self.agreement_p() > LEVEL:
            yield (
                f"order: nothing shows that the judge compares the responses in {aspect}: both orders name "
                f"the same winner in {self.same_response:,} of the {self.decided:,} pairs where each names "
                f"one, and {self.same_by_chance:.1f} are expected if only the place decides "
                f"({p_in_words(self.agreement_p())}); judge more pairs, or use a larger model"
            )
        if self.place_p() < PLACE_LEVEL:
            first, second = self.by_place
            favoured = "first" if first > second else "second"
            yield (
                f"place: in {aspect}, of {first + second:,} pairs whose orders differ, {max(first, second):,} "
                f"favour the response that is shown {favoured} ({p_in_words(self.place_p())})"
            )

    @property
    def _wins_of_decided(self) -> tuple[int, int]:
        """Number of wins of each place in the pairs without a tie."""
        first = 2 * self.pairs[1, 1] + self.same_response
        second = 2 * self.pairs[-1, -1] + self.same_response
        return first, second


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
    how = "both orders" if orders > 1 else "one order"
    return f"{counted(pairs, 'pair')} in {how}"
