"""The states of a token table while it is compiled."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import UNREACHABLE
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
