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
        column_of = self._columns_of(docs[0]) if docs else {}
        rows = [
            self._row(doc, column_of) | {"candidate": text}
            for doc, texts in zip(docs, responses, strict=True)
            for text in texts
        ]
        outcomes = iter(self._judge.outcomes(rows))
        return [[_judged(self._judge, next(outcomes)) for _ in texts] for texts in responses]

    def _columns_of(self, doc: Mapping[str, Any]) -> dict[str, str]:
        """Return the column of each field of the rubric, as the first document has them.

        Raises:
            UsageError: the documents lack a column that is given.
        """
        used = self._judge.rubric.fields
        found = {}
        for field in used:
            for name in names_of(field, self._columns, used):
                if name in doc:
                    found[field] = name
                    break
            if field in self._columns and field not in found:
                raise UsageError(f"`columns` {field}: the documents have no {self._columns[field]}")
        return found

    def _row(self, doc: Mapping[str, Any], column_of: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields of a document; one that it lacks is missing."""
        row = {field: doc[name] for field, name in column_of.items() if name in doc}
        if "id" in doc:
            row["id"] = str(doc["id"])
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
