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
from typing import Any, Self, TypeVar

from localjudge.modes.mode import (
    ComparedPair,
    ListWords,
    MeanTable,
    Mode,
    NumberWords,
    RowDetails,
    SystemCounts,
)
from localjudge.modes.pair_preference import RESULTS, WINNERS, OrderEffect, Preference, Winner, pairs_in_words
from localjudge.modes.row_outcome import VALUE, Decision, Join, ListedAnswer, Numbers, RowOutcome, Side
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
from localjudge.system.quantities import UNDEFINED_SIGN, counted

V = TypeVar("V")

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
        in_order = tuple(sorted(orders, key=lambda order: order.swapped))
        judged = [order for order in in_order if isinstance(order, Judgement)]
        preferences: dict[str, Preference] = {}
        if len(judged) == len(in_order):
            for name, aspect in aspects.items():
                preferences[name] = Preference.from_orders(judged, name, aspect)
        return cls(in_order, aspects, preferences)

    @property
    def systems(self) -> tuple[str | None, ...]:
        return self._in_the_order_of_the_input(self.first.system, self.first.opponent)

    @property
    def response_digests(self) -> tuple[str | None, ...]:
        return self._in_the_order_of_the_input(self.first.response_digest, self.first.opponent_digest)

    @property
    def response_lengths(self) -> tuple[int | None, ...]:
        """The characters of each response, in the input's order."""
        return self._in_the_order_of_the_input(self.first.characters, self.first.opponent_characters)

    def _in_the_order_of_the_input(self, shown_first: V, shown_second: V) -> tuple[V, V]:
        """Return what belongs to the two responses of the first prompt in the order of the input."""
        if self.first.swapped:
            return shown_second, shown_first
        return shown_first, shown_second

    @property
    def response_names(self) -> tuple[str, ...]:
        first, second = self.systems
        return _response_name("a", first), _response_name("b", second)

    @property
    def verdicts(self) -> Mapping[str, Value | None]:
        return {name: preference.winner for name, preference in self.preferences.items()}

    def decision(self, aspect: str, within: int) -> Decision | None:
        """Return the result that both orders name, a number of `RESULTS`, and its mean probability."""
        preference = self.preferences.get(aspect)
        if preference is None or preference.winner is None:
            return None
        return Decision(RESULTS[preference.winner], preference.mean.probability(preference.winner))

    def preference(self, aspect: str) -> Preference | None:
        return self.preferences.get(aspect)

    def numbers(self) -> Iterator[tuple[str, str, float]]:
        reverse = [order.swapped for order in self.prompts]
        for name, preference in self.preferences.items():
            yield VALUE, name, preference.value
            for kind, number in preference.numbers(reverse, has_tie=self.aspects[name].has_tie):
                yield kind, name, number

    @property
    def values(self) -> Numbers:
        return {name: preference.value for name, preference in self.preferences.items()}

    @property
    def sides(self) -> Sequence[Side]:
        """The preference for each system; nothing of two responses of one system."""
        first, second = self.systems
        if first == second:
            return []
        of_second = {name: 1 - value for name, value in self.values.items()}
        sides = [Side(first, self.values, {}), Side(second, of_second, {})]
        return [side for side in sides if side.system]

    def cells(self) -> Mapping[str, str]:
        """Return the verdict, the preference for the first response, and whether both orders say the same."""
        return {name: _cell(preference) for name, preference in self.preferences.items()}

    def heading(self, prompt: Outcome) -> str:
        first, second = self.response_names
        if prompt.swapped:
            return f"shown: A = {second}, B = {first}"
        return f"shown: A = {first}, B = {second}"

    def result_lines(self) -> Iterator[str]:
        for name, preference in self.preferences.items():
            line = f"{name}: {self._verdict_in_words(preference.winner)}"
            line += f" · probability that a is better {preference.value:.3f}"
            if preference.orders_say:
                line += f" · {preference.orders_say}"
            yield line

    def _verdict_in_words(self, winner: Winner | None) -> str:
        first, second = self.response_names
        if winner is None:
            return "undecided"
        if winner == "tie":
            return "a tie"
        return f"{first} wins" if winner == "a" else f"{second} wins"

    def list_answers(self) -> Sequence[ListedAnswer]:
        if not self.preferences:
            return [ListedAnswer() for _ in self.aspects]
        return [_listed_answer(preference) for preference in self.preferences.values()]

    @property
    def overall(self) -> float:
        """The mean of the preferences, weighted as the aspects are."""
        if not self.preferences:
            return nan
        weights = {name: aspect.weight for name, aspect in self.aspects.items()}
        total = sum(preference.value * weights[name] for name, preference in self.preferences.items())
        return total / sum(weights.values())

    def line(self, columns: AnswerColumns) -> dict[str, Any]:
        """Return the pair as one flat JSON object; judged and failed pairs have the same columns.

        The columns of the input's own order end with `_ab`, and those of the reverse with `_ba`; there, too, A
        is the response that was shown first.

        Args:
            columns: the columns of its rubric.
        """
        line: dict[str, Any] = {"id": self.id}
        line.update(zip(PAIR_SYSTEMS, self.systems, strict=True))
        line["status"] = "failed" if self.error else "judged"
        line["error"] = self.error
        for aspect in columns.aspects:
            line.update(self._columns_of_aspect(aspect))
        for swapped, suffix in zip((False, True), ORDERS, strict=True):
            line.update(self._columns_of_order(columns, swapped=swapped, suffix=suffix))
        line["group"] = self.first.group
        line.update(zip(PAIR_DIGESTS, self.response_digests, strict=True))
        line.update(zip(PAIR_LENGTHS, self.response_lengths, strict=True))
        line["source"] = self.first.source
        line["columns"] = self.first.columns
        return line

    def _columns_of_aspect(self, aspect: str) -> dict[str, Any]:
        """Return the verdict, the preference, the agreement of the orders and the mean mass in an aspect."""
        names = (aspect, aspect + PREFERENCE, aspect + AGREE, aspect + MASS)
        preference = self.preferences.get(aspect)
        if preference is None:
            return dict.fromkeys(names)
        masses = [judgement.mass[aspect] for judgement in self.judged if aspect in judgement.mass]
        mean_mass = sum(masses) / len(masses) if masses else None
        return dict(zip(names, (preference.winner, preference.value, preference.agree, mean_mass), strict=True))

    def _columns_of_order(self, columns: AnswerColumns, *, swapped: bool, suffix: str) -> dict[str, Any]:
        """Return the answer to one order; None in each column if it was not judged.

        Args:
            columns: the columns of the rubric.
            swapped: whether the order is the reverse of the input's.
            suffix: the end of the names of its columns.
        """
        order = next((prompt for prompt in self.prompts if prompt.swapped is swapped), None)
        cells: dict[str, Any] = {}
        judgement = order if isinstance(order, Judgement) else None
        for aspect in columns.aspects:
            cells[aspect + suffix] = None if judgement is None else judgement.scores[aspect]
        for aspect in columns.aspects:
            for column, field in _OF_ORDER.items():
                by_aspect = {} if judgement is None else getattr(judgement, field)
                cells[aspect + column + suffix] = by_aspect.get(aspect)
        for text in columns.texts:
            cells[text + suffix] = None if judgement is None else judgement.texts[text]
        for name in _OF_ANSWER:
            cells[name + suffix] = None if judgement is None else getattr(judgement, name)
        cells["key" + suffix] = None if order is None else order.key
        cells["digest" + suffix] = None if order is None else order.digest
        return cells


def _response_name(side: str, system: str | None) -> str:
    """Return the name of a response for people, with its system if it is known."""
    return f"{side} ({system})" if system else side


def _cell(preference: Preference) -> str:
    """Return the winner, the preference, and whether both orders agree, in aligned columns."""
    cell = f"{preference.winner or '?':>3} {preference.value:.3f}"
    if preference.agree is None:
        return cell
    return f"{cell} agree " if preference.agree else f"{cell} differ"


def _listed_answer(preference: Preference) -> ListedAnswer:
    """Return a preference as the list of a report has it."""
    confidence = nan
    if preference.winner is not None:
        confidence = preference.mean.probability(preference.winner)
    return ListedAnswer(
        value_index=WINNERS.index(preference.winner or "undecided"),
        expected=preference.value,
        confidence=confidence,
        agree=nan if preference.agree is None else float(preference.agree),
    )


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
        for name, preference in row.preferences.items():
            self.aspects[name].add(preference.named_places)
            self._winners[name, preference.winner] += 1

    @property
    def tells_values_apart(self) -> bool:
        return any(effect.in_both_orders for effect in self.aspects.values())

    def counted(self, judged: int, failed: int, orders: int) -> str:
        return f"{pairs_in_words(judged, orders)} judged, {failed:,} failed"

    def lines(self) -> Iterator[str]:
        """Yield the verdicts in each aspect and the effect of the responses' order on them."""
        longest = max((len(name) for name in self.aspects), default=0)
        for name in self.aspects:
            line = " · ".join(self._parts_of_line(name))
            if len(self.aspects) > 1:
                line = f"{name:<{longest}}  {line}"
            yield line

    def _parts_of_line(self, name: str) -> Iterator[str]:
        """Yield what the line of an aspect says."""
        effect = self.aspects[name]
        if effect.in_both_orders:
            pairs = counted(effect.in_both_orders, "pair")
            yield f"{effect.same_response:,} of {pairs} have the same winner in both orders"
            contrary = effect.decided - effect.same_response
            if contrary:
                yield f"in {contrary:,}, each order names another winner"
            with_tie = effect.in_both_orders - effect.decided
            if with_tie:
                yield f"in {with_tie:,}, an order says a tie"
        else:
            ties = counted(self._winners[name, "tie"], "tie")
            yield f"{ties} in {counted(self.first.judged, 'pair')}"
        wins, orders = effect.shown_first
        if orders:
            yield f"the response shown first wins in {wins} of {orders} orders that name a winner"
        if not self.names_systems:
            mean = self.first.columns[name].mean
            preference = UNDEFINED_SIGN if mean is None else f"{mean:.2f}"
            yield f"probability that the input's first response is better: {preference}"

    def signs(self, least: int) -> Iterator[str]:
        for name, effect in self.aspects.items():
            if effect.in_both_orders >= least:
                yield from effect.signs(name)


class PairMode(Mode[PairOutcome]):
    name = "pairwise"
    item = "pair"
    judges = "compares two responses"
    pairs = ComparedPair(fields=PAIR, unnamed=("first response", "second response"))
    number_words = NumberWords(word="preference", kind="preference")
    prompt_columns = ORDER_COLUMNS
    list_words = ListWords(one="pair", many="pairs", answer="Winner")
    options_for = "is for runs that judge one response; these compare two"

    def reserves(self, name: str) -> bool:
        columns = PAIR_SYSTEMS + PAIR_DIGESTS + PAIR_LENGTHS + self.texts
        suffixes = (PREFERENCE, AGREE) + ORDERS
        return super().reserves(name) or name in columns or name.endswith(suffixes)

    def refusal(self, aspect: Aspect) -> str | None:
        if aspect.preference is not None:
            return None
        return "is not a preference; the template shows two responses"

    def join(self, aspects: Mapping[str, Aspect], prompts: int) -> Join[PairOutcome]:
        return Join(lambda parts: PairOutcome.from_orders(parts, aspects), prompts)

    def row_columns(self, aspects: Mapping[str, Aspect]) -> tuple[ScoreColumn, ...]:
        """Return the columns of the preferences."""
        return tuple(
            ScoreColumn(name, name, {False: 0, True: 1}, aspect.weight) for name, aspect in aspects.items()
        )

    def details(self, aspects: Mapping[str, Aspect]) -> PairDetails:
        return PairDetails(aspects)

    def mean_table(self, systems: Mapping[str, SystemCounts], columns: Sequence[ScoreColumn]) -> MeanTable:
        """The win rate of a system is the mean of the preferences for its responses; a tie counts half."""
        win_rates: dict[str, list[float | None]] = {}
        for column in columns:
            win_rates[column.name] = [counts.columns[column.name].mean for counts in systems.values()]
        return MeanTable(title="", systems="win rate of", rows="pairs", columns=win_rates)

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

        number = pyarrow.int64()
        real = pyarrow.float64()
        flag = pyarrow.bool_()
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
            systems.reverse()
            digests.reverse()
            lengths.reverse()
        common = {
            "id": row["id"],
            "group": row["group"],
            "source": row["source"],
            "columns": row["columns"],
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
            return Failure.model_validate(common | {"error": row["error"] or ""})
        judged: dict[str, Any] = {name: row[name + suffix] for name in _OF_ANSWER}
        judged["scores"] = {aspect: row[aspect + suffix] for aspect in columns.aspects}
        judged["texts"] = {text: row.get(text + suffix) or "" for text in columns.texts}
        for column, field in _OF_ORDER.items():
            values = {aspect: row[aspect + column + suffix] for aspect in columns.aspects}
            judged[field] = {aspect: value for aspect, value in values.items() if value is not None}
    except KeyError as error:
        raise ValueError(f"no column {error}") from None
    return Judgement.model_validate(common | judged | {"prompt_tokens": 0, "output_tokens": 0})


PAIRWISE = PairMode()
