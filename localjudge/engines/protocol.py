"""The interface of engines, which complete prompts.

An engine that applies the token table is a `TableEngine`, and its completions are token ids. A server that
does not is a `TextEngine`, and its completions are text. The interface of both is one method: it takes an
iterator of prompts and yields lists of completions that finish together. It takes prompts when it has room for
them and has a bounded number in flight. Its other settings (`Decoding`) are the same for every row of a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import ValuePaths
from localjudge.prompts.task import Prompt

LARGEST_LOGPROB = 0.001
"""The largest log-probability that is a rounded 0; a larger number from a server is not a log-probability."""
SMALLEST_LOGPROB = -1000.0
"""A smaller number is that of a token that a mask excludes; vLLM writes -9999."""
_LARGEST_SUM = 1.05
"""The largest sum of the probabilities of some tokens, which may be rounded."""
BEGINNINGS = "shared_beginnings"
"""The name, among the details of an engine, of `KEPT`, or of why the beginnings of prompts are not kept."""
KEPT = "kept"
"""The engine keeps the beginnings that prompts share."""


def are_logprobs(numbers: Collection[float]) -> bool:
    """Return whether numbers can be the log-probabilities of some tokens at one place."""
    if any(number > LARGEST_LOGPROB for number in numbers):
        return False
    return sum(map(exp, numbers)) <= _LARGEST_SUM


Enforced = Literal["json_schema", "regex", "json_object", "none"]
"""What a server enforces of an answer: its JSON schema, the pattern of its form, only JSON, or nothing."""
NOT_ENFORCED: Mapping[str | None, str] = {
    "json_object": "not enforced: the server was asked for any JSON object, and only the prompt says which; an "
    "answer that is not exactly of the rubric's form failed",
    "none": "not enforced: the server was asked for text, and only the prompt says the form of the answer; an "
    "answer that is not exactly of this form failed",
}
"""The notice of a judge whose server enforces less than the form of the answer, by what it enforces."""


class EngineInfo(BaseModel):
    """The device and the settings of an open engine. `run.json` records them.

    Attributes:
        name: the engine's name.
        dtype: the type of the weights.
        device: the device of the model.
        versions: the versions of the engine's libraries, by name.
        applies_table: True if the engine applies the token table, so that every answer is complete. A black
            box, such as a server, does not: its answers are text that may not parse.
        head_dtype: the type of the last layer where a value is picked; None if the engine does not know it.
        context: the largest number of tokens of a prompt and its answer; None if there is no limit.
        batch_size: prompts in a batch, for an engine that computes one fixed batch after the other.
        max_num_seqs: the largest number of prompts in progress, for an engine that takes a prompt when another
            one finishes.
        batch_invariant: True if results are independent of the batch; None if this was not requested.
        enforced: what a server that applies no token table took; None for every other engine.
        details: further settings of this engine, by name; `unexplored` is the largest share of an aspect's mass
            whose values the model was not asked for (`localjudge.constraint.value_paths`).
        headline: one line for people: the device and the capacity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str
    device: str
    versions: dict[str, str]
    applies_table: bool
    head_dtype: str | None = None
    context: int | None = None
    batch_size: int | None = None
    max_num_seqs: int | None = None
    batch_invariant: bool | None = None
    enforced: Enforced | None = None
    details: dict[str, JsonValue] = Field(default_factory=dict)
    headline: str

    @property
    def at_once(self) -> int:
        """The most prompts that are computed together; 1 for an engine that does not say."""
        if self.batch_size is not None:
            return self.batch_size
        if self.max_num_seqs is not None:
            return self.max_num_seqs
        return 1

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the engine that decide a judgement, as a run records them.

        `head_dtype` is one of them where it differs from `dtype`, and `enforced` where the engine has it.
        """
        settings: dict[str, str] = {"engine": self.name, "dtype": self.dtype}
        if self.head_dtype is not None and self.head_dtype != self.dtype:
            settings["head_dtype"] = self.head_dtype
        if self.enforced is not None:
            settings["enforced"] = self.enforced
        return settings


def types_in_words(dtype: str, head_dtype: str | None) -> str:
    """Return the types of an engine's weights and of the last layer where a value is picked, for people."""
    if head_dtype is None or head_dtype == dtype:
        return dtype
    return f"{dtype}, values in {head_dtype}"


@dataclass(frozen=True, slots=True)
class Decoding:
    """The settings for decoding answers.

    Attributes:
        table: the token table.
        text_tokens: the largest number of tokens of each text of an answer, at least 1.
        thinking_budget: the largest number of tokens of thinking before the answer; None without thinking.
        closing_margin: number of tokens before the limit from which a rationale closes after a whole sentence.
        temperature: 0 picks the most likely token.
        top_p: the share of the probability mass to sample from, above 0 and up to 1.
    """

    table: TokenTable
    text_tokens: int
    closing_margin: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    thinking_budget: int | None = None

    @property
    def limit(self) -> int:
        """The largest number of tokens of an answer."""
        return self.table.limit(self.text_tokens)

    @property
    def max_tokens(self) -> int:
        """Limit of tokens in total: thoughts, the tokens that end them, and the answer."""
        after_thoughts = int(self.table.distance[self.table.entry]) - self.table.smallest_limit
        thoughts = 0 if self.thinking_budget is None else self.thinking_budget
        return thoughts + after_thoughts + self.limit

    @property
    def allowances(self) -> NDArray[np.int64]:
        """Return `TokenTable.allowances` of these settings, (S,)."""
        return self.table.allowances(self.text_tokens, self.thinking_budget)


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete answer, or the reason why the engine has none.

    Attributes:
        tag: the tag of its prompt.
        tokens: its token ids, thoughts included, up to the token that completes it.
        probabilities: float64 (A, K): for each aspect the probability of each value, before temperature and
            top-p, normalized so that their sum is 1, and 0 after its last value; NaN for an aspect if the
            engine does not know them.
        mass: float64 (A,): their sum before they are normalized, which is the share of the model's own
            probability, over its whole vocabulary, that the values have.
        likeliest: bool (A,): whether the model's likeliest token begins a value.
        error: the reason why the engine could not answer this prompt.
    """

    tag: int
    tokens: tuple[int, ...] = ()
    probabilities: NDArray[np.float64] | None = None
    mass: NDArray[np.float64] | None = None
    likeliest: NDArray[np.bool_] | None = None
    error: str | None = None


def completion(
    prompt: Prompt,
    tokens: list[int],
    paths: ValuePaths,
    kept: NDArray[np.float64],
    required: NDArray[np.bool_] | None = None,
) -> Completion:
    """Return the completion of a prompt.

    Args:
        prompt: the prompt.
        tokens: the tokens of its answer.
        paths: the ways in which values are written.
        kept: what `ScoreBuffer.take` gives for the answer.
        required: bool (A,): the aspects whose probabilities the engine must know; None for all.
    """
    probabilities, mass, likeliest = paths.values(kept)
    required_probabilities = probabilities if required is None else probabilities[required]
    if not np.isfinite(required_probabilities).all():
        return Completion(prompt.tag, error="the model's probabilities of a score are not finite numbers")
    return Completion(prompt.tag, tuple(tokens), probabilities, mass, likeliest)


@dataclass(frozen=True, slots=True)
class TokenChoice:
    """A token of a text, and the tokens that the server lists in its place.

    Attributes:
        text: the text of the token.
        alternatives: the text of each listed token and its log-probability, None if the server gives none.
            Different tokens can have the same text.
    """

    text: str
    alternatives: Sequence[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class TextCompletion:
    """An answer as text, which may not be whole.

    Attributes:
        tag: the tag of its prompt.
        text: the text; thoughts may stand before the answer.
        thoughts: the thoughts, if the server gives them apart from the text.
        finished: whether the model, and not the limit of its tokens, ended it.
        choices: the tokens of the text; empty if the server does not give them.
        masked: whether their log-probabilities are those after the enforced form, which hides the mass.
        prompt_tokens: number of tokens of the prompt; 0 if the server does not say.
        output_tokens: number of tokens of thoughts and text; 0 if the server does not say.
        error: the reason why there is no answer; `text` is then what the server gave instead of one.
    """

    tag: int
    text: str = ""
    thoughts: str = ""
    finished: bool = True
    choices: Sequence[TokenChoice] = field(default=(), repr=False)
    masked: bool = False
    prompt_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


class Engine(Protocol):
    """The interface of all engines, with or without the token table."""

    @property
    def info(self) -> EngineInfo:
        """The device of the open engine, and its settings."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Return the counts so far: prompt tokens, cached prompt tokens, restarts …"""
        ...

    def reset(self, at_once: int | None = None) -> None:
        """Forget the beginnings of earlier prompts, and complete later ones in batches of another size.

        No prompt may be in flight. A server keeps the beginnings that it knows.

        Args:
            at_once: the most prompts in a batch or in progress from now on, at least 1; None for as many as
                `info` says.

        Raises:
            EngineError: the engine has died.
        """
        ...

    def close(self) -> None:
        """End the engine and free its memory. It is not used again."""
        ...


class TableEngine(Engine, Protocol):
    """An engine that applies the token table: its answers are token ids, and complete by construction."""

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        """Answer all prompts, each exactly once; yield lists of answers that finished together.

        If the prompts raise `StopSubmitting`, finish the prompts in flight as if they had ended normally. None
        among the prompts means that no further prompt is ready: continue with those in flight, and return if
        there are none. An engine may ask for more while it has prompts in flight.

        Raises:
            EngineError: the engine failed; prompts that are not answered yet get no answer.
        """
        ...


class TextEngine(Engine, Protocol):
    """An engine that applies no table: its answers are text; its server may enforce that they are complete."""

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[TextCompletion]]:
        """Do what `TableEngine.complete` does, with the texts of the prompts."""
        ...
