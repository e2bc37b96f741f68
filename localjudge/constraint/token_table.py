"""The token table: which tokens may come next, and how many are needed to finish.

Outlines turns the answer's schema into a regular expression, and the expression and the vocabulary into an
index: states, and for each state the tokens allowed and the state each leads to. An index alone does not
keep an answer whole, because a model that never closes its rationale runs into the token limit. So the table
knows how far each state is from the end:

    next_state[s, t]   where token t leads from state s, -1 where it is not allowed
    distance[s]        tokens that suffice from s to a complete answer, whatever scores are picked
    need[s, t]         distance[next_state[s, t]]

With `left` tokens left, token t is allowed in state s exactly when `need[s, t] <= left - 1`. If
`distance[start] <= limit`, some token is always allowed and the answer is complete within the limit: where
the choice is free, `distance[s]` is one more than the smallest need, so the token with that need is allowed;
where a score is picked, it is one more than the largest need, so every score is allowed. Either way the next
state again satisfies `distance <= left`, and at `left = 0` only a complete answer has distance 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.vocabulary import Vocabulary

UNREACHABLE = int(np.iinfo(np.int16).max)
"""The distance of a state from which no answer can be completed."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The answers to one rubric as one model's tokens. S states, V the width of the logits, A aspects.

    Attributes:
        next_state: int16 (S, V), the state that a token leads to; -1 where the grammar forbids it.
        distance: int16 (S,), tokens that suffice to complete the answer; `UNREACHABLE` where none do.
        in_rationale: bool (S,), whether the rationale can still grow from here.
        sentence_end: bool (S,), whether a sentence of the rationale has just ended.
        score_state: int16 (A,), the state in which each aspect's score is picked.
        score_token: int32 (A, K), the token of each value of the scale, lowest first; -1 throughout where
            some value has no token of its own, so that one position does not hold the distribution.
        start: the state of an empty answer.
        thinking: the state of a model that thinks before it answers; None where it answers at once.
    """

    next_state: NDArray[np.int16]
    distance: NDArray[np.int16]
    in_rationale: NDArray[np.bool_]
    sentence_end: NDArray[np.bool_]
    score_state: NDArray[np.int16]
    score_token: NDArray[np.int32]
    start: int
    thinking: int | None = None

    @property
    def entry(self) -> int:
        """The state before the first token."""
        return self.start if self.thinking is None else self.thinking

    @property
    def smallest_limit(self) -> int:
        """The fewest tokens that can always hold an answer, with one token of rationale."""
        return int(self.distance[self.start])

    @property
    def has_probabilities(self) -> bool:
        return bool((self.score_token >= 0).all())

    @property
    def kept_shape(self) -> tuple[int, int]:
        """What is kept of an answer's scores: (A, K) probabilities, or (A, 1) where one position holds none."""
        aspects, values = self.score_token.shape
        return aspects, values if self.has_probabilities else 1

    def limit(self, max_rationale_tokens: int) -> int:
        """The most tokens of an answer whose rationale has at most this many.

        Raises:
            ValueError: no answer fits.
        """
        if max_rationale_tokens < 1:
            raise ValueError(
                f"a rationale of {max_rationale_tokens} tokens leaves no room for an answer; "
                f"the smallest that works is 1 ({self.smallest_limit} tokens in all)"
            )
        return self.smallest_limit - 1 + max_rationale_tokens

    def after_thinking(self, vocabulary: Vocabulary, opens: int | None, ends: int, limit: int) -> TokenTable:
        """The table of a model that thinks until the token `ends`, and then answers within `limit` tokens.

        Thoughts are text, and the token that opens them. They need `limit` tokens to be left for the answer, so
        an engine that allows `budget + 1 + limit` tokens in all ends the thinking after `budget` of them.

        Raises:
            ValueError: the limit is larger than a distance can be.
        """
        if limit + 1 >= UNREACHABLE:
            largest = UNREACHABLE - 1 - self.smallest_limit
            raise ValueError(f"the largest that works for a model that thinks is {largest}")
        thinking = len(self.distance)
        thoughts = np.full(self.next_state.shape[1], -1, np.int16)
        thoughts[[*vocabulary.pieces, *([] if opens is None else [opens])]] = thinking
        thoughts[ends] = self.start
        nothing = np.zeros(1, bool)
        return replace(
            self,
            next_state=np.vstack([self.next_state, thoughts]),
            distance=np.append(self.distance, np.int16(limit + 1)),
            in_rationale=np.append(self.in_rationale, nothing),
            sentence_end=np.append(self.sentence_end, nothing),
            thinking=thinking,
        )

    def split(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """The thoughts and the answer, without the token between them."""
        if self.thinking is None:
            return [], list(tokens)
        end = next(
            rank for rank, token in enumerate(tokens) if self.next_state[self.thinking, token] == self.start
        )
        return list(tokens[:end]), list(tokens[end + 1 :])

    def tokens_required(self, state: int, closing_margin: int = 0) -> NDArray[np.int32]:
        """Tokens needed after each token, int32 (V,); `UNREACHABLE` or more where it is not allowed."""
        after = self.next_state[state]
        need = np.where(after >= 0, self.distance[after], UNREACHABLE).astype(np.int32)
        if self.sentence_end[state]:
            need[(after >= 0) & self.in_rationale[after]] += closing_margin
        return need

    def allowed(self, state: int, left: int, closing_margin: int = 0) -> NDArray[np.bool_]:
        """Whether each token may come next with `left` tokens left, bool (V,): the rule, as it reads."""
        return self.tokens_required(state, closing_margin) <= min(left - 1, UNREACHABLE - 1)

    def states(self, tokens: Iterable[int]) -> list[int]:
        """The states before each token of an answer and after the last.

        Raises:
            ValueError: a token is not allowed where it stands.
        """
        path = [self.start]
        for token in tokens:
            state = int(self.next_state[path[-1], token])
            if state < 0:
                raise ValueError(f"token {token} is not allowed at position {len(path) - 1}")
            path.append(state)
        return path

    def is_complete(self, state: int) -> bool:
        return bool(self.distance[state] == 0)

    def save(self, file: Path, key: str = "") -> None:
        """Write the table to a file, under a key that `load` must be given again."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        parts["thinking"] = -1 if self.thinking is None else self.thinking
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, key=np.array(key), **parts)

    @classmethod
    def load(cls, file: Path, key: str = "") -> Self:
        """The table in a file.

        Raises:
            OSError, ValueError, KeyError, zipfile.BadZipFile …: the file holds no table under this key.
        """
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                raise ValueError(f"{file} holds another table")
            parts: dict[str, Any] = {field.name: stored[field.name] for field in fields(cls)}
        thinking = int(parts["thinking"])
        return cls(**{**parts, "start": int(parts["start"]), "thinking": None if thinking < 0 else thinking})

    def was_cut(self, tokens: Sequence[int], limit: int, closing_margin: int = 0) -> bool:
        """Whether the limit, and not the model, ended the rationale of this answer."""
        path = self.states(tokens)
        closing = next(step for step in range(len(tokens)) if not self.in_rationale[path[step + 1]])
        state, left = path[closing], limit - closing
        after = self.next_state[state]
        goes_on = (after >= 0) & self.in_rationale[after]
        return not bool((goes_on & self.allowed(state, left, closing_margin)).any())
