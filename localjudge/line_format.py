"""The line of a row in a run; only this module knows the names of its columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from localjudge.errors import UsageError
from localjudge.records import Failure, Judgement, Outcome, Row


def to_line(outcome: Outcome, aspects: tuple[str, ...], number: int | None = None) -> dict[str, Any]:
    """Return an outcome as one flat JSON object; judgements and failures have the same columns.

    Args:
        outcome: a judgement or a failure.
        aspects: the aspects of its rubric.
        number: the row's place in the whole input, from 1.
    """
    judged = outcome if isinstance(outcome, Judgement) else None
    line: dict[str, Any] = {
        "id": outcome.id,
        "system": outcome.system,
        "status": outcome.status,
        "error": outcome.error if isinstance(outcome, Failure) else None,
        "rationale": judged and judged.rationale,
    }
    for aspect in aspects:
        line[aspect] = judged and judged.scores[aspect]
    for aspect in aspects:
        line[f"{aspect}_expected"] = judged and judged.expected and judged.expected[aspect]
    for aspect in aspects:
        line[f"{aspect}_probabilities"] = judged and judged.probabilities and judged.probabilities[aspect]
    line["rationale_cut"] = judged and judged.rationale_cut
    line["candidate_cut"] = judged and judged.candidate_cut
    line["thoughts"] = judged and judged.thoughts
    line["prompt_tokens"] = outcome.prompt_tokens
    line["output_tokens"] = judged and judged.output_tokens
    line["key"] = outcome.key
    line["group"] = outcome.group
    line["digest"] = outcome.digest
    line["row"] = number
    line["source"] = outcome.source
    line["columns"] = outcome.columns
    return line


def is_line(line: Any, aspects: Sequence[str]) -> bool:
    """Return whether this is a line of a run, as `to_line` writes it for these aspects."""
    if not isinstance(line, dict) or not line.keys() >= COMMON_COLUMNS:
        return False
    texts = line["id"], line["key"], line["source"]
    if not (all(isinstance(text, str) for text in texts) and isinstance(line["row"], int)):
        return False
    if not isinstance(line["columns"], dict) or not isinstance(line["system"], str | None):
        return False
    if line["status"] == "failed":
        return isinstance(line["error"], str)
    return line["status"] == "judged" and all(
        type(line.get(aspect)) is int
        and _is_finite(line.get(f"{aspect}_expected", ""))
        and isinstance(shares := line.get(f"{aspect}_probabilities", ""), list | None)
        and all(share is not None and _is_finite(share) for share in shares or ())
        for aspect in aspects
    )


def _is_finite(value: Any) -> bool:
    """Return whether this is None or a number that is neither NaN nor infinite."""
    return value is None or type(value) is int or (type(value) is float and isfinite(value))


def given_to(line: dict[str, Any], row: Row | Failure, number: int) -> dict[str, Any]:
    """Return this line for a duplicate row; the line itself if it already belongs to the row."""
    own = {
        "id": row.id,
        "system": row.system,
        "row": number,
        "source": row.source,
        "columns": dict(row.columns),
    }
    if own.items() <= line.items():
        return line
    if line["error"] is not None:
        own["error"] = f"{row.source}: {line['error'].removeprefix(line['source'] + ': ')}"
    return line | own


def from_line(line: Mapping[str, Any], aspects: tuple[str, ...]) -> Outcome:
    """Return the outcome of a line: the inverse of `to_line`.

    Raises:
        ValueError: the line does not belong to a run with these aspects.
    """
    names = ("id", "system", "key", "group", "digest", "source", "columns", "prompt_tokens")
    common = {name: line.get(name) for name in names}
    if line.get("status") == "failed":
        return Failure(**common, error=line.get("error"))  # type: ignore[arg-type]
    scores = {aspect: line.get(aspect) for aspect in aspects}
    expected = {aspect: line.get(f"{aspect}_expected") for aspect in aspects}
    probabilities = {aspect: line.get(f"{aspect}_probabilities") for aspect in aspects}
    return Judgement.model_validate(
        {
            **common,
            "rationale": line.get("rationale"),
            "scores": scores,
            "expected": None if None in expected.values() else expected,
            "probabilities": None if None in probabilities.values() else probabilities,
            "rationale_cut": line.get("rationale_cut"),
            "candidate_cut": line.get("candidate_cut"),
            "thoughts": line.get("thoughts"),
            "output_tokens": line.get("output_tokens"),
        }
    )


COMMON_COLUMNS = frozenset(to_line(Failure(id="", key="", error=""), ()))
"""Columns that every line has, for any rubric."""


RESERVED_COLUMNS = COMMON_COLUMNS | {"instruction", "reference", "candidate", "model", "notice"}
"""The common columns and those that an export adds."""


def to_json(value: Any, line: Mapping[str, Any]) -> str:
    """Return a value of a line, or the whole line, as JSON.

    Raises:
        UsageError: JSON cannot hold the value, for example a cycle; the message names the row.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        where = line.get("source") or f"row {line.get('id')}"
        raise UsageError(f"{where}: its columns cannot be written as JSON: {error}") from None


def arrow_schema(aspects: Sequence[str], columns: Sequence[str] | None = None) -> Any:
    """Return the Arrow schema of lines; a column that is none of a line's is text.

    Args:
        aspects: the aspects of the run's rubric.
        columns: the columns in their order; None for those of a line.
    """
    import pyarrow

    columns = columns or list(to_line(Failure(id="", key="", error=""), tuple(aspects)))
    number, real, text = pyarrow.int64(), pyarrow.float64(), pyarrow.string()
    types = dict.fromkeys(columns, text) | {
        "rationale_cut": pyarrow.bool_(), "candidate_cut": number, "prompt_tokens": number,
        "output_tokens": number, "row": number,
    }  # fmt: skip
    for aspect in aspects:
        types |= {aspect: number, f"{aspect}_expected": real, f"{aspect}_probabilities": pyarrow.list_(real)}
    return pyarrow.schema(list(types.items()))
