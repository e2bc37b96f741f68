"""Engine for dry runs and tests: it answers at once, and its scores mean nothing.

It needs a model's configuration and tokenizer, not its weights. Its answers are complete, within the limit, and
consist of the model's own tokens. The answer depends on the prompt only.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.engines.engine_options import DryRunOptions, batch_invariance
from localjudge.engines.protocol import Completion, Decoding, EngineInfo, chunks
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

_POOL, _AT_ONCE = 48, 64
_TYPICAL = 60
"""Tokens of a text that a model typically writes when no length is requested."""


class DryRunEngine:
    """Return answers from a small pool."""

    def __init__(self, model: Model, decoding: Decoding, options: DryRunOptions) -> None:
        self.info = EngineInfo(
            name="dry-run",
            dtype="none",
            device="none",
            versions={},
            applies_table=True,
            context=options.context(model),
            batch_size=_AT_ONCE,
            batch_invariant=batch_invariance(supported=False),
            headline="engine dry-run · no model runs; the scores mean nothing",
        )
        self._rate = options.rate
        words = _words(model.vocabulary.pieces, len(decoding.table.next_state[0]))
        self._answer = cache(lambda seed: _answer(decoding, words, seed))
        values = decoding.table.score_token >= 0
        weights = np.random.default_rng(0).exponential(size=(_POOL, *values.shape)) * values
        self._probabilities = weights / weights.sum(axis=2, keepdims=True)
        self._prompt_tokens = 0

    def statistics(self) -> Mapping[str, Any]:
        return {"prompt_tokens": self._prompt_tokens, "rate": self._rate}

    def reset(self, at_once: int | None = None) -> None:
        """Do nothing: an answer depends on its prompt only."""

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for batch in chunks(prompts, _AT_ONCE):
            self._prompt_tokens += sum(len(prompt.tokens) for prompt in batch)
            yield [self._complete(prompt) for prompt in batch]

    def _complete(self, prompt: Prompt) -> Completion:
        digest = hashlib.sha256(array("i", prompt.tokens).tobytes()).digest()[:8]
        chosen = int.from_bytes(digest) % _POOL
        return Completion(prompt.tag, tuple(self._answer(chosen)), self._probabilities[chosen])


def _answer(decoding: Decoding, words: NDArray[np.bool_], seed: int) -> list[int]:
    """Return a path through the table: words for the texts, and the shortest path with random values."""
    random, table = np.random.default_rng(seed), decoding.table
    answer: list[int] = []
    allowances, state, began = decoding.allowances, table.entry, 0
    left = int(allowances[state])
    while not table.is_complete(state):
        after = table.next_state[state]
        allowed = table.allowed(state, left, decoding.closing_margin)
        goes_on = allowed & (table.text[after] >= 0) & (table.text[after] == table.text[state]) & words
        if len(answer) - began < _TYPICAL and goes_on.any():
            allowed = goes_on
        elif state not in table.score_state:
            need = np.where(allowed, table.tokens_required(state), np.iinfo(np.int32).max)
            allowed = need == need.min()
        token = int(random.choice(np.flatnonzero(allowed)))
        answer.append(token)
        left -= 1
        if allowances[after[token]] and after[token] != state:
            left, began = int(allowances[after[token]]), len(answer)
        state = int(after[token])
    return answer


def _words(pieces: Mapping[int, bytes], size: int) -> NDArray[np.bool_]:
    """Return bool (V,): True for each token that is a space and a word of plain letters."""
    are = np.zeros(size, bool)
    are[[token for token, piece in pieces.items() if piece[:1] == b" " and piece[1:].isalpha()]] = True
    return are
