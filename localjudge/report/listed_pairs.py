"""The pairs of runs as columns: a few numbers for each, and the places of its lines and its texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.matching.judged_pairs import PairValues
from localjudge.matching.run_rows import FAILED
from localjudge.matching.scores import NO_VALUE
from localjudge.records import Judgement, Outcome
from localjudge.report.judgements import Columns, ListedRows, rounded_shares
from localjudge.report.page import PageKind, PageRow
from localjudge.rubrics.pair_outcome import PairOutcome
from localjudge.runs.reader import refuse_single
from localjudge.runs.run_manifest import RunManifest

ORDERS_DIFFER = 8
"""The bit of a pair's flags, besides those of all rows: in some aspect the orders say different things."""
NO_WINNER = ("tie", "undecided")
"""Those of them without a winner."""
UNNAMED = ("first response", "second response")
"""The names of the responses of pairs without systems, by their place."""


class ListedPairs(ListedRows):
    """The pairs of runs with the same aspects. A pair without a line for every order is not listed.

    Attributes:
        shown_first: float64 (A, N), the mean over the orders of the probability that the response shown first
            is better; NaN if the pair failed.
        same_response: float64 (A, N), 1 if both orders name the same response, 0 if they name different ones;
            NaN if an order says a tie or was not judged.
    """

    kind = PageKind("pair_view.js", {"one": "pair", "many": "pairs", "result": "Winner"})

    @property
    def names_systems(self) -> bool:
        """Whether a judged pair has responses of two different systems."""
        first, second = self.columns.series
        judged = (self.columns.flags & FAILED) == 0
        unnamed = [place for place, name in enumerate(self.series) if name in UNNAMED]
        return bool((judged & (first != second) & ~np.isin(first, unnamed) & ~np.isin(second, unnamed)).any())

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the pairs as the page reads them, in the order of the columns."""
        for row, group in enumerate(self.rows.group.tolist()):
            pair = PairOutcome.from_orders(self.outcomes(row), self.rubric.aspects)
            text, first = self.text(row), pair.first
            responses = self.responses(row, text)
            values = [text and responses, pair.error, [self._order(each) for each in pair.orders]]
            size = sum(len(order.rationale) for order in pair.orders if isinstance(order, Judgement))
            size += sum(len(response or "") for response in responses)
            yield PageRow(group, text, [*values, first.source, first.columns], size)

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

    def _row_values(self, manifests: Sequence[RunManifest]) -> PairValues:
        for folder, manifest in zip(self.folders, manifests, strict=True):
            refuse_single(folder, manifest.rubric)
        return PairValues(self.rubric.aspects)

    def _fill(self, values: PairValues, order: NDArray[np.intp]) -> None:
        named = self.rows.system_names(UNNAMED)
        self.series = sorted({name for names in named for name in names})
        rank = {name: place for place, name in enumerate(self.series)}
        verdicts = [values.verdicts(name).take(order) for name in self.rubric.aspects]
        preference = np.array([each.preference[:, 0] for each in verdicts])
        first, second = np.moveaxis(np.array([each.shown_first for each in verdicts]), -1, 0)
        agree = np.array([each.agree for each in verdicts])
        winners = np.array([each.winner for each in verdicts])
        weights = [each.weight for each in self.rubric.aspects.values()]
        self.shown_first = np.where(np.isnan(second), first, (first + second) / 2)
        self.same_response = np.array([each.same_response for each in verdicts])
        self.columns = Columns(
            series=np.array([[rank[name] for name in names] for names in named], np.int16).reshape(-1, 2).T,
            group=self.rows.group.astype(np.int32),
            scores=np.nan_to_num(winners, nan=NO_VALUE).astype(np.int16),
            expected=preference,
            overall=np.average(preference, axis=0, weights=weights),
            length=self.lengths.T,
            flags=self.rows.flags + (ORDERS_DIFFER * (agree == 0).any(axis=0)).astype(np.uint8),
            agree=agree,
        )
