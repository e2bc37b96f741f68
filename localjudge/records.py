"""The records that cross modules: a row on its way in, a judgement or a failure on its way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, slots=True)
class Row:
    """A response to judge.

    `source` is where it stands ("answers.jsonl:17"); `columns` holds whatever else the input had.
    """

    instruction: str
    candidate: str
    reference: str | None = None
    id: str = ""
    system: str | None = None
    source: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)


class _Outcome(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    system: str | None = None
    key: str
    source: str = ""
    columns: dict[str, Any] = Field(default_factory=dict)


class Judgement(_Outcome):
    """A row that was judged.

    `scores` has an integer for each aspect. `probabilities` has, for each aspect, the model's own
    probability of every value of the scale, lowest first (they sum to 1); `expected` is their mean. Both
    are None where the tokenizer spells two values with the same first token: what cannot be measured is
    not guessed. `rationale_cut` says that the token limit, and not the model, ended the rationale;
    `candidate_cut`, how many characters of the candidate the model was not shown, because the prompt would
    not have fitted its context. `thoughts` is what a reasoning model thought before, where it was to be kept.
    """

    rationale: str
    scores: dict[str, int]
    expected: dict[str, float] | None = None
    probabilities: dict[str, list[float]] | None = None
    rationale_cut: bool
    candidate_cut: int = 0
    thoughts: str | None = None
    prompt_tokens: int
    output_tokens: int

    @property
    def status(self) -> Literal["judged"]:
        return "judged"


class Failure(_Outcome):
    """A row that could not be judged, and why. It has no scores, not even made-up ones."""

    error: str
    prompt_tokens: int | None = None

    @property
    def status(self) -> Literal["failed"]:
        return "failed"


Outcome = Judgement | Failure


def to_line(outcome: Outcome, aspects: tuple[str, ...]) -> dict[str, Any]:
    """The flat form of an outcome: one JSON object, the same columns for judgements and failures."""
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
    line["source"] = outcome.source
    line["columns"] = outcome.columns
    return line


def from_line(line: Mapping[str, Any], aspects: tuple[str, ...]) -> Outcome:
    """The outcome that a line holds: the inverse of `to_line`.

    Raises:
        ValueError: the line is not of a run with these aspects.
    """
    common = {name: line.get(name) for name in ("id", "system", "key", "source", "columns", "prompt_tokens")}
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


RESERVED_COLUMNS = frozenset(to_line(Failure(id="", key="", error=""), ()))
