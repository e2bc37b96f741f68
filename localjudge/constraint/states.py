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
from collections.abc import Iterator, Mapping, Sequence
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

MOST_STATES = UNREACHABLE - 1
"""The most states of a table; one more is that of rows without an answer (`DeviceTable.free`)."""
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
        if len(self.rows) >= MOST_STATES:
            raise too_many_states()
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
        self.text[state] = text
        self.sentence_end[state] = sentence_end
        self.closing[state] = closing
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
    tokens: dict[int, Token] = {}
    end = len(text)
    for token in reversed(ids):
        piece = vocabulary.pieces.get(token, b"")
        if not piece or not text[:end].endswith(piece):
            break
        end -= len(piece)
        tokens[end] = Token(token, piece)
    return tokens


class Speller:
    """Spells fixed text that stands between the fields of an answer.

    Args:
        vocabulary: the tokens.

    Attributes:
        tokenizers_own: the tokens of an example of an answer as the tokenizer encodes it, by the byte at which
            each begins; none if the tokenizer was not asked.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokenizers_own: Mapping[int, Token] = {}
        self.token_of: dict[bytes, Token] = {}
        for token, piece in sorted(vocabulary.pieces.items()):
            self.token_of.setdefault(piece, Token(token, piece))
        self._longest = max((len(piece) for piece in self.token_of), default=0)

    def spell(self, text: bytes, at: int | None = None) -> list[Token | None]:
        """Return the token that comes next at each byte of a text; None where no tokens lead to its end.

        The tokenizer's own token is taken where one begins and does not cross the end of the text. Elsewhere,
        it is the token with which the rest of the text takes the fewest tokens, and the longest one of those.

        Args:
            text: fixed text.
            at: where the text begins in the example of an answer, in bytes; None if it is not in it.

        Raises:
            ModelError: the vocabulary cannot spell the text.
        """
        next_token: list[Token | None] = [None] * len(text)
        count = [inf] * len(text) + [0]  # the fewest tokens from each byte to the end of the text
        for begin in range(len(text) - 1, -1, -1):
            for token in self._tokens_at(text, begin):  # of two, the longer one comes later
                with_token = 1 + count[begin + len(token.piece)]
                if with_token < inf and with_token <= count[begin]:
                    next_token[begin] = token
                    count[begin] = with_token
            own = None if at is None else self.tokenizers_own.get(at + begin)
            if own is not None and text.startswith(own.piece, begin):
                with_own = 1 + count[begin + len(own.piece)]
                if with_own < inf:
                    next_token[begin] = own
                    count[begin] = with_own
        if text and next_token[0] is None:
            raise cannot_spell(text)
        return next_token

    def _tokens_at(self, text: bytes, begin: int) -> Iterator[Token]:
        """Yield the tokens that a text has at a byte, the shortest first."""
        last = min(begin + self._longest, len(text))
        for end in range(begin + 1, last + 1):
            token = self.token_of.get(text[begin:end])
            if token is not None:
                yield token


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

    def state(self, begin_of_rest: int) -> int:
        """Return the state in which the text goes on at this byte; -1 if no tokens spell the rest."""
        path: list[tuple[int, Token]] = []
        end = begin_of_rest
        while end not in self._state:
            token = self._next_token[end]
            if token is None:
                return -1
            path.append((end, token))
            end += len(token.piece)
        for begin, token in reversed(path):
            after = self._state[begin + len(token.piece)]
            self._state[begin] = self._states.add({token.id: after}, 1 + self._states.distance[after])
        return self._state[begin_of_rest]


def too_many_states() -> ModelError:
    return ModelError("the answer's grammar has more states than a table holds")


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
        states = self._states
        expression = _expression(field, closing.text)
        if expression not in self._indexes:
            self._indexes[expression] = self._index(expression, field, closing.text)
        transitions, begin = self._indexes[expression]  # of Outlines, whose states are numbered by itself
        inside = self._inside(transitions, begin, field, closing.text)
        closes = _walk(transitions, self._tokens_of, inside, closing.text)
        if len(closing.text) not in closes:
            raise cannot_spell(closing.text)
        closing_states = {index_state for byte, index_state in closes.items() if byte > 0}
        state_of: dict[int, int] = {}  # the number of each of Outlines' states of the text
        for index_state in sorted(_leading_to(transitions, inside)):
            state_of[index_state] = states.add_text_state(text, closing=index_state in closing_states)
        after = dict(state_of)
        for byte, index_state in closes.items():
            if index_state not in state_of:
                after[index_state] = closing.state(byte)
        for index_state, state in state_of.items():
            _set_row(states.rows[state], transitions[index_state], after)
        if not closing.text:
            follows = states.rows[closing.state(0)]
            row = states.rows[state_of[inside]]
            states.rows[state_of[inside]] = np.where(follows >= 0, follows, row)
        text_states = list(state_of.values())
        within = {
            byte: state_of[index_state] for byte, index_state in closes.items() if index_state in state_of
        }
        after_sentences = self._add_sentence_end(text_states, within, closing.text)
        _measure(states, text_states + after_sentences)
        return state_of[begin]

    def _inside(self, transitions: _Transitions, begin: int, field: FreeText, closing: bytes) -> int:
        """Return Outlines' state inside a text, where it may go on or close.

        Args:
            transitions: Outlines' index.
            begin: the state in which the text begins.
            field: the text.
            closing: the fixed text after it.

        Raises:
            ModelError: the vocabulary cannot spell the text.
        """
        text = field.lead.encode() + self._character_beside(closing)
        reached = _walk(transitions, self._tokens_of, begin, text)
        if len(text) not in reached:
            raise cannot_spell(text)
        return reached[len(text)]

    def _character_beside(self, closing: bytes) -> bytes:
        """Return a character with a token of its own that the closing text does not have; x without one."""
        for code in _CHARACTERS:
            character = bytes([code])
            if code not in closing and character in self._tokens_of:
                return character
        return b"x"

    def _index(self, expression: str, field: FreeText, closing: bytes) -> _Index:
        """Return Outlines' index of a text and of the fixed text that closes it."""
        tokens_of = self._tokens_of
        beyond = self._vocabulary.size  # Outlines requires a token that ends a text
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
            for byte, index_state in _walk(transitions, tokens_of, begin, empty).items():
                for token in tokens_of.get(empty[byte:], ()):
                    transitions[index_state].pop(token, None)
        return transitions, begin

    def _add_sentence_end(self, text: Sequence[int], within: Mapping[int, int], closing: bytes) -> list[int]:
        """Add and return the states after a sentence: copies of states of the text, reached by other tokens.

        Args:
            text: the states of the text.
            within: the states to copy: inside the text, after a character, and at each byte of the literal text
                that closes it, as far as the text may go on there.
            closing: the fixed text after the text.
        """
        states = self._states
        inside = within[0]
        copies: dict[int, int] = {}  # the state after a sentence, by the byte of the literal text
        for byte in within:
            copies[byte] = states.add_text_state(states.text[inside], sentence_end=True, closing=byte > 0)
        for byte, state in copies.items():
            row = states.rows[within[byte]].copy()
            closes = np.full(len(row), not closing)
            for end in range(byte + 1, len(closing) + 1):
                tokens = self._tokens_of.get(closing[byte:end], [])
                closes[tokens] = True
                if end in copies:
                    row[tokens] = copies[end]
            row[~np.isin(row, text) & ~closes] = -1  # no token that holds both another word and what closes
            states.rows[state] = row
        ends_sentence = np.zeros(self._vocabulary.size, bool)
        for token, piece in self._vocabulary.pieces.items():
            if piece.endswith(_SENTENCE_ENDS):
                ends_sentence[token] = True
        for state in list(text) + list(copies.values()):
            row = states.rows[state]
            row[(row == inside) & ends_sentence] = copies[0]
        return list(copies.values())


def _leading_to(transitions: _Transitions, state: int) -> set[int]:
    """Return the states from which some tokens lead to this one, itself included."""
    leading = {state}
    while True:
        before = {name for name, row in transitions.items() if not leading.isdisjoint(row.values())}
        if before <= leading:
            return leading
        leading |= before


def _set_row(row: NDArray[np.int16], transitions: Mapping[int, int], after: Mapping[int, int]) -> None:
    """Set the state after each token that Outlines allows; -1 where its state has no number.

    Args:
        row: the states of a table after each token, (V,); changed.
        transitions: Outlines' state after each token that it allows.
        after: the number of each of Outlines' states.
    """
    tokens, reached = np.array(list(transitions.items()), np.int64).T
    distinct, index = np.unique(reached, return_inverse=True)
    numbers = np.array([after.get(index_state, -1) for index_state in distinct.tolist()])
    row[tokens] = numbers[index]


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
                after = transitions[reached[begin]].get(token)
                if after is not None:
                    reached[end] = after
    return reached


def _measure(states: States, text: Sequence[int]) -> None:
    """Set the distances of a text's states; those of the states after the text are known.

    To continue a text after a sentence requires `closing_margin` extra tokens. So the distance from the end of
    a sentence counts only the tokens that close the text, even if a path back into it is shorter.
    """
    after: dict[int, NDArray[np.int16]] = {}
    continues = [state for state in text if not (states.closing[state] and states.sentence_end[state])]
    for state in text:
        reached = np.unique(states.rows[state])
        closes = ~np.isin(reached, continues)
        after[state] = reached[(reached >= 0) & (closes | (not states.sentence_end[state]))]
    changed = True
    while changed:
        changed = False
        for state, reached in after.items():
            distance = 1 + min((states.distance[next_state] for next_state in reached), default=UNREACHABLE)
            if distance < states.distance[state]:
                states.distance[state] = distance
                changed = True
