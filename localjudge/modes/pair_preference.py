"""The judge's preference between two responses in one aspect, from the answers to both orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from localjudge.records import Judgement
from localjudge.rubrics.aspect import Aspect

Winner = Literal["a", "b", "tie"]
WINNERS = ("a", "tie", "b", "undecided")
"""The possible verdicts on a pair."""
RESULTS: Mapping[str, float] = {"a": 1.0, "tie": 0.5, "b": 0.0}
"""The number of each result of a pair: 1 if the input's first response is better, 1/2 for a tie."""
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
        places: for each order, what its label names: 1 the response that was shown first, -1 the other one, 0 a
            tie.
        shown_first: for each order, the probability that the response that was shown first is better.
        odds: the odds of each order.
        mean: their mean.
    """

    value: float
    winner: Winner | None
    places: tuple[int, ...]
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
            places=tuple(places),
            shown_first=tuple(
                round(1 - each.preference if order.swapped else each.preference, 6)
                for order, each in zip(orders, odds, strict=True)
            ),
            odds=tuple(odds),
            mean=mean,
        )

    def numbers(self, reverse: Sequence[bool], has_tie: bool) -> Iterator[tuple[str, float]]:
        """Yield the kind and the number of each number that statistics compute with, see `PairVerdicts`.

        Args:
            reverse: for each order, whether it is the reverse of the input's.
            has_tie: whether the aspect has a label for a tie.
        """
        averaged = RESULTS[self.mean.winner]
        yield "preference", self.value
        yield "result", averaged if self.winner is None or not has_tie else RESULTS[self.winner]
        yield "averaged", averaged
        if self.same_response is not None:
            yield "same response", float(self.same_response)
        orders = zip(reverse, self.odds, self.places, self.shown_first, strict=True)
        for number, (is_reverse, odds, place, shown_first) in enumerate(orders, 1):
            yield f"preference {number}", odds.preference
            yield f"result {number}", (1 - place if is_reverse else 1 + place) / 2
            yield "shown first in reverse" if is_reverse else "shown first", shown_first

    @property
    def agree(self) -> bool | None:
        """Whether both orders say the same: the same response, or a tie twice; None if one order was judged."""
        return sum(self.places) == 0 if len(self.places) > 1 else None

    @property
    def same_response(self) -> bool | None:
        """Whether both orders name the same response; None if an order says a tie or was not judged."""
        return self.agree if len(self.places) > 1 and all(self.places) else None

    @property
    def orders_say(self) -> str:
        """What both orders say, for people; empty if one order was judged."""
        if self.agree is None:
            return ""
        if self.same_response is None:
            return "both orders say a tie" if self.agree else "one order says a tie"
        return "both orders name the same response" if self.agree else "each order names another response"
