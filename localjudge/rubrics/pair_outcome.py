"""The outcome of a pair: the judgements of both orders joined, with the judge's preference for each aspect.

A judge tends to prefer a place, often the first. So the two responses of a pair are judged in both orders. The
verdict is what both orders write, as in MT-Bench (arXiv 2306.05685): a response that both name wins. The
preference is a number, the mean of the probabilities of both orders (arXiv 2503.03064).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from localjudge.records import Failure, Judgement, Outcome
from localjudge.records.outcome_columns import (
    AGREE,
    MASS,
    ORDERS,
    PAIR_DIGESTS,
    PAIR_SYSTEMS,
    PREFERENCE,
    AnswerColumns,
)
from localjudge.rubrics.aspect import Aspect

Winner = Literal["a", "b", "tie"]
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


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """A pair that was judged, or a pair that could not be judged in every order.

    Attributes:
        orders: the outcome of each order: the input's own, and the reverse if it was judged.
        preferences: the preference in each aspect; empty if an order failed.
    """

    orders: tuple[Outcome, ...]
    preferences: Mapping[str, Preference]

    @classmethod
    def from_orders(cls, orders: Iterable[Outcome], aspects: Mapping[str, Aspect]) -> Self:
        """Join the outcomes of a pair's orders.

        Args:
            orders: the outcome of each order.
            aspects: the aspects of the rubric.
        """
        orders = tuple(sorted(orders, key=lambda each: each.swapped))
        judged = [each for each in orders if isinstance(each, Judgement)]
        if len(judged) < len(orders):
            return cls(orders, {})
        return cls(orders, {name: _preference(judged, name, aspect) for name, aspect in aspects.items()})

    @property
    def first(self) -> Outcome:
        """The outcome of the first order that was judged."""
        return self.orders[0]

    @property
    def of_prompts(self) -> tuple[Outcome, ...]:
        """The outcome of each prompt of the pair, which is one of its orders."""
        return self.orders

    @property
    def id(self) -> str:
        return self.first.id

    @property
    def systems(self) -> tuple[str | None, str | None]:
        """The systems that wrote the input's first and second response."""
        first = self.first
        return (first.opponent, first.system) if first.swapped else (first.system, first.opponent)

    @property
    def response_digests(self) -> tuple[str | None, str | None]:
        """The digests of the instruction with the input's first response, and with its second."""
        first = self.first
        digests = first.response_digest, first.opponent_digest
        return digests[::-1] if first.swapped else digests

    @property
    def error(self) -> str | None:
        """Why the pair could not be judged; None if it was."""
        errors = [each.error for each in self.orders if isinstance(each, Failure)]
        return "; ".join(dict.fromkeys(errors)) or None

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the pair as one flat JSON object; judged and failed pairs have the same columns.

        The columns of the input's own order end with `_ab`, and those of the reverse with `_ba`; there, too, A
        is the response that was shown first.

        Args:
            columns: the columns of its rubric.
        """
        first = self.first
        line: dict[str, Any] = {
            "id": self.id,
            **dict(zip(PAIR_SYSTEMS, self.systems, strict=True)),
            "status": "failed" if self.error else "judged",
            "error": self.error,
        }
        for aspect in columns.aspects:
            known = self.preferences.get(aspect)
            line[aspect] = known and known.winner
            line[aspect + PREFERENCE] = known and known.value
            line[aspect + AGREE] = known and known.agree
            judged_orders = [each for each in self.orders if isinstance(each, Judgement)]
            masses = [each.mass[aspect] for each in judged_orders if aspect in each.mass]
            line[aspect + MASS] = sum(masses) / len(masses) if known and masses else None
        for swapped, suffix in zip((False, True), ORDERS, strict=True):
            own = next((each for each in self.orders if each.swapped is swapped), None)
            judged = own if isinstance(own, Judgement) else None
            line |= {aspect + suffix: judged and judged.scores[aspect] for aspect in columns.aspects}
            line |= {text + suffix: judged and judged.texts[text] for text in columns.texts}
            line["key" + suffix] = own and own.key
        line |= {"group": first.group, **dict(zip(PAIR_DIGESTS, self.response_digests, strict=True))}
        return line | {"source": first.source, "columns": first.columns}


def _preference(orders: list[Judgement], name: str, aspect: Aspect) -> Preference:
    odds = [Odds.from_judgement(each, name, aspect) for each in orders]
    mean = Odds.mean(odds)
    numbers = aspect.numbers
    assert numbers is not None  # a preference has an order
    places = [(number > 0) - (number < 0) for number in (numbers[each.scores[name]] for each in orders)]
    named = {-place if each.swapped else place for each, place in zip(orders, places, strict=True)}
    undecided: Winner | None = "tie" if aspect.has_tie else None
    winner = _WINNERS[named.pop()] if len(named) == 1 else undecided
    return Preference(
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
