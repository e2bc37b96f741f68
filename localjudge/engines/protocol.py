"""The interface of engines, which complete prompts.

An engine that applies the token table is a `TableEngine`, and its completions are token ids. A server that
does not is a `TextEngine`, and its completions are text. The interface of both is one method: it takes an
iterator of prompts and yields lists of completions that finish together. It takes prompts when it has room for
them and has a bounded number in flight. Its other settings (`Decoding`) are the same for every row of a run.

Engines that do not take a prompt at a time cut the prompts into chunks in input order, or into batches of
similar length, which cost little padding.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import exp
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.value_paths import ValuePaths
from localjudge.prompts.task import Prompt, StopSubmitting

LARGEST_LOGPROB = 0.001
"""The largest log-probability that is a rounded 0; a larger number from a server is not a log-probability."""
SMALLEST_LOGPROB = -1000.0
"""A smaller number is that of a token that a mask excludes; vLLM writes -9999."""
_LARGEST_SUM = 1.05
"""The largest sum of the probabilities of some tokens, which may be rounded."""
# The upper ends of the intervals of lengths. They grow by 2^(1/8): a full batch has at most 9 % padding.
_INTERVALS = [int(32 * 2 ** (step / 8)) for step in range(120)]
# Prompts that fill no batch of one interval share batches. This bounds the longest of a batch relative to its
# shortest. A larger bound makes fewer batches with more padding: in runs of 16 rows, 15 % at 1.5 and 21 % at 2.
_SPREAD = 1.5
# With these rotary embeddings, the rotation of a token depends on the longest row of its batch.
_BATCH_ROPE_TYPES = {"dynamic", "longrope"}


BEGINNINGS, KEPT = "shared_beginnings", "kept"
"""Among the details of an engine: "kept", or why the beginnings that prompts share are not kept."""


def are_logprobs(numbers: Collection[float]) -> bool:
    """Return whether numbers can be the log-probabilities of some tokens at one place."""
    return all(each <= LARGEST_LOGPROB for each in numbers) and sum(map(exp, numbers)) <= _LARGEST_SUM


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
        return self.batch_size or self.max_num_seqs or 1

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
        ends = int(self.table.distance[self.table.entry]) - self.table.smallest_limit
        return self.limit + ends + (self.thinking_budget or 0)

    @property
    def allowances(self) -> NDArray[np.int64]:
        """Return `TokenTable.allowances` of these settings, (S,)."""
        return self.table.allowances(self.text_tokens, self.thinking_budget)


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete answer: token ids, thoughts included, up to the token that completes it.

    `probabilities` is float64 (A, K): for each aspect the probability of each value, before temperature and
    top-p, normalized so that their sum is 1, and 0 after its last value; NaN for an aspect if the engine does
    not know them. `mass` is their sum before that, (A,): the share of the model's own probability, over its
    whole vocabulary, that the values have. `likeliest` says whether the model's likeliest token begins a value,
    bool (A,). `error` is set instead if
    the engine could not answer this prompt.
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
    known: NDArray[np.bool_] | None = None,
) -> Completion:
    """Return the completion of a prompt from its tokens and what `ScoreBuffer.take` gives for it.

    `known` says for which aspects the engine has to know the probabilities, bool (A,); None for all.
    """
    probabilities, mass, likeliest = paths.values(kept)
    required = probabilities if known is None else probabilities[known]
    if not np.isfinite(required).all():
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


def chunks(prompts: Iterable[Prompt | None], size: int) -> Iterator[list[Prompt]]:
    """Yield lists of prompts in input order, and the rest at the end, at None or at `StopSubmitting`.

    A list has `size` prompts, and those that follow with the same instruction, at most twice as many, so that
    one worker computes what they share.
    """
    chunk: list[Prompt] = []
    with suppress(StopSubmitting):
        for prompt in prompts:
            if prompt is None:
                break
            shared = [chunk[-1].tokens[:end] == prompt.tokens[:end] for end in prompt.beginnings[1:2] if chunk]
            if len(chunk) == 2 * size or (len(chunk) >= size and not any(shared)):
                yield chunk
                chunk = []
            chunk.append(prompt)
    if chunk:
        yield chunk


def batches(prompts: Iterable[Prompt | None], size: int, *, mixed: bool) -> Iterator[list[Prompt]]:
    """Yield batches of up to `size` prompts of similar length.

    A batch of `size` prompts of one interval of lengths comes as soon as it is complete. The prompts that are
    left at the end are sorted by length, longest first, and divided into batches. `StopSubmitting` ends the
    batches without them.

    The content of a batch does not change if other batches are removed from the input, so a run that is
    continued computes the same batches. This holds because the rest of an interval comes after its full
    batches, and a batch of the rest ends when it is full or when the next prompt, and so each later one, is too
    short for it.

    Args:
        prompts: the prompts, in a fixed order.
        size: the most prompts of a batch.
        mixed: whether the prompts left at the end may share a batch with prompts of other intervals.
    """
    waiting: dict[int, list[Prompt]] = defaultdict(list)
    try:
        for prompt in prompts:
            if prompt is None:
                break
            similar = waiting[_interval(prompt)]
            similar.append(prompt)
            if len(similar) == size:
                yield waiting.pop(_interval(prompt))
    except StopSubmitting:
        return
    batch: list[Prompt] = []
    for prompt in sorted(chain(*waiting.values()), key=lambda each: len(each.tokens), reverse=True):
        if batch and (len(batch) == size or not _similar(batch[0], prompt, mixed=mixed)):
            yield batch
            batch = []
        batch.append(prompt)
    if batch:
        yield batch


def rotates_by_batch(config: Any) -> bool:
    """Return whether the result of a row depends on the longest row of its batch.

    Prompts of different intervals must not share a batch then (`batches`). The rotation of such a model changes
    at a length that is usually a power of two, and each power of two ends an interval.

    Args:
        config: the transformers configuration of a language model.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    types = {each.get("rope_type") for each in (rope, *rope.values()) if isinstance(each, dict)}
    return not types.isdisjoint(_BATCH_ROPE_TYPES)


def _interval(prompt: Prompt) -> int:
    return bisect.bisect_left(_INTERVALS, len(prompt.tokens))


def _similar(longest: Prompt, prompt: Prompt, *, mixed: bool) -> bool:
    within = mixed and len(longest.tokens) <= _SPREAD * len(prompt.tokens)
    return within or _interval(longest) == _interval(prompt)
