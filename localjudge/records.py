"""The records that cross modules: a row on its way in, a judgement or a failure on its way out."""

from __future__ import annotations

import hashlib
import json
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
    return hashlib.sha256(json.dumps(texts).encode()).digest()[:size]


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
