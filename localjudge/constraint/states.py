"""The states of a token table while it is compiled, and those of fixed text.

Fixed text has one token at each place, the tokenizer's own split where that is valid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import UNREACHABLE
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError


class States:
    """States so far. V is the width of the logits.

    Attributes:
        rows: for each state int16 (V,), the state after each token; -1 if the token is not allowed.
        distance: for each state, the tokens that suffice to complete the answer.
        text: for each state, the number of the text that it is inside; -1 outside texts.
        sentence_end: for each state, whether a sentence of a text has just ended.
        closing: for each state, whether it is inside the literal text that closes a text.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self.rows: list[NDArray[np.int16]] = []
        self.distance: list[int] = []
        self.text: list[int] = []
        self.sentence_end: list[bool] = []
        self.closing: list[bool] = []

    def add(self, after: Mapping[int, int], distance: int) -> int:
        """Add a state outside texts with the state after each allowed token. Return its number."""
        # Two more states: thinking, and rows without an answer.
        if len(self.rows) >= UNREACHABLE - 2:
            raise ModelError("the answer's grammar has more states than a table holds")
        row = np.full(self._width, -1, np.int16)
        row[list(after)] = list(after.values())
        self.rows.append(row)
        self.distance.append(min(distance, UNREACHABLE))
        self.text.append(-1)
        self.sentence_end.append(False)
        self.closing.append(False)
        return len(self.rows) - 1

    def add_text_state(self, text: int, *, sentence_end: bool = False, closing: bool = False) -> int:
        """Add a state of a text without allowed tokens, whose distance is not known yet. Return its number."""
        state = self.add({}, UNREACHABLE)
        self.text[state], self.sentence_end[state], self.closing[state] = text, sentence_end, closing
        return state


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the bytes that it represents."""

    id: int
    piece: bytes


def own_tokens(ids: Sequence[int], text: bytes, vocabulary: Vocabulary) -> dict[int, Token]:
    """Return the tokens of a text as its tokenizer encodes it, by the byte at which each begins.

    Args:
        ids: the encoded text. A tokenizer may have added a space before it; tokens that are not text, and those
            before them, are left out.
        text: the text.
        vocabulary: the bytes of each token.
    """
    found, end = {}, len(text)
    for token in reversed(ids):
        piece = vocabulary.pieces.get(token, b"")
        if not piece or not text[:end].endswith(piece):
            break
        end -= len(piece)
        found[end] = Token(token, piece)
    return found


class Speller:
    """Spells fixed text that stands between the fields of an answer.

    Args:
        vocabulary: the tokens.

    Attributes:
        own: the tokens of a whole answer as the tokenizer encodes it, by the byte at which each begins.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.own: Mapping[int, Token] = {}
        self.token_of: dict[bytes, Token] = {}
        for token, piece in sorted(vocabulary.pieces.items()):
            self.token_of.setdefault(piece, Token(token, piece))
        self._longest = max(map(len, self.token_of), default=0)

    def spell(self, text: bytes, place: int | None = None) -> list[Token | None]:
        """Return the token that comes next at each byte of a text; None where no tokens lead to its end.

        The tokenizer's own token is taken where one begins and does not cross the end of the text. Elsewhere,
        it is the token with which the rest of the text takes the fewest tokens, and the longest one of those.

        Args:
            text: fixed text.
            place: where the text begins in the whole answer, in bytes; None if it is not in that answer.

        Raises:
            ModelError: the vocabulary cannot spell the text.
        """
        next_token: list[Token | None] = [None] * len(text)
        rest = [*[inf] * len(text), 0]
        for begin in range(len(text) - 1, -1, -1):
            own = None if place is None else self.own.get(place + begin)
            ends = range(begin + 1, min(begin + self._longest, len(text)) + 1)
            tokens = [self.token_of[text[begin:end]] for end in ends if text[begin:end] in self.token_of]
            if own is not None and text.startswith(own.piece, begin):
                tokens.append(own)
            for token in tokens:
                count = 1 + rest[begin + len(token.piece)]
                # The tokenizer's own token comes last, and of two others the longer one comes later.
                if count < inf and (token is own or count <= rest[begin]):
                    next_token[begin], rest[begin] = token, count
        if text and next_token[0] is None:
            raise cannot_spell(text)
        return next_token


class FixedText:
    """Fixed text, whose states are added when something leads to them.

    Args:
        states: the table's states.
        text: the text.
        next_token: the token that comes next at each byte of the text; None where no tokens spell the rest.
        follows: the state after the text.
    """

    def __init__(self, states: States, text: bytes, next_token: Sequence[Token | None], follows: int) -> None:
        self.text = text
        self._states = states
        self._next_token = next_token
        self._state = {len(text): follows}

    def state(self, place: int) -> int:
        """Return the state in which the text goes on at this byte; -1 if no tokens spell the rest."""
        path: list[tuple[int, Token]] = []
        end = place
        while end not in self._state:
            token = self._next_token[end]
            if token is None:
                return -1
            path.append((end, token))
            end += len(token.piece)
        for begin, token in reversed(path):
            after = self._state[begin + len(token.piece)]
            self._state[begin] = self._states.add({token.id: after}, 1 + self._states.distance[after])
        return self._state[place]


def cannot_spell(text: bytes) -> ModelError:
    return ModelError(
        f"the tokenizer cannot spell {text.decode()!r}, which every answer contains: it has no token for it, "
        "or eos_token_id names that token; use another model"
    )
