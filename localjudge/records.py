"""The records that cross modules: a row on its way in, a judgement or a failure on its way out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from localjudge.errors import UsageError


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

    @property
    def identity(self) -> dict[str, Any]:
        """What every outcome of this row says of it."""
        return {
            "id": self.id,
            "system": self.system,
            "group": self.group,
            "digest": self.digest.hex(),
            "source": self.source,
            "columns": dict(self.columns),
        }

    @property
    def characters(self) -> int:
        """The length of its texts."""
        return len(self.instruction) + len(self.reference or "") + len(self.candidate)

    @property
    def digest(self) -> bytes:
        """Of what is judged, 16 bytes: equal for rows that are the same work."""
        return _digest([self.instruction, self.reference, self.candidate], 16)

    @property
    def group(self) -> str:
        """Of the instruction and the reference, 16 hex digits: equal for rows whose prompts begin alike."""
        return _digest([self.instruction, self.reference], 8).hex()


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Of everything that decides a judgement besides the row, 32 bytes."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()


def row_key(settings: bytes, row: bytes) -> str:
    """The key of a judgement, 32 hex digits: of the settings' digest and the row's."""
    return hashlib.sha256(settings + row).hexdigest()[:32]


def _digest(texts: list[str | None], size: int) -> bytes:
    return hashlib.blake2b(json.dumps(texts).encode(), digest_size=size).digest()


class _Outcome(BaseModel):
    """What is said of a row whatever became of it. An unreadable row has no `group` and no `digest`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    system: str | None = None
    key: str
    group: str | None = None
    digest: str | None = None
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


def to_line(outcome: Outcome, aspects: tuple[str, ...], number: int | None = None) -> dict[str, Any]:
    """The flat form of an outcome: one JSON object, the same columns for judgements and failures.

    Args:
        outcome: a judgement or a failure.
        aspects: of its rubric.
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
    """Whether this is a line of a run: what `to_line` makes for these aspects."""
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
        isinstance(line.get(aspect), int)
        and isinstance(line.get(f"{aspect}_expected", ""), float | int | None)
        and isinstance(line.get(f"{aspect}_probabilities", ""), list | None)
        for aspect in aspects
    )


def given_to(line: dict[str, Any], row: Row | Failure, number: int) -> dict[str, Any]:
    """The line of a row that is the same work as the row of this line; the line itself, if it is that row's."""
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
    """The outcome that a line holds: the inverse of `to_line`.

    Raises:
        ValueError: the line is not of a run with these aspects.
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
"""The columns of every line, whatever the rubric's aspects."""
RESERVED_COLUMNS = COMMON_COLUMNS | {"instruction", "reference", "candidate", "model", "notice"}
"""Those, and the columns that an export adds to them."""


def to_json(value: Any, line: Mapping[str, Any]) -> str:
    """Write a value of a line, or all of it, as JSON.

    Raises:
        UsageError: it holds what JSON cannot, such as a cycle; the message names the row.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        where = line.get("source") or f"row {line.get('id')}"
        raise UsageError(f"{where}: its columns cannot be written as JSON: {error}") from None
