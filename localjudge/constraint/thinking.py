"""The states of a token table in which a model thinks before it answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError


def after_thinking(
    table: TokenTable,
    vocabulary: Vocabulary,
    opens: Iterable[int],
    ends: int | bytes,
    then: Sequence[int] = (),
) -> TokenTable:
    """Return the table of a model that thinks until the mark that ends a thought, then answers.

    Where the mark is text, a state remembers how much of it is written, and the first state is entered only
    once, because it sets the tokens left. The token that completes the mark may go on with white space.

    Args:
        table: the table of the answers.
        vocabulary: the model's vocabulary; thoughts consist of its text tokens and of `opens`.
        opens: tokens that may open a thought.
        ends: the mark: a token, or a text that the model writes as text tokens.
        then: the tokens between the mark and the answer.

    Raises:
        ModelError: the model has no tokens for the text of the mark.
    """
    between, width = table.next_state.shape
    first = between + len(then)
    answer = between if then else table.start
    rows = np.full((1 if isinstance(ends, int) else 1 + len(ends), width), -1, np.int16)
    text = [*vocabulary.pieces, *opens]
    if isinstance(ends, int):
        rows[0, text] = first
        rows[0, ends] = answer
        distance = [1]
    else:
        rows[:, text] = first + 1
        _follow(rows[1:], vocabulary, ends, first + 1, answer)
        rows[0] = rows[1]
        # At first a token is text or mark, and not both, so that a budget of 0 leaves no thought at all.
        for token in np.flatnonzero(rows[0] != first + 1).tolist():
            piece = vocabulary.pieces.get(token, b"")
            if not ends.startswith(piece) and not piece.startswith(ends):
                rows[0, token] = -1
        distance = _distances(rows, first, answer)
        if distance[0] >= UNREACHABLE:
            raise ModelError(f"its tokens cannot spell the text {ends.decode()!r}, which ends its thoughts")
    fixed = np.full((len(then), width), -1, np.int16)
    for place, token in enumerate(then, 1):
        fixed[place - 1, token] = table.start if place == len(then) else between + place
    left = [*range(len(then), 0, -1), *(each + len(then) for each in distance)]
    count = len(left)
    return replace(
        table,
        next_state=np.vstack([table.next_state, fixed, rows]),
        distance=np.append(table.distance, np.array(left, np.int16) + np.int16(table.smallest_limit)),
        text=np.append(table.text, np.full(count, -1, np.int16)),
        sentence_end=np.append(table.sentence_end, np.zeros(count, np.bool_)),
        closing=np.append(table.closing, np.zeros(count, np.bool_)),
        thinking=first,
    )


def _follow(rows: NDArray[np.int16], vocabulary: Vocabulary, mark: bytes, first: int, answer: int) -> None:
    """Set the state after each token that can write a part of the mark.

    Args:
        rows: int16 (bytes of the mark, V), the state after each token where 0, 1 … bytes are written; changed.
        vocabulary: the model's vocabulary.
        mark: the text.
        first: the state where nothing of it is written.
        answer: the state after it.
    """
    begins = tuple(mark[:count] for count in range(1, len(mark)))
    goes_on = tuple(mark[count:] for count in range(len(mark)))
    for token, piece in vocabulary.pieces.items():
        if piece in mark or mark in piece or piece.startswith(goes_on) or piece.endswith(begins):
            for written in range(len(mark)):
                text = mark[:written] + piece
                _, complete, rest = text.partition(mark)
                if complete:
                    rows[written, token] = -1 if rest.strip() else answer
                else:
                    rows[written, token] = first + max(
                        count for count in range(len(mark)) if text.endswith(mark[:count])
                    )


def _distances(rows: NDArray[np.int16], first: int, answer: int) -> list[int]:
    """Return the fewest tokens that complete the mark from each state of the thoughts."""
    distance = [UNREACHABLE] * len(rows)
    for written in reversed(range(len(rows))):
        after = {*np.unique(rows[written]).tolist()}
        nearer = [distance[place] for place in range(written + 1, len(rows)) if first + place in after]
        distance[written] = 1 if answer in after else min([each + 1 for each in nearer] or [UNREACHABLE])
    return distance
