"""Engines: what completes prompts under the token table.

The seam is one method: an iterator of prompts goes in, and completions come out in lists, each as its prompts
finish together. An engine pulls prompts when it has room for them and holds only so many at a time. What it
is told besides (`Decoding`) is the same for every row of a run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import TokenTable
from localjudge.engines.cluster import Cluster
from localjudge.engines.selection import ENGINES
from localjudge.errors import UsageError
from localjudge.prompts.prompt import Prompt
from localjudge.system.requirements import installed, require


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


def engine_options(options: Mapping[str, object]) -> dict[str, str]:
    """Normalize an engine's own options: `max-model-len` and `max_model_len` are one, and each value is text.

    Args:
        options: text as it is, any other value as JSON writes it; None is an option that is not given. Of two
            spellings of one option the later one counts.

    Raises:
        UsageError: a value cannot be written as JSON.
    """
    normalized: dict[str, str] = {}
    for name, value in options.items():
        try:
            text = value if isinstance(value, str) else json.dumps(value)
        except (TypeError, ValueError):
            raise UsageError(f"engine option {name}: give text, a number or true or false") from None
        if value is not None:
            normalized[name.replace("-", "_")] = text
    return normalized


def engine_extras(name: str, cluster: Cluster | None = None) -> list[str]:
    """Return the extras that an engine needs in this process.

    Raises:
        UsageError: no such engine.
    """
    if name not in ENGINES:
        raise UsageError(f"--engine {name}: there are {', '.join(ENGINES)}")
    if cluster is not None:
        return ["ray"]
    if name == "vllm":
        return ["vllm"]
    return ["cpu"] if name == "transformers" or (name == "auto" and installed("vllm") is None) else []


def check_engine(name: str, options: Mapping[str, str], cluster: Cluster | None = None) -> None:
    """Check what can be known of an engine before there is a model.

    Args:
        name: one of `ENGINES`.
        options: the engine's own options, normalized.
        cluster: the cluster whose workers have such an engine each, if any.

    Raises:
        UsageError: no such engine, its packages are not installed, or an option that it does not know.
    """
    extras = engine_extras(name, cluster)
    require("--ray" if cluster else f"--engine {name}", *extras)
    if options and name == "dry-run":
        from localjudge.engines.dry_run import parse_rate

        parse_rate(options)
    elif options and extras == ["cpu"]:
        from localjudge.engines.transformers import TransformersOptions

        TransformersOptions.parse(options)
