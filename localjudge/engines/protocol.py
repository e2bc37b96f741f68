"""Engines: what completes prompts under the token table.

The seam is one method: an iterator of prompts goes in, and completions come out in lists, each as its prompts
finish together. An engine pulls prompts when it has room for them and holds only so many at a time. What it
is told besides (`Decoding`) is the same for every row of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import TokenTable
from localjudge.prompts.prompt import Prompt

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
"""The environment variable that asks vLLM for results that do not depend on the batch."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How answers are decoded.

    Attributes:
        table: the token table.
        limit: the most tokens of an answer.
        thinking_budget: the most tokens of thinking before it; None where the model answers at once.
        closing_margin: how near the limit a rationale closes at the end of a sentence, in tokens.
        temperature: 0 picks the likeliest token.
        top_p: the share of the probability that sampling picks from, above 0 and up to 1.
    """

    table: TokenTable
    limit: int
    closing_margin: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    thinking_budget: int | None = None

    @property
    def max_tokens(self) -> int:
        """The most tokens in all: thoughts, the token that ends them, and the answer."""
        return self.limit if self.thinking_budget is None else self.thinking_budget + 1 + self.limit


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete answer: token ids, thoughts included, without the end token.

    `probabilities` is float64 (A, K), the model's own probabilities of each value of the scale at each aspect,
    before temperature and top-p; None where one position does not hold them. `error` is set instead where the
    engine could not answer this prompt.
    """

    tag: int
    tokens: tuple[int, ...] = ()
    probabilities: NDArray[np.float64] | None = None
    error: str | None = None


def completion(tag: int, tokens: list[int], kept: NDArray[np.float64]) -> Completion:
    """A completion from its tokens and what was kept of its scores (`TokenTable.kept_shape`)."""
    if not np.isfinite(kept).all():
        return Completion(tag, error="the model's probabilities of a score are not finite numbers")
    return Completion(tag, tuple(tokens), kept if kept.shape[1] > 1 else None)


class Engine(Protocol):
    """Completes prompts."""

    def complete(self, prompts: Iterable[Prompt]) -> Iterator[list[Completion]]:
        """Answers to all prompts, each exactly once, in lists of those that finished together.

        At a `Halt` of the prompts it finishes what it has begun, as it would have without one.

        Raises:
            EngineError: the engine broke; the prompts not yet answered are lost to it.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """Versions, device and settings, for the run's record of itself."""
        ...

    def headline(self) -> str:
        """One line on what it runs on and holds, for a person."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """What it counted so far: prompt tokens, cached ones, restarts …"""
        ...

    def close(self) -> None:
        """End the engine and free its memory. It is not used again."""
        ...
