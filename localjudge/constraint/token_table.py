"""The token table: the tokens that may come next, and the number of tokens needed to finish.

`localjudge.constraint.compiler` turns an answer and a vocabulary into states, and for each state the allowed
tokens and the state after each. These alone do not guarantee a complete answer, because a model that never
closes its rationale reaches the token limit. So the table also holds the distance of each state from the end:

    next_state[s, t]   the state after token t in state s, -1 if t is not allowed
    distance[s]        tokens that suffice to complete the answer from s, for any scores
    required[s, t]     distance[next_state[s, t]] (`TokenTable.tokens_required`)

With `left` tokens left, token t is allowed in state s exactly when `required[s, t] <= left - 1`. If
`distance[s] <= left`, some token is always allowed, and the answer is complete when no tokens are left:

* Inside a text, `distance[s]` is one more than the smallest `required[s, t]`, so the token with this value is
  allowed. (After a sentence, only tokens that close the text count: `closing_margin` does not change theirs.)
* Where a value is picked, it is one more than the largest `required[s, t]`, so every value is allowed.
* In fixed text, it is one more than the `required[s, t]` of the only token.

In each case the next state satisfies `distance <= left`, and at `left = 0` only a complete answer has
distance 0.

Where an answer ends with a text or a value, the token that ends the turn completes it.

A text of a form is closed by literal text. Until the literal text is complete, its beginning may turn out to be
a part of the text. So the states inside the literal text belong to the text (`closing`).

Each text has a budget of its own: where a text begins, `left` is set to the sum of the distance there and the
tokens that the text may have beyond its first (`TokenTable.allowances`). So no text takes another one's tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

UNREACHABLE = int(np.iinfo(np.int16).max)
"""Distance of a state from which no answer can be completed."""


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The answers to one rubric, as tokens of one model. S states, V the width of the logits, A aspects.

    Attributes:
        next_state: int16 (S, V), the state after a token; -1 if the grammar forbids the token.
        distance: int16 (S,), tokens that suffice to complete the answer; `UNREACHABLE` if no number does.
        text: int16 (S,), the number of the text that each state is inside; -1 outside texts.
        sentence_end: bool (S,), True where a sentence of a text has just ended, and inside the literal text
            that closes the text if it begins right after a sentence.
        closing: bool (S,), True inside the literal text that closes a text, where the text may still go on.
        text_start: int16 (T,), the states in which texts begin.
        score_state: int16 (A,), the state in which each aspect's value is picked.
        value_token: int32 (A, K, L), the tokens of each value of an aspect; -1 after the last token of a value,
            and after the last value.
        start: the state before the first token of an answer.
        thinking: the state of a model that thinks before it answers, the first of those inside its thoughts,
            which are the last of the table; None if it answers at once.
    """

    next_state: NDArray[np.int16]
    distance: NDArray[np.int16]
    text: NDArray[np.int16]
    sentence_end: NDArray[np.bool_]
    closing: NDArray[np.bool_]
    text_start: NDArray[np.int16]
    score_state: NDArray[np.int16]
    value_token: NDArray[np.int32]
    start: int
    thinking: int | None = None

    @property
    def entry(self) -> int:
        """The state before the first token."""
        if self.thinking is None:
            return self.start
        return self.thinking

    @property
    def thinks(self) -> NDArray[np.bool_]:
        """Whether each state is inside the thoughts, (S,)."""
        states = np.arange(len(self.distance))
        if self.thinking is None:
            return np.zeros(len(states), np.bool_)
        return states >= self.thinking

    @property
    def smallest_limit(self) -> int:
        """The smallest limit within which an answer always fits, with texts of one token."""
        return int(self.distance[self.start])

    @property
    def fixed_token(self) -> NDArray[np.int64]:
        """The only token that each state allows, (S,); -1 where there are several, a value or the end."""
        allowed = self.next_state >= 0
        token = np.where(allowed.sum(axis=1) == 1, allowed.argmax(axis=1), -1)
        token[self.distance == 0] = -1
        token[self.score_state] = -1
        return token

    @property
    def score_token(self) -> NDArray[np.int32]:
        """The first token of each value of an aspect, (A, K); -1 after its last value."""
        return self.value_token[:, :, 0]

    @property
    def first_token_decides(self) -> NDArray[np.bool_]:
        """Whether each value of an aspect begins with a token of its own, (A,)."""
        begins = [tokens[tokens >= 0].tolist() for tokens in self.score_token]
        return np.array([len(set(tokens)) == len(tokens) for tokens in begins])

    @property
    def digest(self) -> str:
        """SHA-256 of the table's content, in hex."""
        digest = hashlib.sha256()
        for name, value in self._parts().items():
            part = np.asarray(value)
            digest.update(f"{name} {part.dtype.kind} {part.shape}\n".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def _parts(self) -> dict[str, Any]:
        """Return the fields by name, as they are stored: -1 stands for no state of a thought."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.thinking is None:
            parts["thinking"] = -1
        return parts

    def limit(self, text_tokens: int) -> int:
        """Return the largest number of tokens of an answer whose texts have at most this many tokens each.

        Raises:
            ValueError: no answer fits.
        """
        if text_tokens < 1:
            raise ValueError(
                f"a text of {text_tokens} tokens leaves no room for an answer; the smallest that works is 1 "
                f"({self.smallest_limit} tokens in all)"
            )
        texts = len(np.unique(self.text[self.text_start]))
        return self.smallest_limit + texts * (text_tokens - 1)

    def allowances(self, text_tokens: int, thinking_budget: int | None = None) -> NDArray[np.int64]:
        """Return the number of tokens left that each state sets on arrival, (S,); 0 where it sets none.

        Args:
            text_tokens: the most tokens of a text, at least 1.
            thinking_budget: the most tokens of the thinking; None without thinking.
        """
        allowance = np.zeros(len(self.distance), np.int64)
        allowance[self.start] = self.distance[self.start]
        allowance[self.text_start] = self.distance[self.text_start] + np.int64(text_tokens - 1)
        if self.thinking is not None and thinking_budget is not None:
            allowance[self.thinking] = thinking_budget + self.distance[self.thinking]
        return allowance

    def split(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """Split tokens into the thoughts and the answer, without the token that completes the mark between.

        Raises:
            ValueError: the thoughts do not end.
        """
        if self.thinking is None:
            return [], list(tokens)
        state = self.thinking
        thoughts = 0
        for count, token in enumerate(tokens, 1):
            if state >= self.thinking:
                thoughts = count - 1
            state = int(self.next_state[state, token])
            if state == self.start:
                return list(tokens[:thoughts]), list(tokens[count:])
        raise ValueError("its thoughts do not end")

    def tokens_required(self, state: int, closing_margin: int = 0) -> NDArray[np.int32]:
        """Tokens needed after each token, int32 (V,); `UNREACHABLE` or more if the token is not allowed."""
        after = self.next_state[state]
        need = np.where(after >= 0, self.distance[after], UNREACHABLE).astype(np.int32)
        if self.sentence_end[state]:
            closes = self.closing[after] & self.sentence_end[after]
            need[(after >= 0) & (self.text[after] == self.text[state]) & ~closes] += closing_margin
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

    def whole(self, tokens: Sequence[int]) -> list[int]:
        """Return tokens up to the one that completes the answer, thoughts included; all if none does."""
        state = self.entry
        for count, token in enumerate(tokens, 1):
            state = int(self.next_state[state, token])
            if state < 0:
                break
            if self.is_complete(state):
                return list(tokens[:count])
        return list(tokens)

    def is_complete(self, state: int) -> bool:
        return bool(self.distance[state] == 0)

    def save(self, file: Path) -> None:
        """Write the table to a file."""
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **self._parts())

    @classmethod
    def load(cls, file: Path) -> Self:
        """Return the table in a file."""
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            parts: dict[str, Any] = {field.name: stored[field.name] for field in fields(cls)}
        parts["start"] = int(parts["start"])
        parts["thinking"] = int(parts["thinking"])
        if parts["thinking"] < 0:
            parts["thinking"] = None
        return cls(**parts)

    def was_cut(self, tokens: Sequence[int], text_tokens: int, closing_margin: int = 0) -> bool:
        """Return whether the limit, and not the model, ended a text of this answer.

        Args:
            tokens: an answer.
            text_tokens: the most tokens of a text.
            closing_margin: as in `tokens_required`.

        Raises:
            ValueError: the tokens are not an answer.
        """
        path = np.array(self.states(tokens))
        if not self.is_complete(path[-1]):
            raise ValueError("it ends too early")
        before = path[:-1]  # the states before each token
        after = path[1:]
        allowance = self.allowances(text_tokens)
        sets_left = np.ones(
            len(path), np.bool_
        )  # whether the state, on arrival, sets the number of tokens left
        sets_left[1:] = (allowance[after] > 0) & (after != before)
        closes_text = self._continues(before, before) & ~self._continues(before, after)
        for position in np.flatnonzero(closes_text):
            set_at = np.flatnonzero(sets_left[: position + 1])[-1]
            left = int(allowance[path[set_at]]) - int(position - set_at)
            state = path[position]
            possible = self.next_state[state, self.allowed(state, left, closing_margin)]
            if not self._continues(state, possible).any():
                return True
        return False

    def _continues(self, state: NDArray[np.int64] | int, after: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether the text of a state continues in the state after it, bool (…)."""
        is_same_text = (self.text[after] == self.text[state]) & (self.text[after] >= 0)
        continues: NDArray[np.bool_] = is_same_text & ~self.closing[after]
        return continues
