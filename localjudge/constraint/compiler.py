"""Compile the layout of an answer into its token table, part by part from the end of the answer to its start.

A model that thinks before it answers has further states (`after_thinking`).

Each part leads to states that exist already, so the distance of a new state follows from theirs.
`localjudge.constraint.token_table` explains the distance and why every answer is complete.

* **Fixed text has one spelling**, the tokenizer's own: each of its states allows one token. Where a token of
  the tokenizer would cross the edge of a field, the shortest spelling that does not cross it is used.
* **A text closes at the end of a sentence** if a sentence ends near the limit: after a sentence, continuing
  requires `closing_margin` tokens more than are strictly needed.
* **A value has tokens of its own.** No token combines a value with the text around it, and each value has one
  spelling, the one with the fewest tokens. So their probabilities are those of the values
  (`localjudge.constraint.value_paths`). No token limit can favour a value. In a form, the space before a value
  is a part of it if each value then begins with a token of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.states import FixedText, Speller, States, TextCompiler, own_tokens
from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import AnswerField, AnswerLayout, FreeText, ValueField

_STAND_IN = "x"


def closing_margin_for(max_rationale_tokens: int) -> int:
    """Return how many tokens before its limit a rationale closes after a complete sentence."""
    return min(32, max_rationale_tokens // 4)


def _example_of(part: str | AnswerField) -> str:
    match part:
        case str():
            return part
        case ValueField():
            return part.lead + next(iter(part.values))
        case FreeText():
            return part.lead + _STAND_IN


def token_table(
    layout: AnswerLayout,
    vocabulary: Vocabulary,
    encode: Callable[[str], Sequence[int]] | None = None,
    *,
    decodes_opening: bool = False,
) -> TokenTable:
    """Return the table of an answer's tokens in a vocabulary.

    Args:
        layout: the answer's fields and the fixed text between them.
        vocabulary: the model's text tokens.
        encode: the tokenizer's own token ids of a text; None spells fixed text with the fewest tokens.
        decodes_opening: whether the answer's opening is decoded; otherwise the prompt ends with it.

    Raises:
        ModelError: the vocabulary cannot spell an answer.
    """
    speller = Speller(vocabulary)
    states = States(vocabulary.size)
    final = last = states.add({}, 0)
    texts = TextCompiler(states, vocabulary)
    text_start: list[int] = []
    score_state: list[int] = []
    spellings: list[list[tuple[int, ...]]] = []
    if not layout.parts[-1]:
        if not vocabulary.ends:
            raise ModelError("the model has no token that ends an answer; end the rubric's form with text")
        last = states.add(dict.fromkeys(vocabulary.ends, final), 1)
    example, texts_left = "".join(map(_example_of, layout.parts)), len(layout.texts)
    speller.own = own_tokens([*encode(example)] if encode else [], example.encode(), vocabulary)
    place = len(example.encode())
    follows, following = last, FixedText(states, b"", [], final)
    for part in reversed(layout.parts):
        place -= len(_example_of(part).encode())
        match part:
            case str():
                text = part.encode()
                following = FixedText(states, text, speller.spell(text, place), follows)
            case ValueField():
                follows, picks, spelled = _add_values(states, part, following, speller)
                score_state.insert(0, picks)
                spellings.insert(0, spelled)
            case FreeText():
                texts_left -= 1
                follows = texts.add(texts_left, part, following)
                text_start.insert(0, follows)
    start = following.state(0) if decodes_opening else follows
    if states.distance[start] >= UNREACHABLE:
        raise ModelError("the tokenizer cannot spell an answer to this rubric")
    states.rows[final][list(vocabulary.ends)] = final
    most, longest = max(map(len, spellings)), max(len(value) for values in spellings for value in values)
    value_token = np.full((len(spellings), most, longest), -1, np.int32)
    for aspect, values in enumerate(spellings):
        for place, value in enumerate(values):
            value_token[aspect, place, : len(value)] = value
    return TokenTable(
        next_state=np.stack(states.rows),
        distance=np.array(states.distance, np.int16),
        text=np.array(states.text, np.int16),
        sentence_end=np.array(states.sentence_end),
        closing=np.array(states.closing),
        text_start=np.array(text_start, np.int16),
        score_state=np.array(score_state, np.int16),
        value_token=value_token,
        start=start,
    )


def _add_values(
    states: States, field: ValueField, following: FixedText, speller: Speller
) -> tuple[int, int, list[tuple[int, ...]]]:
    """Add the states of a value.

    Returns:
        the state in which its field begins, the state in which the value is picked, and the tokens of each
        value.
    """
    after = following.state(0)
    # Only the tokens that end an answer are several, and any of them does.
    closing = int(np.flatnonzero(states.rows[after] >= 0)[0])
    lead = field.lead.encode()
    spellings = [_tokens(speller, lead + text.encode()) for text in field.values]
    if lead and len({tokens[0] for tokens in spellings} - {*_tokens(speller, lead)}) == len(spellings):
        lead = b""
    elif lead:
        spellings = [_tokens(speller, text.encode()) for text in field.values]

    def add(written: tuple[int, ...]) -> int:
        """Add the states after these tokens of some values; return the first."""
        rest = [tokens for tokens in spellings if tokens[: len(written)] == written]
        following_tokens = sorted({tokens[len(written)] for tokens in rest if len(tokens) > len(written)})
        if not following_tokens:
            return after
        row = {token: add((*written, token)) for token in following_tokens}
        if written in rest:  # a value that others continue may end here
            row[closing] = int(states.rows[after][closing])
        return states.add(row, 1 + max(states.distance[state] for state in row.values()))

    picks = add(())
    begins = FixedText(states, lead, speller.spell(lead), picks).state(0)
    return begins, picks, spellings


def _tokens(speller: Speller, text: bytes) -> tuple[int, ...]:
    """Return the tokens that spell a value."""
    next_token, tokens, place = speller.spell(text), list[int](), 0
    while place < len(text) and (token := next_token[place]):
        tokens.append(token.id)
        place += len(token.piece)
    return tuple(tokens)


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
