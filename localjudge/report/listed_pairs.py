"""The pairs of runs as columns: a few numbers for each, and the places of its lines and its texts."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.records import Judgement, Outcome
from localjudge.report.judgements import (
    CANDIDATE_CUT,
    FAILED,
    NO_SCORE,
    RATIONALE_CUT,
    ListedRows,
    rounded_shares,
    typed,
)
from localjudge.report.page import PageKind, PageRow
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.runs.reader import read_pairs

ORDERS_DIFFER = 8
"""The bit of a pair's flags, besides those of a judgement: in some aspect the orders say different things."""
WINNERS = ("a", "tie", "b", "undecided")
"""The possible verdicts; a pair's score is a place among them."""
NO_WINNER = ("tie", "undecided")
"""Those of them without a winner."""
UNNAMED = ("first response", "second response")
"""The names of the responses of pairs without systems, by their place."""


@dataclass(frozen=True, slots=True)
class PairColumns:
    """N pairs with preferences in A aspects, grouped by instruction, in the order of each group's first pair.

    Attributes:
        series: int16 (2, N), the systems of both responses, as indices into the names.
        group: int32 (N,), the number of the instruction.
        winners: int16 (A, N), the place of the winner in `WINNERS`; `NO_SCORE` if the pair failed.
        preference: float64 (A, N), the preference for the first response; NaN if the pair failed.
        shown_first: float64 (A, N), the mean over the orders of the probability that the response shown first
            is better; NaN if the pair failed.
        agree: float64 (A, N), 1 if both orders say the same, a tie or a response, 0 if not; NaN for one order.
        same_response: float64 (A, N), 1 if both orders name the same response, 0 if they name different ones;
            NaN if an order says a tie or was not judged.
        overall: float64 (N,), the weighted mean of the preferences; NaN if the pair failed.
        length: int32 (2, N), characters of both responses; -1 if the texts were not found.
        flags: uint8 (N,), a sum of `FAILED` and the other bits.
    """

    series: NDArray[np.int16]
    group: NDArray[np.int32]
    winners: NDArray[np.int16]
    preference: NDArray[np.float64]
    shown_first: NDArray[np.float64]
    agree: NDArray[np.float64]
    same_response: NDArray[np.float64]
    overall: NDArray[np.float64]
    length: NDArray[np.int32]
    flags: NDArray[np.uint8]


class ListedPairs(ListedRows):
    """The pairs of runs with the same aspects. A pair without a line for every order is not listed.

    Attributes:
        names: the systems, sorted.
        notes: remarks on their names.
        columns: the numbers.
    """

    kind = PageKind("pair_view.js", {"one": "pair", "many": "pairs", "result": "Winner"})

    @property
    def compares_systems(self) -> bool:
        """Whether a judged pair has responses of two different systems."""
        first, second = self.columns.series
        judged = (self.columns.flags & FAILED) == 0
        unnamed = [place for place, name in enumerate(self.names) if name in UNNAMED]
        return bool((judged & (first != second) & ~np.isin(first, unnamed) & ~np.isin(second, unnamed)).any())

    @property
    def found(self) -> int:
        """Number of pairs whose texts were found in the inputs."""
        return int((self.columns.length[0] >= 0).sum())

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the pairs as the page reads them, in the order of the columns."""
        for place, run, instruction in zip(self._places, self._runs, self.columns.group.tolist(), strict=True):
            orders = [self._outcome(run, line) for line in place]
            pair = PairOutcome.from_orders(orders, self.rubric.aspects)
            text = self._texts[run].get(pair.orders[0])
            responses = None if text is None else text.responses(pair.orders[0].swapped)
            values = [responses, pair.error, [self._order(each) for each in pair.orders]]
            size = sum(len(order.rationale) for order in orders if isinstance(order, Judgement))
            size += sum(len(response or "") for response in responses or ())
            first = pair.orders[0]
            yield PageRow(instruction, text, [*values, first.source, first.columns], size)

    def _order(self, outcome: Outcome) -> dict[str, Any]:
        """Return what the page shows of one order."""
        if not isinstance(outcome, Judgement):
            return {"swapped": outcome.swapped, "error": outcome.error}
        return {
            "swapped": outcome.swapped,
            "scores": {
                name: [*aspect.values.values()].index(outcome.scores[name])
                for name, aspect in self.rubric.aspects.items()
            },
            "probabilities": rounded_shares(outcome),
            "texts": outcome.texts,
            "rationale_cut": outcome.rationale_cut,
            "candidate_cut": outcome.candidate_cut,
            "thoughts": outcome.thoughts,
        }

    def arrays(self) -> Mapping[str, tuple[str, bytes]]:
        """Return the columns as the page's typed arrays; NaN means unknown."""
        columns = self.columns
        series, opponent = columns.series
        found = {
            "series": series,
            "opponent": opponent,
            "scores": columns.winners,
            "expected": columns.preference,
        }
        same = ("group", "agree", "overall", "length", "flags")
        found |= {name: getattr(columns, name) for name in same}
        return {name: typed(values) for name, values in found.items()}

    def _with_texts(self, folder: Path) -> Iterable[Outcome]:
        return (pair.orders[0] for pair in read_pairs(folder))

    def _read(self) -> None:
        aspects = self.rubric.aspects
        compared: list[tuple[int, tuple[str | None, str | None]]] = []
        flags, length, numbers = array("B"), array("i"), array("d")
        joins = [manifest.join() for manifest in self.manifests]
        lines: dict[tuple[int, int | None], int] = {}
        for run, place, outcome in self._outcomes():
            lines[run, outcome.row] = place
            if (pair := joins[run].add(outcome)) is None:
                continue
            first = pair.orders[0]
            text = self._add(run, tuple(lines.pop((run, order.row)) for order in pair.orders), first)
            responses = text.responses(first.swapped) if text else (None, None)
            length.extend(-1 if each is None else len(each) for each in responses)
            self._systems.add_pair(run, pair)
            compared.append((run, pair.systems))
            flags.append(_flags(pair))
            for name in aspects:
                numbers.extend(_numbers(pair, name))
        named, self.notes = self._systems.names()
        shown = [
            named.get((run, system)) or unnamed
            for run, pair in compared
            for system, unnamed in zip(pair, UNNAMED, strict=True)
        ]
        self.names = sorted(set(shown))
        rank = {name: place for place, name in enumerate(self.names)}
        order = self._sorted()
        winners, preference, shown_first, agree, same_response = np.moveaxis(
            np.asarray(numbers).reshape(-1, len(aspects), 5)[order], -1, 0
        )
        self.columns = PairColumns(
            series=np.array([rank[name] for name in shown], np.int16).reshape(-1, 2)[order].T,
            group=np.asarray(self._group, np.int32),
            winners=winners.T.astype(np.int16),
            preference=preference.T,
            shown_first=shown_first.T,
            agree=agree.T,
            same_response=same_response.T,
            overall=np.average(preference, axis=1, weights=[each.weight for each in aspects.values()]),
            length=np.asarray(length, np.int32).reshape(-1, 2)[order].T,
            flags=np.asarray(flags, np.uint8)[order],
        )


def _flags(pair: PairOutcome) -> int:
    judged = [order for order in pair.orders if isinstance(order, Judgement)]
    return (
        FAILED * (pair.error is not None)
        + RATIONALE_CUT * any(order.rationale_cut for order in judged)
        + CANDIDATE_CUT * any(order.candidate_cut > 0 for order in judged)
        + ORDERS_DIFFER * any(each.agree is False for each in pair.preferences.values())
    )


def _numbers(pair: PairOutcome, aspect: str) -> tuple[float, ...]:
    """Return the numbers of a pair: the first five arrays [A, N] of `PairColumns`."""
    known = pair.preferences.get(aspect)
    if known is None:
        return NO_SCORE, np.nan, np.nan, np.nan, np.nan
    shown_first = sum(known.shown_first) / len(known.shown_first)
    agree, same = (np.nan if each is None else float(each) for each in (known.agree, known.same_response))
    return WINNERS.index(known.winner or "undecided"), known.value, shown_first, agree, same
