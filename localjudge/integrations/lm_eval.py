"""A filter for lm-evaluation-harness: all responses of a task are judged at once. A task names it in its YAML:

filter_list:
  - name: judged
    filter:
      - {function: localjudge, rubric: six-aspects, model: Qwen/Qwen3-8B}
process_results: !function localjudge.integrations.lm_eval.scores
metric_list:
  - {metric: helpfulness, aggregation: mean, higher_is_better: true}
  - {metric: not_judged, aggregation: mean, higher_is_better: false}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter

from localjudge.errors import UsageError
from localjudge.integrations.judge_service import SharedJudge, shared_judge
from localjudge.records import Judgement, Outcome
from localjudge.records.outcome_columns import to_json, to_line
from localjudge.rows.columns import names_of

NOT_JUDGED = "not_judged"
"""The metric that is the share of a document's responses that could not be judged."""


@register_filter("localjudge")
class JudgedResponses(Filter):  # type: ignore[misc]
    """Replace each response by its outcome as JSON: `scores`, null if it was not judged, and the line of a run.

    Args:
        columns: the column of the documents for a field of the rubric, if it has a name of its own.
        settings: settings of a `SharedJudge`: `rubric`, `model`, `engine` …

    Raises:
        UsageError: the settings, the rubric or the model cannot be used.
    """

    def __init__(self, columns: Mapping[str, str] | None = None, **settings: Any) -> None:
        super().__init__()
        self._columns, self._judge = columns or {}, shared_judge(**settings)

    def apply(self, resps: Iterable[Sequence[str] | str], docs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        """Return the outcomes of each document, as JSON: the harness writes them into its samples.

        Args:
            resps: the responses to each document, or its only one if an earlier filter took it out of its list.
            docs: the documents.
        """
        responses = [[each] if isinstance(each, str) else list(each) for each in resps]
        rows = [
            self._row(doc) | {"candidate": text}
            for doc, texts in zip(docs, responses, strict=True)
            for text in texts
        ]
        outcomes = iter(self._judge.outcomes(rows))
        return [[_judged(self._judge, next(outcomes)) for _ in texts] for texts in responses]

    def _row(self, doc: Mapping[str, Any]) -> dict[str, Any]:
        used = self._judge.rubric.fields
        row = {"id": str(doc["id"])} if "id" in doc else {}
        for field in used:
            names = names_of(field, self._columns, used)
            name = next((name for name in names if name in doc), None)
            if field in self._columns and name is None:
                raise UsageError(f"`columns` {field}: the documents have no {self._columns[field]}")
            if name is not None:
                row[field] = doc[name]
        return row


def scores(doc: Mapping[str, Any], results: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the metrics of a document, for `process_results`: the mean score of its responses for each aspect.

    A response that was not judged has no score; `not_judged` is the share of these.
    """
    found = [json.loads(each) for each in results[0]]
    judged = [each["scores"] for each in found if each["scores"] is not None]
    means = {name: fmean(each[name] for each in judged) for name in (judged[0] if judged else ())}
    return means | {NOT_JUDGED: 1 - len(judged) / len(found)}


def _judged(judge: SharedJudge, outcome: Outcome) -> str:
    numbers = judge.numbers(outcome) if isinstance(outcome, Judgement) else None
    line = to_line(outcome, judge.rubric.columns)
    return to_json({"scores": numbers, "outcome": line, **judge.about}, line)
