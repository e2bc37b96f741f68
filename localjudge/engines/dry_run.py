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
from localjudge.engines.prompt_batches import chunks
from localjudge.engines.protocol import Completion, Decoding, EngineInfo
from localjudge.models.model import Model
from localjudge.prompts.task import Prompt

_POOL_SIZE = 48
"""The number of different answers."""
_BATCH_SIZE = 64
_TYPICAL_TOKENS = 60
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
            batch_size=_BATCH_SIZE,
            batch_invariant=batch_invariance(supported=False),
            headline="engine dry-run · no model runs; the scores mean nothing",
        )
        self._rate = options.rate
        words = _words(model.vocabulary.pieces, len(decoding.table.next_state[0]))
        self._answer = cache(lambda seed: _answer(decoding, words, seed))
        values = decoding.table.score_token >= 0
        weights = np.random.default_rng(0).exponential(size=(_POOL_SIZE, *values.shape)) * values
        self._probabilities = weights / weights.sum(axis=2, keepdims=True)
        self._prompt_tokens = 0

    def statistics(self) -> Mapping[str, Any]:
        return {"prompt_tokens": self._prompt_tokens, "rate": self._rate}

    def reset(self, at_once: int | None = None) -> None:
        """Do nothing: an answer depends on its prompt only."""

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def complete(self, prompts: Iterable[Prompt | None]) -> Iterator[list[Completion]]:
        for batch in chunks(prompts, _BATCH_SIZE):
            self._prompt_tokens += sum(len(prompt.tokens) for prompt in batch)
            yield [self._complete(prompt) for prompt in batch]

    def _complete(self, prompt: Prompt) -> Completion:
        digest = hashlib.sha256(array("i", prompt.tokens).tobytes()).digest()[:8]
        number = int.from_bytes(digest) % _POOL_SIZE
        return Completion(prompt.tag, tuple(self._answer(number)), self._probabilities[number])


def _answer(decoding: Decoding, words: NDArray[np.bool_], seed: int) -> list[int]:
    """Return a path through the table: words for the texts, and the shortest path with random values."""
    random = np.random.default_rng(seed)
    table = decoding.table
    allowances = decoding.allowances
    answer: list[int] = []
    state = table.entry
    text_begin = 0
    tokens_left = int(allowances[state])
    while not table.is_complete(state):
        next_states = table.next_state[state]
        allowed = table.allowed(state, tokens_left, decoding.closing_margin)
        stays_in_text = (table.text[next_states] >= 0) & (table.text[next_states] == table.text[state])
        next_words = allowed & stays_in_text & words
        if len(answer) - text_begin < _TYPICAL_TOKENS and next_words.any():
            allowed = next_words
        elif state not in table.score_state:
            required = np.where(allowed, table.tokens_required(state), np.iinfo(np.int32).max)
            allowed = required == required.min()
        token = int(random.choice(np.flatnonzero(allowed)))
        answer.append(token)
        tokens_left -= 1
        next_state = int(next_states[token])
        if allowances[next_state] and next_state != state:
            tokens_left = int(allowances[next_state])
            text_begin = len(answer)
        state = next_state
    return answer


def _words(pieces: Mapping[int, bytes], size: int) -> NDArray[np.bool_]:
    """Return bool (V,): True for each token that is a space and a word of plain letters."""
    words = [token for token, piece in pieces.items() if piece[:1] == b" " and piece[1:].isalpha()]
    is_word = np.zeros(size, bool)
    is_word[words] = True
    return is_word
