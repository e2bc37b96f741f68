"""The rows of runs of criteria as columns: the score of each row, and the answers to its criteria."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from localjudge.matching.run_rows import RowValues
from localjudge.matching.scores import ScoreValues
from localjudge.records import Judgement
from localjudge.report.judgements import Judgements
from localjudge.report.page import PageKind, PageRow
from localjudge.report.shown_values import points_text
from localjudge.rubrics.checklist_outcome import ChecklistOutcome
from localjudge.rubrics.rubric import Rubric
from localjudge.runs.run_manifest import RunManifest


class ListedChecklists(Judgements):
    """The rows of runs of criteria. A row without a line for every criterion is not listed."""

    kind: ClassVar = PageKind("judgement_view.js", {"one": "row", "many": "rows", "result": "A criterion is"})

    def page_rows(self) -> Iterator[PageRow]:
        """Yield the rows as the page reads them, in the order of the columns."""
        for row, group in enumerate(self.rows.group.tolist()):
            outcome = ChecklistOutcome.from_prompts(self.outcomes(row), self.rubric.aspects)
            text, judged = self.text(row), [each for each in outcome.of_prompts if isinstance(each, Judgement)]
            criteria = [
                {
                    **each.criterion.model_dump(exclude={"part", "parts"}),
                    "probability": each.probability,
                    "error": each.outcome.error,
                    "texts": [*each.outcome.texts.values()] if isinstance(each.outcome, Judgement) else [],
                }
                for each in outcome.results
            ]
            points = {"score": outcome.points, **outcome.by_tag} if criteria else {}
            cut, own = max((each.candidate_cut for each in judged), default=0), outcome.first
            shown: list[Any] = [text and text.candidate, None, outcome.error, None, None, own.source, cut]
            shown += [own.columns, None, None]
            shown += [criteria, [(name, points_text(each)) for name, each in points.items()]]
            yield PageRow(group, text, shown, len(str(criteria)) + len(text.candidate if text else ""))

    def _row_values(self, manifests: Sequence[RunManifest]) -> RowValues[Any]:
        return _CriterionValues(self.rubric)

    def _scores(self, values: Any, order: NDArray[np.intp]) -> dict[str, NDArray[Any]]:
        sizes = np.asarray(values.sizes, np.int64)
        ends = np.cumsum(sizes[order])
        first = np.repeat((np.cumsum(sizes) - sizes)[order] - (ends - sizes[order]), sizes[order])
        of_criteria = super()._scores(values.answers, first + np.arange(len(first)))
        overall, criteria = np.asarray(values.scores)[order], np.append(0, ends).astype(np.int32)
        return of_criteria | {"overall": overall, "criteria": criteria}


class _CriterionValues:
    """The answers to the criteria of rows, one after the other, and the number and the score of each row."""

    def __init__(self, rubric: Rubric) -> None:
        self.answers, self.sizes, self.scores = ScoreValues(rubric), array("i"), array("d")

    def add(self, outcome: ChecklistOutcome) -> None:
        for each in outcome.results:
            self.answers.add(each.outcome)
        score = outcome.points.score
        self.sizes.append(len(outcome.results))
        self.scores.append(np.nan if score is None else score)
