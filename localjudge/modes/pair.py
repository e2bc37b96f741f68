"""Two responses to an instruction, compared in both orders (pairwise).

A judge tends to prefer a place, often the first. So the two responses of a pair are judged in both orders. The
verdict is what both orders write, as in MT-Bench (arXiv 2306.05685): a response that both name wins. The
preference is a number, the mean of the probabilities of both orders (arXiv 2503.03064).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Self

from localjudge.modes.mode import MeanTable, Mode, RowDetails, SystemCounts
from localjudge.modes.pair_preference import RESULTS, WINNERS, OrderEffect, Preference, pairs_in_words
from localjudge.modes.row_outcome import VALUE, Join, ListedAnswer, Numbers, RowOutcome, Side
from localjudge.records import Failure, Judgement, Outcome
from localjudge.records.outcome_columns import (
    AGREE,
    LIKELIEST,
    MASS,
    ORDER_COLUMNS,
    ORDERS,
    PAIR_DIGESTS,
    PAIR_LENGTHS,
    PAIR_SYSTEMS,
    PREFERENCE,
    PROBABILITIES,
    AnswerColumns,
)
from localjudge.rows.columns import PAIR
from localjudge.rubrics.answer import Value
from localjudge.rubrics.aspect import Aspect
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.system.quantities import counted

_OF_ORDER = {PROBABILITIES: "probabilities", MASS: "mass", LIKELIEST: "likeliest"}
"""The columns of an aspect that a line has for each order, and the field of the order's judgement."""
_OF_ANSWER = ("rationale_cut", "candidate_cut")
"""The columns of an answer that a line has for each order."""


@dataclass(frozen=True, slots=True)
class PairOutcome(RowOutcome):
    """A pair that was judged, or a pair that could not be judged in every order.

    The prompts are the orders: the input's own, and the reverse if it was judged.

    Attributes:
        preferences: the preference in each aspect; empty if an order failed.
    """

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
        known = aspects if len(judged) == len(orders) else {}
        of_aspects = {name: Preference.from_orders(judged, name, each) for name, each in known.items()}
        return cls(orders, aspects, of_aspects)

    @property
    def systems(self) -> tuple[str | None, ...]:
        first = self.first
        return (first.opponent, first.system) if first.swapped else (first.system, first.opponent)

    @property
    def response_digests(self) -> tuple[str | None, ...]:
        first = self.first
        digests = first.response_digest, first.opponent_digest
        return digests[::-1] if first.swapped else digests

    @property
    def response_lengths(self) -> tuple[int | None, ...]:
        """The characters of each response, in the input's order."""
        first = self.first
        lengths = first.characters, first.opponent_characters
        return lengths[::-1] if first.swapped else lengths

    @property
    def response_names(self) -> tuple[str, ...]:
        return tuple(
            f"{side} ({system})" if system else side for side, system in zip("ab", self.systems, strict=True)
        )

    @property
    def verdicts(self) -> Mapping[str, Value | None]:
        return {name: known.winner for name, known in self.preferences.items()}

    def decision(self, aspect: str, within: int) -> tuple[float, float]:
        """Return the result that both orders name, a number of `RESULTS`, and its mean probability."""
        known = self.preferences.get(aspect)
        if known is None or known.winner is None:
            return nan, nan
        return RESULTS[known.winner], getattr(known.mean, known.winner)

    def preference(self, aspect: str) -> Preference | None:
        return self.preferences.get(aspect)

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        reverse = [order.swapped for order in self.prompts]
        for name, known in self.preferences.items():
            yield VALUE, name, known.value
            for kind, number in known.numbers(reverse, self.aspects[name].has_tie):
                yield kind, name, number

    @property
    def values(self) -> Numbers:
        return {name: known.value for name, known in self.preferences.items()}

    @property
    def sides(self) -> Sequence[Side]:
        """The preference for each system; nothing of two responses of one system."""
        (a, b), first = self.systems, self.values
        if a == b:
            return []
        sides = Side(a, first, {}), Side(b, {name: 1 - value for name, value in first.items()}, {})
        return [side for side in sides if side.system]

    def cells(self) -> Mapping[str, str]:
        """Return the verdict, the preference for the first response, and whether both orders say the same."""
        agree = {None: "", True: " agree ", False: " differ"}
        return {
            name: f"{known.winner or '?':>3} {known.value:.3f}{agree[known.agree]}"
            for name, known in self.preferences.items()
        }

    def heading(self, prompt: Outcome) -> str:
        names = self.response_names[::-1] if prompt.swapped else self.response_names
        return f"shown: A = {names[0]}, B = {names[1]}"

    def result_lines(self) -> Iterator[str]:
        a, b = self.response_names
        says = {"a": f"{a} wins", "b": f"{b} wins", "tie": "a tie", None: "undecided"}
        for name, known in self.preferences.items():
            orders = f" · {known.orders_say}" * bool(known.orders_say)
            yield f"{name}: {says[known.winner]} · probability that a is better {known.value:.3f}{orders}"

    def list_answers(self) -> Sequence[ListedAnswer]:
        if not self.preferences:
            return [ListedAnswer() for _ in self.aspects]
        return [
            ListedAnswer(
                WINNERS.index(known.winner or "undecided"),
                known.value,
                getattr(known.mean, known.winner) if known.winner else nan,
                nan if known.agree is None else float(known.agree),
            )
            for known in self.preferences.values()
        ]

    @property
    def overall(self) -> float:
        """The mean of the preferences, weighted as the aspects are."""
        weights = {name: aspect.weight for name, aspect in self.aspects.items()}
        total = sum(known.value * weights[name] for name, known in self.preferences.items())
        return total / sum(weights.values()) if self.preferences else nan

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
            masses = [each.mass[aspect] for each in self.judged if aspect in each.mass]
            line[aspect + MASS] = sum(masses) / len(masses) if known and masses else None
        for swapped, suffix in zip((False, True), ORDERS, strict=True):
            own = next((each for each in self.prompts if each.swapped is swapped), None)
            judged = own if isinstance(own, Judgement) else None
            line |= {aspect + suffix: judged and judged.scores[aspect] for aspect in columns.aspects}
            for aspect in columns.aspects:
                for column, field in _OF_ORDER.items():
                    line[aspect + column + suffix] = judged and getattr(judged, field).get(aspect)
            line |= {text + suffix: judged and judged.texts[text] for text in columns.texts}
            line |= {name + suffix: judged and getattr(judged, name) for name in _OF_ANSWER}
            line["key" + suffix] = own and own.key
            line["digest" + suffix] = own and own.digest
        line |= {"group": first.group, **dict(zip(PAIR_DIGESTS, self.response_digests, strict=True))}
        line |= dict(zip(PAIR_LENGTHS, self.response_lengths, strict=True))
        return line | {"source": first.source, "columns": first.columns}


class PairDetails(RowDetails[PairOutcome]):
    """How much the verdicts on pairs depend on the order of the responses, and how often there is no winner.

    Attributes:
        aspects: the effect of the order in each aspect.
        first: the pairs, from the side of the input's first response.
        names_systems: whether a pair has responses of two systems.
    """

    def __init__(self, aspects: Mapping[str, Aspect]) -> None:
        self.aspects = {name: OrderEffect() for name in aspects}
        self.first = SystemCounts()
        self.names_systems = False
        self._winners: Counter[tuple[str, str | None]] = Counter()

    def add(self, row: PairOutcome) -> None:
        self.names_systems |= bool(row.sides)
        self.first.add(row, Side(None, row.values, {}))
        for name, known in row.preferences.items():
            self.aspects[name].add(known.named_places)
            self._winners[name, known.winner] += 1

    @property
    def tells_values_apart(self) -> bool:
        return any(effect.in_both_orders for effect in self.aspects.values())

    def counted(self, judged: int, failed: int, orders: int) -> str:
        return f"{pairs_in_words(judged, orders)} judged, {failed:,} failed"

    def lines(self) -> Iterator[str]:
        """Yield the verdicts in each aspect and the effect of the responses' order on them."""
        for name, effect in self.aspects.items():
            both, same = effect.in_both_orders, effect.same_response
            parts = [f"{counted(self._winners[name, 'tie'], 'tie')} in {counted(self.first.judged, 'pair')}"]
            if both:
                parts = [f"{same:,} of {counted(both, 'pair')} have the same winner in both orders"]
                others, ties = effect.decided - same, both - effect.decided
                parts += [f"in {others:,}, each order names another winner"] * (others > 0)
                parts += [f"in {ties:,}, an order says a tie"] * (ties > 0)
            wins, named = effect.shown_first
            first = f"the response shown first wins in {wins} of {named} orders that name a winner"
            parts += [first] * bool(named)
            if not self.names_systems:
                own = self.first.columns[name].mean
                known = "–" if own is None else f"{own:.2f}"  # noqa: RUF001
                parts.append(f"probability that the input's first response is better: {known}")
            head = f"{name:<{max(map(len, self.aspects))}}  " if len(self.aspects) > 1 else ""
            yield head + " · ".join(parts)

    def signs(self, least: int) -> Iterator[str]:
        for name, effect in self.aspects.items():
            if effect.in_both_orders >= least:
                yield from effect.signs(name)


class PairMode(Mode[PairOutcome]):
    name = "pairwise"
    item = "pair"
    judges = "compares two responses"
    features = frozenset({"pairs", "verdict"})
    responses = PAIR
    prompt_columns = ORDER_COLUMNS
    number_kind = "preference"
    unnamed = ("first response", "second response")
    number_word = "preference"
    list_words = ("pair", "pairs", "Winner")
    statistics = "preferences"
    options_for = "is for runs that judge one response; these compare two"

    def reserves(self, name: str) -> bool:
        taken = {*PAIR_SYSTEMS, *PAIR_DIGESTS, *PAIR_LENGTHS, *self.texts}
        return super().reserves(name) or name in taken or name.endswith((PREFERENCE, AGREE, *ORDERS))

    def refusal(self, aspect: Aspect) -> str | None:
        return "is not a preference; the template shows two responses" if aspect.preference is None else None

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[PairOutcome]:
        return Join(lambda parts: PairOutcome.from_orders(parts, aspects), prompts)

    def row_columns(self, aspects: Mapping[str, Aspect]) -> tuple[ScoreColumn, ...]:
        """Return the columns of the preferences."""
        return tuple(
            ScoreColumn(name, name, {False: 0, True: 1}, each.weight) for name, each in aspects.items()
        )

    def details(self, aspects: Mapping[str, Aspect]) -> PairDetails:
        return PairDetails(aspects)

    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """The win rate of a system is the mean of the preferences for its responses; a tie counts half."""
        known = {
            column.name: [counts.columns[column.name].mean for counts in systems.values()] for column in columns
        }
        return MeanTable("", "win rate of", "pairs", known)

    def prompts_of(self, row: Mapping[str, Any], columns: AnswerColumns) -> tuple[Outcome, ...]:
        """Return the outcome of each order of a pair that was judged.

        If one order failed, both are failures, with the reasons of the pair.
        """
        orders = zip((False, True), ORDERS, strict=True)
        judged = [(swapped, suffix) for swapped, suffix in orders if row.get("key" + suffix) is not None]
        if not judged:
            raise ValueError(f"no column key{ORDERS[0]}")
        return tuple(_order_of(row, columns, swapped=swapped, suffix=suffix) for swapped, suffix in judged)

    def types(self, columns: AnswerColumns) -> dict[str, Any]:
        import pyarrow

        number, real, flag = pyarrow.int64(), pyarrow.float64(), pyarrow.bool_()
        types: dict[str, Any] = dict.fromkeys(PAIR_LENGTHS, number)
        for aspect in columns.aspects:
            types |= {aspect + AGREE: flag, aspect + PREFERENCE: real, aspect + MASS: real}
        for suffix in ORDERS:
            types |= {"rationale_cut" + suffix: flag, "candidate_cut" + suffix: number}
            for aspect in columns.aspects:
                types[aspect + PROBABILITIES + suffix] = pyarrow.list_(real)
                types[aspect + MASS + suffix] = real
                types[aspect + LIKELIEST + suffix] = flag
        return types


def _order_of(row: Mapping[str, Any], columns: AnswerColumns, *, swapped: bool, suffix: str) -> Outcome:
    """Return the outcome of one order of a pair, from a row of a table.

    Args:
        row: the row of the table.
        columns: the columns of the rubric.
        swapped: whether it is the reverse of the input's order.
        suffix: the end of the names of its columns.

    Raises:
        ValueError: a column is missing, or has a value that it cannot have.
    """
    try:
        systems = [row[name] for name in PAIR_SYSTEMS]
        digests = [row[name] for name in PAIR_DIGESTS]
        lengths = [row[name] for name in PAIR_LENGTHS]
        if swapped:
            systems, digests, lengths = systems[::-1], digests[::-1], lengths[::-1]
        common = {name: row[name] for name in ("id", "group", "source", "columns")} | {
            "system": systems[0],
            "opponent": systems[1],
            "swapped": swapped,
            "key": row["key" + suffix],
            "digest": row["digest" + suffix],
            "response_digest": digests[0],
            "opponent_digest": digests[1],
            "characters": lengths[0],
            "opponent_characters": lengths[1],
        }
        if row["status"] != "judged":
            return Failure.model_validate({**common, "error": row["error"] or ""})
        judged: dict[str, Any] = {name: row[name + suffix] for name in _OF_ANSWER}
        judged["scores"] = {aspect: row[aspect + suffix] for aspect in columns.aspects}
        judged["texts"] = {text: row.get(text + suffix) or "" for text in columns.texts}
        for column, field in _OF_ORDER.items():
            values = {aspect: row[aspect + column + suffix] for aspect in columns.aspects}
            judged[field] = {aspect: value for aspect, value in values.items() if value is not None}
    except KeyError as error:
        raise ValueError(f"no column {error}") from None
    return Judgement.model_validate({**common, **judged, "prompt_tokens": 0, "output_tokens": 0})


PAIRWISE = PairMode()
