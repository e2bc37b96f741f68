"""Records that several modules share: rows as input, judgements and failures as output."""

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

    `source` is its place in the input ("answers.jsonl:17"); `columns` holds the other columns of the input.
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
        """The fields that identify this row in its outcome."""
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
        """Total characters of instruction, reference and candidate."""
        return len(self.instruction) + len(self.reference or "") + len(self.candidate)

    @property
    def digest(self) -> bytes:
        """Digest of instruction, reference and candidate, 16 bytes; duplicate rows share it."""
        return _text_digest([self.instruction, self.reference, self.candidate], 16)

    @property
    def group(self) -> str:
        """Digest of instruction and reference, 16 hex digits; rows with a common prompt prefix share it."""
        return _text_digest([self.instruction, self.reference], 8).hex()


def settings_digest(settings: Mapping[str, Any]) -> bytes:
    """Return the digest of everything that decides a judgement besides the row, 32 bytes."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).digest()


def row_key(settings: bytes, row: bytes) -> str:
    """Return the key of a judgement, 32 hex digits, from the digests of its settings and its row."""
    return hashlib.sha256(settings + row).hexdigest()[:32]


def _text_digest(texts: list[str | None], size: int) -> bytes:
    return hashlib.sha256(json.dumps(texts).encode()).digest()[:size]


class _Outcome(BaseModel):
    """Fields that judgements and failures share. An unreadable row has no `group` and no `digest`."""

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

    `scores` has an integer for each aspect. `probabilities` has, for each aspect, the model's own probability
    of every value of the scale, lowest first (they sum to 1); `expected` is their mean. Both are None if some
    value has no token of its own, because the distribution then cannot be measured. `rationale_cut` is True if
    the token limit, and not the model, ended the rationale. `candidate_cut` is the number of characters of the
    candidate that were left out to fit the model's context. `thoughts` is the text of a reasoning model before
    its answer, if the run keeps it.
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
    """A row that could not be judged, and the reason. It has no scores."""

    error: str
    prompt_tokens: int | None = None

    @property
    def status(self) -> Literal["failed"]:
        return "failed"


Outcome = Judgement | Failure
