"""Records that several modules share: rows as input, judgements and failures as output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from localjudge.records.keys import (
    RESPONSE_DIGESTS,
    RESPONSE_LENGTHS,
    response_digest,
    text_digest,
    word_overlap,
)


@dataclass(frozen=True, slots=True)
class Response:
    """A text to judge, and the system that wrote it."""

    text: str
    system: str | None = None


class Criterion(BaseModel):
    """What a response is checked for, and what it is worth.

    Attributes:
        text: the criterion.
        points: the points of a response that meets it; below 0 if it must not be met.
        name: a short name; None without one.
        tags: the groups of criteria that have a score of their own.
        part: its place among the criteria of its row, from 1.
        parts: the number of these criteria.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    text: str
    points: FiniteFloat = 1.0
    name: str | None = None
    tags: list[str] = Field(default_factory=list)
    part: int = 1
    parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One response to an instruction, or two to compare. `Row.from_response` makes a row of a single response.

    `swapped` is True if the two responses stand in the reverse of their order in the input. `fields` has the
    texts of further columns that the rubric's template uses, by their names in the template. `source` is the
    row's place in the input ("answers.jsonl:17"); `columns` holds the other columns of the input. `number`
    counts the rows of the whole input from 1; None if it is not known. `reads_reference` is False if the
    rubric's template does not use the reference, which then does not tell instructions apart. `criteria` has
    all criteria of a row of the input, or the only one that a prompt shows.
    """

    instruction: str
    responses: tuple[Response, ...]
    reference: str | None = None
    swapped: bool = False
    fields: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    source: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None
    reads_reference: bool = True
    criteria: tuple[Criterion, ...] = ()

    @classmethod
    def from_response(
        cls, *, instruction: str, candidate: str, system: str | None = None, **others: Any
    ) -> Self:
        """Return a row of a single response.

        Args:
            instruction: the instruction that the response answers.
            candidate: the response.
            system: the system that wrote it.
            others: `reference`, `fields`, `id`, `source` and `columns`.
        """
        return cls(instruction=instruction, responses=(Response(candidate, system),), **others)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the responses."""
        return tuple(response.text for response in self.responses)

    def texts_in_input_order(self, swapped: bool) -> tuple[str, ...]:
        """Return the texts of the responses in the input's order.

        Args:
            swapped: whether they stand in the reverse of that order, as their outcome says.
        """
        if swapped:
            return self.texts[::-1]
        return self.texts

    @property
    def candidate(self) -> str:
        """The text of the first response."""
        return self.responses[0].text

    @property
    def system(self) -> str | None:
        """The system that wrote the first response."""
        return self.responses[0].system

    @property
    def opponent(self) -> str | None:
        """The system that wrote the second response; None if there is no second one."""
        if len(self.responses) == 1:
            return None
        return self.responses[1].system

    def with_candidate(self, text: str) -> Self:
        """Return the row with another text of the first response."""
        first = replace(self.responses[0], text=text)
        return replace(self, responses=(first,) + self.responses[1:])

    def cut(self, length: int) -> Self:
        """Return the row with at most this many characters of each response."""
        responses = tuple(replace(response, text=response.text[:length]) for response in self.responses)
        return replace(self, responses=responses)

    @property
    def criterion(self) -> Criterion | None:
        """The only criterion; None if there are none, or several."""
        if len(self.criteria) != 1:
            return None
        return self.criteria[0]

    def reversed(self) -> Self:
        """Return the row with its responses in the other order."""
        return replace(self, responses=self.responses[::-1], swapped=not self.swapped)

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that identify this row in its outcome."""
        identity = self.origin
        identity["group"] = self.group
        identity["digest"] = self.digest.hex()
        # A row of one response has no digest and no length of a second one.
        identity.update(zip(RESPONSE_DIGESTS, self.response_digests, strict=False))
        lengths = [len(text) for text in self.texts]
        identity.update(zip(RESPONSE_LENGTHS, lengths, strict=False))
        identity["reference_overlap"] = self.reference_overlap
        return identity

    @property
    def origin(self) -> dict[str, Any]:
        """The fields of `identity` that do not follow from the texts."""
        return {
            "id": self.id,
            "system": self.system,
            "opponent": self.opponent,
            "swapped": self.swapped,
            "row": self.number,
            "source": self.source,
            "columns": dict(self.columns),
            "criterion": self.criterion,
        }

    @property
    def characters(self) -> int:
        """Total characters of all texts."""
        texts = [self.instruction] + list(self.texts) + list(self.fields.values())
        if self.reference is not None:
            texts.append(self.reference)
        for criterion in self.criteria:
            texts.append(criterion.text)
        return sum(len(text) for text in texts)

    @property
    def digest(self) -> bytes:
        """Digest of all texts, 16 bytes; duplicate rows share it."""
        texts: list[str | tuple[str, str] | None] = [self.instruction, self.reference]
        texts.extend(self.texts)
        texts.extend(sorted(self.fields.items()))
        for criterion in self.criteria:
            texts.append(("criterion", criterion.text))
        return text_digest(texts, size=16)

    @property
    def shared_texts(self) -> dict[str, str | None]:
        """The texts that the rubric reads, except the responses and criteria, by the names of their fields."""
        texts: dict[str, str | None] = {"instruction": self.instruction}
        if self.reads_reference:
            texts["reference"] = self.reference
        texts.update(sorted(self.fields.items()))
        return texts

    @property
    def group(self) -> str:
        """Digest of `shared_texts`, 16 hex digits; rows of one instruction share it."""
        texts: list[str | tuple[str, str] | None] = [self.instruction]
        if self.reads_reference:
            texts.append(self.reference)
        texts.extend(sorted(self.fields.items()))
        return text_digest(texts, size=8).hex()

    @property
    def response_digests(self) -> tuple[str, ...]:
        """Digest of the instruction and each response, 32 hex digits each: equal under every rubric."""
        return tuple(response_digest(self.instruction, text) for text in self.texts)

    @property
    def reference_overlap(self) -> float | None:
        """The overlap of the response's words with those of the reference; None for a pair, or without one."""
        if self.reference is None or len(self.responses) > 1:
            return None
        return word_overlap(self.candidate, self.reference)


class _Outcome(BaseModel):
    """Fields that judgements and failures share.

    In a pair, `system` wrote the response that the judge reads first and `opponent` the other one; `swapped` is
    True if they stand in the reverse of their order in the input.
    An unreadable row has no `group` and no digests. `response_digest` is the digest of the instruction and the
    response that the judge reads first, and `opponent_digest` that of the instruction and the other one.
    `characters` and `opponent_characters` are the lengths of these two, and
    `reference_overlap` is the overlap of a single response's words with those of the reference. `row` is the
    row's number in the whole input, from 1; None if it is not known. `criterion` is what the prompt asks, if
    the row has criteria of its own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str
    system: str | None = None
    opponent: str | None = None
    swapped: bool = False
    key: str
    group: str | None = None
    digest: str | None = None
    response_digest: str | None = None
    opponent_digest: str | None = None
    characters: int | None = None
    opponent_characters: int | None = None
    reference_overlap: FiniteFloat | None = None
    row: int | None = None
    source: str = ""
    columns: dict[str, Any] = Field(default_factory=dict)
    criterion: Criterion | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that identify the row, as `Row.identity` has them."""
        return {name: getattr(self, name) for name in _Outcome.model_fields if name != "key"}

    def copied_to(self, row: Row | Failure) -> Self:
        """Return this outcome for a row of the same content; itself if it belongs to the row already."""
        fields = row.origin if isinstance(row, Row) else row.identity
        if all(getattr(self, name) == value for name, value in fields.items()):
            return self
        if isinstance(self, Failure):
            fields["error"] = f"{row.source}: {self.reason}"
        return self.model_copy(update=fields)


class Judgement(_Outcome):
    """A row that was judged.

    `scores` has the value of each aspect: a number of its scale, a boolean or a label. A preference calls the
    response that the judge reads first A. `probabilities` has the probability of each value of an aspect, in
    the rubric's order, normalized so that their sum is 1, and `expected` the mean number of an ordered aspect;
    an aspect is missing from both if the engine does not know them. `not_likeliest` names the aspects whose
    score is not the value with the largest probability. `mass` is that sum before it was
    normalized: the share of the model's own probability that the values have, where any token could follow.
    `likeliest` says whether the model's likeliest token began a value. Both are missing where they are not
    known, and the mass is a lower bound where a server lists only some tokens.
    `texts` has the rationale, or one for each aspect, by the names of their columns.
    `rationale_cut` is True if the token limit, and not the model, ended a rationale. `candidate_cut` is the
    number of characters of the responses, and of tool results in a conversation, that the judge did not see.
    `thoughts` is the text of a reasoning model before its answer, if the run keeps it.
    """

    texts: dict[str, str]
    scores: dict[str, bool | int | str]
    not_likeliest: list[str] = Field(default_factory=list)
    expected: dict[str, FiniteFloat] = Field(default_factory=dict)
    probabilities: dict[str, list[FiniteFloat]] = Field(default_factory=dict)
    mass: dict[str, FiniteFloat] = Field(default_factory=dict)
    likeliest: dict[str, bool] = Field(default_factory=dict)
    rationale_cut: bool
    candidate_cut: int = 0
    thoughts: str | None = None
    prompt_tokens: int
    output_tokens: int

    @property
    def status(self) -> Literal["judged"]:
        return "judged"

    @property
    def error(self) -> None:
        """None, so that every outcome has this attribute."""

    @property
    def rationale(self) -> str:
        """The rationale, or those of all aspects, a line each; empty without any."""
        return "\n".join(self.texts.values())


class Failure(_Outcome):
    """A row that could not be judged, and the reason. It has no scores.

    `failed_answer` is the text that a server gave instead of an answer.
    """

    error: str
    failed_answer: str | None = None
    prompt_tokens: int | None = None

    @property
    def status(self) -> Literal["failed"]:
        return "failed"

    @property
    def reason(self) -> str:
        """The error without its place, so that equal reasons can be counted."""
        return self.error.removeprefix(f"{self.source}: ")


Outcome = Judgement | Failure


def numbered(rows: Iterable[Row | Failure], first: int = 1) -> Iterator[Row | Failure]:
    """Number the rows of an input."""
    for number, row in enumerate(rows, first):
        if isinstance(row, Row):
            yield replace(row, number=number)
        else:
            yield row.model_copy(update={"row": number})
