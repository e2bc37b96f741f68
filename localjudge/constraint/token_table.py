"""The token table: the tokens that may come next, and the number of tokens needed to finish.

`localjudge.constraint.compiler` turns an answer and a vocabulary into states, and for each state the allowed
tokens and the state after each. These alone do not guarantee a complete answer, because a model that never
closes its rationale reaches the token limit. So the table also holds the distance of each state from the end:

    next_state[s, t]   the state after token t in state s, -1 if t is not allowed
    distance[s]        tokens that suffice to complete the answer from s, for any scores
    need[s, t]         distance[next_state[s, t]]

With `left` tokens left, token t is allowed in state s exactly when `need[s, t] <= left - 1`. If
`distance[start] <= limit`, some token is always allowed and the answer is complete within the limit: inside a
text, `distance[s]` is one more than the smallest need, so the token with that need is allowed; where a score is
picked, it is one more than the largest need, so every score is allowed; in fixed text, it is one more than the
need of the only token. In each case the next state satisfies `distance <= left`, and at `left = 0` only a
complete answer has distance 0.
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
"""Distance of a state from which no answer can be completed."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The answers to one rubric, as tokens of one model. S states, V the width of the logits, A aspects.

    Attributes:
        next_state: int16 (S, V), the state after a token; -1 if the grammar forbids the token.
        distance: int16 (S,), tokens that suffice to complete the answer; `UNREACHABLE` if no number does.
        in_rationale: bool (S,), True inside the rationale.
        sentence_end: bool (S,), True where a sentence of the rationale has just ended.
        score_state: int16 (A,), the state in which each aspect's score is picked.
        score_token: int32 (A, K), the token of each value of the scale, lowest first; all -1 if some
            value has no token of its own, because one position then does not hold the distribution.
        start: the state before the first token of an answer.
        thinking: the state of a model that thinks before it answers; None if it answers at once.
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
        """The smallest limit within which an answer always fits, with a rationale of one token."""
        return int(self.distance[self.start])

    @property
    def has_probabilities(self) -> bool:
        return bool((self.score_token >= 0).all())

    @property
    def kept_shape(self) -> tuple[int, int]:
        """Shape of an answer's kept scores: (A, K) probabilities, or (A, 1) if there are no probabilities."""
        aspects, values = self.score_token.shape
        return aspects, values if self.has_probabilities else 1

    @property
    def fixed_token(self) -> NDArray[np.int64]:
        """The only token that each state allows, (S,); -1 where there are several, a score or the end."""
        allowed = self.next_state >= 0
        token = np.where(allowed.sum(axis=1) == 1, allowed.argmax(axis=1), -1)
        token[self.distance == 0] = -1
        token[self.score_state] = -1
        return token

    def limit(self, max_rationale_tokens: int) -> int:
        """Return the largest number of tokens of an answer whose rationale has at most this many tokens.

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
        """Return the table of a model that thinks until the token `ends`, then answers in `limit` tokens.

        Thoughts consist of text tokens and the token that opens them. They always leave `limit` tokens for the
        answer, so an engine that allows `budget + 1 + limit` tokens in total ends the thinking after `budget`.

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
        """Split tokens into the thoughts and the answer, without the token between them.

        Raises:
            ValueError: the thoughts do not end.
        """
        if self.thinking is None:
            return [], list(tokens)
        for rank, token in enumerate(tokens):
            if self.next_state[self.thinking, token] == self.start:
                return list(tokens[:rank]), list(tokens[rank + 1 :])
        raise ValueError("its thoughts do not end")

    def tokens_required(self, state: int, closing_margin: int = 0) -> NDArray[np.int32]:
        """Tokens needed after each token, int32 (V,); `UNREACHABLE` or more if the token is not allowed."""
        after = self.next_state[state]
        need = np.where(after >= 0, self.distance[after], UNREACHABLE).astype(np.int32)
        if self.sentence_end[state]:
            need[(after >= 0) & self.in_rationale[after]] += closing_margin
        return need

    def allowed(self, state: int, left: int, closing_margin: int = 0) -> NDArray[np.bool_]:
        """Return bool (V,): True for each token that may come next with `left` tokens left."""
        return self.tokens_required(state, closing_margin) <= min(left - 1, UNREACHABLE - 1)

    def states(self, tokens: Iterable[int]) -> list[int]:
        """Return the states before each token of an answer and after the last token.

        Raises:
            ValueError: a token is not allowed at its position.
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
        """Write the table to a file together with a key; `load` checks the key."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        parts["thinking"] = -1 if self.thinking is None else self.thinking
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, key=np.array(key), **parts)

    @classmethod
    def load(cls, file: Path, key: str = "") -> Self:
        """Return the table in a file.

        Raises:
            OSError, ValueError, KeyError, zipfile.BadZipFile …: the file holds no table with this key.
        """
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                raise ValueError(f"{file} holds another table")
            parts: dict[str, Any] = {field.name: stored[field.name] for field in fields(cls)}
        thinking = int(parts["thinking"])
        return cls(**{**parts, "start": int(parts["start"]), "thinking": None if thinking < 0 else thinking})

    def was_cut(self, tokens: Sequence[int], limit: int, closing_margin: int = 0) -> bool:
        """Return whether the limit, and not the model, ended the rationale of this answer.

        Raises:
            ValueError: the tokens are no answer.
        """
        path = self.states(tokens)
        inside = self.in_rationale[path]
        ends = np.flatnonzero(inside[:-1] & ~inside[1:])
        if not ends.size:
            raise ValueError("its rationale does not end")
        closing = int(ends[0])
        state, left = path[closing], limit - closing
        after = self.next_state[state]
        goes_on = (after >= 0) & self.in_rationale[after]
        return not bool((goes_on & self.allowed(state, left, closing_margin)).any())
