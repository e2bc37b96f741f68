"""The interface of engines, which complete prompts under the constraint of the token table.

The interface is one method: it takes an iterator of prompts and yields lists of completions that finish
together. An engine takes prompts when it has room for them and has a bounded number in flight. Its other
settings (`Decoding`) are the same for every row of a run.
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
        thinking_budget: the most tokens of thinking before the answer; None if the model answers at once.
        closing_margin: how many tokens before the limit a rationale closes after a complete sentence.
        temperature: 0 picks the most likely token.
        top_p: the share of the probability mass to sample from, above 0 and up to 1.
    """

    table: TokenTable
    limit: int
    closing_margin: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    thinking_budget: int | None = None

    @property
    def max_tokens(self) -> int:
        """Limit of tokens in total: thoughts, the token that ends them, and the answer."""
        return self.limit if self.thinking_budget is None else self.thinking_budget + 1 + self.limit


@dataclass(frozen=True, slots=True)
class Completion:
    """A complete answer: token ids, thoughts included, without the end token.

    `probabilities` is float64 (A, K), the model's own probabilities of each value of the scale at each aspect,
    before temperature and top-p; None if one position does not hold them. `error` is set instead if the
    engine could not answer this prompt.
    """

    tag: int
    tokens: tuple[int, ...] = ()
    probabilities: NDArray[np.float64] | None = None
    error: str | None = None


def completion(tag: int, tokens: list[int], kept: NDArray[np.float64]) -> Completion:
    """Return a completion from its tokens and its kept scores (`TokenTable.kept_shape`)."""
    if not np.isfinite(kept).all():
        return Completion(tag, error="the model's probabilities of a score are not finite numbers")
    return Completion(tag, tuple(tokens), kept if kept.shape[1] > 1 else None)


class Engine(Protocol):
    """Completes prompts."""

    def complete(self, prompts: Iterable[Prompt]) -> Iterator[list[Completion]]:
        """Answer all prompts, each exactly once; yield lists of answers that finished together.

        If the prompts raise `StopSubmitting`, finish the prompts in flight as if they had ended normally.

        Raises:
            EngineError: the engine failed; prompts that are not answered yet get no answer.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """Return versions, device and settings, for the run's manifest."""
        ...

    def headline(self) -> str:
        """Return one line for people: the device and the capacity of the engine."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Return the counts so far: prompt tokens, cached prompt tokens, restarts …"""
        ...

    def close(self) -> None:
        """End the engine and free its memory. It is not used again."""
        ...
