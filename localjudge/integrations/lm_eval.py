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
from itertools import islice
from statistics import fmean
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter

from localjudge.errors import UsageError
from localjudge.integrations.shared_judge import SharedJudge, shared_judge
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
        self._columns = {} if columns is None else columns
        self._judge = shared_judge(**settings)

    def apply(self, resps: Iterable[Sequence[str] | str], docs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        """Return the outcomes of each document, as JSON: the harness writes them into its samples.

        Args:
            resps: the responses to each document, or its only one if an earlier filter took it out of its list.
            docs: the documents.
        """
        responses_of_docs = [_as_list(responses) for responses in resps]
        column_of = self._columns_of(docs[0]) if docs else {}
        rows: list[dict[str, Any]] = []
        for doc, responses in zip(docs, responses_of_docs, strict=True):
            for response in responses:
                row = _row(doc, column_of)
                row["candidate"] = response
                rows.append(row)
        outcomes = iter(self._judge.outcomes(rows))
        judged: list[list[str]] = []
        for responses in responses_of_docs:
            outcomes_of_doc = islice(outcomes, len(responses))
            judged.append([_outcome_as_json(outcome, self._judge) for outcome in outcomes_of_doc])
        return judged

    def _columns_of(self, doc: Mapping[str, Any]) -> dict[str, str]:
        """Return the column of each field of the rubric, as the first document has them.

        Raises:
            UsageError: the documents lack a column that is given.
        """
        used = self._judge.rubric.fields
        column_of: dict[str, str] = {}
        for field in used:
            columns = [name for name in names_of(field, self._columns, used=used) if name in doc]
            if columns:
                column_of[field] = columns[0]
            elif field in self._columns:
                raise UsageError(f"`columns` {field}: the documents have no {self._columns[field]}")
        return column_of


def scores(doc: Mapping[str, Any], results: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the metrics of a document, for `process_results`: the mean score of its responses for each aspect.

    A response that was not judged has no score; `not_judged` is the share of these.
    """
    outcomes = [json.loads(outcome) for outcome in results[0]]
    judged = [outcome["scores"] for outcome in outcomes if outcome["scores"] is not None]
    metrics: dict[str, float] = {}
    if judged:
        for name in judged[0]:
            metrics[name] = fmean(numbers[name] for numbers in judged)
    metrics[NOT_JUDGED] = 1 - len(judged) / len(outcomes)
    return metrics


def _as_list(responses: Sequence[str] | str) -> list[str]:
    """Return the responses to a document, or its only one, as a list."""
    if isinstance(responses, str):
        return [responses]
    return list(responses)


def _row(doc: Mapping[str, Any], column_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a document; one that it lacks is missing."""
    row = {field: doc[column] for field, column in column_of.items() if column in doc}
    if "id" in doc:
        row["id"] = str(doc["id"])
    return row


def _outcome_as_json(outcome: Outcome, judge: SharedJudge) -> str:
    """Return the scores of a response, null if it was not judged, with the line of a run, as JSON."""
    numbers = judge.numbers(outcome) if isinstance(outcome, Judgement) else None
    line = to_line(outcome, judge.rubric.columns)
    document = {"scores": numbers, "outcome": line} | judge.about
    return to_json(document, line)
