"""The states of a token table while it is compiled: those of fixed text, and of texts that the model writes.

Fixed text has one token at each place, the tokenizer's own split where that is valid.

For a text that the model writes freely, Outlines turns a regular expression and the vocabulary into an index:
states, and for each state the allowed tokens and the state after each. The token that closes a text may include
fixed text that follows, so the expression continues with the fixed text.

* A JSON string closes at its quote. Each place in the fixed text where a token with the quote ends leads to the
  one spelling of the rest.
* A text of a form closes where the literal text after it is complete. Until then the text may continue, so any
  tokens may spell this literal text. After a sentence, the literal text has states of its own: near the limit,
  once it has begun there, it must be completed.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import outlines_core
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from localjudge.constraint.token_table import UNREACHABLE
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import FreeText

_SENTENCE_ENDS = tuple(mark.encode() for mark in (".", "!", "?", "…", "。", "！", "？", "।", "؟"))  # noqa: RUF001
_CHARACTERS = f"x{string.printable}".encode()
_RAW = r"[^\x00-\x08\x0b-\x1f\x7f-\x9f]"

_Transitions = Mapping[int, Mapping[int, int]]
_Index = tuple[_Transitions, int]
"""{state: {token: state after it}}, and the state in which it begins."""


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


class TextCompiler:
    """Adds the states of texts.

    Args:
        states: the table's states.
        vocabulary: the tokens.
    """

    def __init__(self, states: States, vocabulary: Vocabulary) -> None:
        self._states = states
        self._vocabulary = vocabulary
        self._tokens_of: dict[bytes, list[int]] = {}
        for token, piece in vocabulary.pieces.items():
            self._tokens_of.setdefault(piece, []).append(token)
        self._indexes: dict[str, _Index] = {}

    def add(self, text: int, field: FreeText, closing: FixedText) -> int:
        """Add the states of a text before the fixed text that closes it. Return the state in which it begins.

        Args:
            text: the number of the text in the answer.
            field: the text.
            closing: the fixed text after it.

        Raises:
            ModelError: the vocabulary cannot spell the text.
        """
        states, tokens_of = self._states, self._tokens_of
        expression = _expression(field, closing.text)
        if expression not in self._indexes:
            self._indexes[expression] = self._index(expression, field, closing.text)
        transitions, begin = self._indexes[expression]
        other = (bytes([each]) for each in _CHARACTERS if each not in closing.text)
        characters = field.lead.encode() + next((each for each in other if each in tokens_of), b"x")
        inside = _walk(transitions, tokens_of, begin, characters).get(len(characters), -1)
        if inside < 0:
            raise cannot_spell(characters)
        grows = {inside}
        while more := {name for name, row in transitions.items() if not grows.isdisjoint(row.values())} - grows:
            grows |= more
        closes = _walk(transitions, tokens_of, inside, closing.text)
        if len(closing.text) not in closes:
            raise cannot_spell(closing.text)
        may_close = {name for place, name in closes.items() if place}
        number = {name: states.add_text_state(text, closing=name in may_close) for name in sorted(grows)}
        after = number | {name: closing.state(place) for place, name in closes.items() if name not in number}
        for name, state in number.items():
            tokens, reached = np.array([*transitions[name].items()], np.int64).T
            names, which = np.unique(reached, return_inverse=True)
            states.rows[state][tokens] = np.array([after.get(each, -1) for each in names.tolist()])[which]
            if name == inside and not closing.text:
                follows = states.rows[closing.state(0)]
                states.rows[state] = np.where(follows >= 0, follows, states.rows[state])
        within = {place: number[name] for place, name in closes.items() if name in number}
        ended = self._add_sentence_end([*number.values()], within, closing.text)
        _measure(states, [*number.values(), *ended])
        return number[begin]

    def _index(self, expression: str, field: FreeText, closing: bytes) -> _Index:
        """Return Outlines' index of a text and of the fixed text that closes it."""
        tokens_of, beyond = self._tokens_of, self._vocabulary.size  # Outlines requires a token that ends a text
        try:
            index: Any = outlines_core.Index(expression, outlines_core.Vocabulary(beyond, dict(tokens_of)))
        except ValueError as error:
            raise ModelError(f"the tokenizer cannot spell an answer to this rubric: {error}") from None
        transitions: dict[int, dict[int, int]] = index.get_transitions()
        for row in transitions.values():
            row.pop(beyond, None)
        begin: int = index.get_initial_state()
        if field.raw and closing:  # an empty text
            empty = field.lead.encode() + closing
            for place, name in _walk(transitions, tokens_of, begin, empty).items():
                for token in tokens_of.get(empty[place:], ()):
                    transitions[name].pop(token, None)
        return transitions, begin

    def _add_sentence_end(self, text: Sequence[int], within: Mapping[int, int], closing: bytes) -> list[int]:
        """Add and return the states after a sentence: copies of states of the text, reached by other tokens.

        Args:
            text: the states of the text.
            within: the states to copy: inside the text, after a character, and at each byte of the literal text
                that closes it, as far as the text may go on there.
            closing: the fixed text after the text.
        """
        states, pieces = self._states, self._vocabulary.pieces
        inside = within[0]
        ended = {
            place: states.add_text_state(states.text[inside], sentence_end=True, closing=place > 0)
            for place in within
        }
        for place, state in ended.items():
            row = states.rows[within[place]].copy()
            closes = np.full(len(row), not closing)
            for end in range(place + 1, len(closing) + 1):
                tokens = self._tokens_of.get(closing[place:end], [])
                closes[tokens] = True
                if end in ended:
                    row[tokens] = ended[end]
            row[~np.isin(row, text) & ~closes] = -1  # no token that holds both another word and what closes
            states.rows[state] = row
        ends = np.zeros(self._vocabulary.size, bool)
        ends[[token for token, piece in pieces.items() if piece.endswith(_SENTENCE_ENDS)]] = True
        for state in (*text, *ended.values()):
            row = states.rows[state]
            row[(row == inside) & ends] = ended[0]
        return [*ended.values()]


def _expression(field: FreeText, closing: bytes) -> str:
    """Return the regular expression of a text and of the fixed text that closes it."""
    closes = re.escape(closing.decode())
    if not field.raw:
        # The quotes around a text are part of the fixed text.
        quoted: str = build_regex_from_schema(json.dumps(field.schema), whitespace_pattern="")
        return quoted[1:-1] + closes
    if not closing:
        # Where a text may end, Outlines drops the tokens that continue it. So the expression ends with a
        # character that no text can contain.
        return rf"{re.escape(field.lead)}{_RAW}+\x00"
    # The expression prefers its first alternative and the shortest text: a text stops at the literal text. An
    # empty text has states of its own, which refuse it.
    return f"{re.escape(field.lead)}(?:{closes}|{_RAW}+?{closes})"


def _walk(
    transitions: _Transitions, tokens_of: Mapping[bytes, list[int]], state: int, text: bytes
) -> dict[int, int]:
    """Return the state at each byte of a text that some tokens lead to; any tokens lead to the same state."""
    reached = {0: state}
    for begin in range(len(text)):
        if begin not in reached:
            continue
        for end in range(begin + 1, len(text) + 1):
            for token in tokens_of.get(text[begin:end], ()):
                if (after := transitions[reached[begin]].get(token)) is not None:
                    reached[end] = after
    return reached


def _measure(states: States, text: Sequence[int]) -> None:
    """Set the distances of a text's states; those of the states after the text are known.

    To continue a text after a sentence requires `closing_margin` extra tokens. So the distance from the end of
    a sentence counts only the tokens that close the text, even if a path back into it is shorter.
    """
    after: dict[int, NDArray[np.int16]] = {}
    goes_on = [state for state in text if not (states.closing[state] and states.sentence_end[state])]
    for state in text:
        reached = np.unique(states.rows[state])
        closes = ~np.isin(reached, goes_on)
        after[state] = reached[(reached >= 0) & (closes | (not states.sentence_end[state]))]
    changed = True
    while changed:
        changed = False
        for state, reached in after.items():
            distance = 1 + min((states.distance[there] for there in reached), default=UNREACHABLE)
            if distance < states.distance[state]:
                states.distance[state], changed = distance, True
