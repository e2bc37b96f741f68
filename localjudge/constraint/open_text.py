"""The states of a text that the model writes freely.

Outlines turns the text's schema into a regular expression, and the expression and the vocabulary into an
index: states, and for each state the allowed tokens and the state after each. The token that closes a text may
include fixed text that follows, so the expression continues with the fixed text; each place in it where such a
token ends leads to the one spelling of the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import outlines_core
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from localjudge.constraint.fixed_text import FixedText, cannot_spell
from localjudge.constraint.states import States
from localjudge.constraint.token_table import UNREACHABLE
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import FreeText

_SENTENCE_ENDS = tuple(mark.encode() for mark in (".", "!", "?", "…", "。", "！", "？", "।", "؟"))  # noqa: RUF001
_CHARACTER = b"x"

_Transitions = Mapping[int, Mapping[int, int]]


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
        self._indexes: dict[str, tuple[_Transitions, int]] = {}

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
        # The quotes around a text are part of the fixed text.
        content = build_regex_from_schema(json.dumps(field.schema), whitespace_pattern="")[1:-1]
        expression = content + re.escape(closing.text.decode())
        if expression not in self._indexes:
            self._indexes[expression] = _index(expression, tokens_of, self._vocabulary.size)
        transitions, begin = self._indexes[expression]
        inside = _walk(transitions, tokens_of, begin, _CHARACTER)[len(_CHARACTER)]
        grows = {inside}
        while more := {name for name, row in transitions.items() if not grows.isdisjoint(row.values())} - grows:
            grows |= more
        number = {name: states.add_text_state(text) for name in sorted(grows)}
        after = dict(number)
        for place, name in _walk(transitions, tokens_of, inside, closing.text).items():
            after.setdefault(name, closing.state(place) if place else -1)
        for name, state in number.items():
            tokens, reached = np.array([*transitions[name].items()], np.int64).T
            names, which = np.unique(reached, return_inverse=True)
            states.rows[state][tokens] = np.array([after.get(each, -1) for each in names.tolist()])[which]
        ended = _add_sentence_end(states, [*number.values()], number[inside], self._vocabulary)
        _measure(states, [*number.values(), ended])
        return number[begin]


def _index(expression: str, tokens_of: Mapping[bytes, list[int]], beyond: int) -> tuple[_Transitions, int]:
    """Return Outlines' index, {state: {token: state after it}}, and the state in which it begins.

    Args:
        expression: a regular expression.
        tokens_of: the tokens that represent each piece of text.
        beyond: a token that is no text; Outlines requires one that ends a text.
    """
    try:
        index: Any = outlines_core.Index(expression, outlines_core.Vocabulary(beyond, dict(tokens_of)))
    except ValueError as error:
        raise ModelError(f"the tokenizer cannot spell an answer to this rubric: {error}") from None
    transitions: dict[int, dict[int, int]] = index.get_transitions()
    for row in transitions.values():
        row.pop(beyond, None)
    return transitions, index.get_initial_state()


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
    if len(text) not in reached:
        raise cannot_spell(text)
    return reached


def _add_sentence_end(states: States, text: Sequence[int], inside: int, vocabulary: Vocabulary) -> int:
    """Add the state after a sentence: a copy of the state inside the text, reached by other tokens.

    Args:
        states: the table's states.
        text: the states of the text.
        inside: the state after a character.
        vocabulary: the tokens.
    """
    ends, quotes = np.zeros(vocabulary.size, bool), np.zeros(vocabulary.size, bool)
    for token, piece in vocabulary.pieces.items():
        ends[token] = piece.endswith(_SENTENCE_ENDS)
        quotes[token] = piece.startswith(b'"')
    ended = states.add_text_state(states.text[inside], sentence_end=True)
    after = states.rows[inside].copy()
    after[~np.isin(after, text) & ~quotes] = -1  # no token that holds both another word and the closing quote
    states.rows[ended] = after
    for state in (*text, ended):
        row = states.rows[state]
        row[(row == inside) & ends] = ended
    return ended


def _measure(states: States, text: Sequence[int]) -> None:
    """Set the distances of a text's states; those of the states after the text are known.

    To continue a text after a sentence requires `closing_margin` extra tokens. So the distance from the end of
    a sentence counts only the tokens that close the text, even if a path back into it is shorter.
    """
    after: dict[int, NDArray[np.int16]] = {}
    for state in text:
        reached = np.unique(states.rows[state])
        closes = ~np.isin(reached, text)
        after[state] = reached[(reached >= 0) & (closes | (not states.sentence_end[state]))]
    changed = True
    while changed:
        changed = False
        for state, reached in after.items():
            distance = 1 + min((states.distance[there] for there in reached), default=UNREACHABLE)
            if distance < states.distance[state]:
                states.distance[state], changed = distance, True
