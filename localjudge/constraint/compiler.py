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
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.states import (
    MOST_STATES,
    FixedText,
    Speller,
    States,
    TextCompiler,
    own_tokens,
    too_many_states,
)
from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import AnswerField, AnswerLayout, FreeText, ValueField

_STAND_IN = "x"
"""The text of a free text in an example of an answer."""


def closing_margin_for(max_rationale_tokens: int) -> int:
    """Return how many tokens before its limit a rationale closes after a complete sentence."""
    return min(32, max_rationale_tokens // 4)


def _example_of(part: str | AnswerField) -> str:
    """Return a part of an example of an answer."""
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
    states = States(vocabulary.size)
    final = states.add({}, 0)
    last = final
    if not layout.parts[-1]:
        if not vocabulary.ends:
            raise ModelError("the model has no token that ends an answer; end the rubric's form with text")
        last = states.add(dict.fromkeys(vocabulary.ends, final), 1)
    example = "".join(_example_of(part) for part in layout.parts).encode()
    speller = Speller(vocabulary)
    if encode is not None:
        speller.tokenizers_own = own_tokens(encode(example.decode()), example, vocabulary)
    texts = TextCompiler(states, vocabulary)
    text_start: list[int] = []  # the states in which texts begin, the last one first
    values: list[_ValueStates] = []  # those of each aspect, the last one first
    following = FixedText(states, b"", [], last)  # the fixed text after the part
    follows = last  # the state after the part that is fixed text
    begin = len(example)  # of the part in the example, in bytes
    for part in reversed(layout.parts):
        begin -= len(_example_of(part).encode())
        match part:
            case str():
                text = part.encode()
                following = FixedText(states, text, speller.spell(text, begin), follows)
            case ValueField():
                value = _add_values(states, part, following, speller)
                values.append(value)
                follows = value.begin
            case FreeText():
                number = len(layout.texts) - 1 - len(text_start)
                follows = texts.add(number, part, following)
                text_start.append(follows)
    start = following.state(0) if decodes_opening else follows
    if states.distance[start] >= UNREACHABLE:
        raise ModelError("the tokenizer cannot spell an answer to this rubric")
    states.rows[final][list(vocabulary.ends)] = final
    values.reverse()
    text_start.reverse()
    return TokenTable(
        next_state=np.stack(states.rows),
        distance=np.array(states.distance, np.int16),
        text=np.array(states.text, np.int16),
        sentence_end=np.array(states.sentence_end),
        closing=np.array(states.closing),
        text_start=np.array(text_start, np.int16),
        score_state=np.array([value.pick for value in values], np.int16),
        value_token=_value_tokens([value.spellings for value in values]),
        start=start,
    )


def _value_tokens(aspects: Sequence[Sequence[tuple[int, ...]]]) -> NDArray[np.int32]:
    """Return the tokens of each value of an aspect, int32 (A, K, L); -1 where there are none.

    Args:
        aspects: for each aspect, the tokens of each value.
    """
    most_values = max(len(spellings) for spellings in aspects)
    longest = max(len(tokens) for spellings in aspects for tokens in spellings)
    value_token = np.full((len(aspects), most_values, longest), -1, np.int32)
    for aspect, spellings in enumerate(aspects):
        for value, tokens in enumerate(spellings):
            value_token[aspect, value, : len(tokens)] = tokens
    return value_token


@dataclass(frozen=True, slots=True)
class _ValueStates:
    """The states of the value of an aspect.

    Attributes:
        begin: the state in which its field begins.
        pick: the state in which the value is picked.
        spellings: the tokens of each value.
    """

    begin: int
    pick: int
    spellings: list[tuple[int, ...]]


def _add_values(states: States, field: ValueField, following: FixedText, speller: Speller) -> _ValueStates:
    """Add the states of a value.

    Args:
        states: the table's states.
        field: the field.
        following: the fixed text after it.
        speller: spells the values.
    """
    after = following.state(0)
    lead = field.lead.encode()
    spellings = [_tokens(speller, lead + text.encode()) for text in field.values]
    if lead:
        first_tokens = {tokens[0] for tokens in spellings}
        has_own_tokens = len(first_tokens.difference(_tokens(speller, lead))) == len(spellings)
        if has_own_tokens:
            lead = b""  # the space before a value is a part of its first token
        else:
            spellings = [_tokens(speller, text.encode()) for text in field.values]
    pick = _add_branches(states, spellings, (), after)
    begin = FixedText(states, lead, speller.spell(lead), pick).state(0)
    return _ValueStates(begin, pick, spellings)


def _add_branches(
    states: States, spellings: Sequence[tuple[int, ...]], written: tuple[int, ...], after: int
) -> int:
    """Add the states after the first tokens of some values, and return the first of them.

    Args:
        states: the table's states.
        spellings: the tokens of each value.
        written: the first tokens.
        after: the state after the value.
    """
    length = len(written)
    begun = [tokens for tokens in spellings if tokens[:length] == written]
    next_tokens = sorted({tokens[length] for tokens in begun if len(tokens) > length})
    if not next_tokens:
        return after
    row: dict[int, int] = {}
    for token in next_tokens:
        row[token] = _add_branches(states, spellings, written + (token,), after)
    if written in begun:  # a value that others continue may end here
        # Fixed text after the value has one token. If the answer ends with the value, any end token will do.
        closing = int(np.flatnonzero(states.rows[after] >= 0)[0])
        row[closing] = int(states.rows[after][closing])
    return states.add(row, 1 + max(states.distance[state] for state in row.values()))


def _tokens(speller: Speller, text: bytes) -> tuple[int, ...]:
    """Return the tokens that spell a value."""
    next_token = speller.spell(text)
    tokens: list[int] = []
    begin = 0
    while begin < len(text):
        token = next_token[begin]
        if token is None:
            break
        tokens.append(token.id)
        begin += len(token.piece)
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
    states, width = table.next_state.shape
    first = states + len(then)  # the first state of the thoughts
    answer = states if then else table.start  # the state after the mark
    if isinstance(ends, int):
        rows = np.full((1, width), -1, np.int16)
        rows[0, list(vocabulary.pieces)] = first
        rows[0, list(opens)] = first
        rows[0, ends] = answer
        distance = [1]
    else:
        rows = _rows_of_thoughts(vocabulary, opens, ends, first=first, answer=answer, width=width)
        distance = _distances(rows, first, answer)
        if distance[0] >= UNREACHABLE:
            raise ModelError(f"its tokens cannot spell the text {ends.decode()!r}, which ends its thoughts")
    fixed = np.full((len(then), width), -1, np.int16)
    for index, token in enumerate(then):
        is_last = index == len(then) - 1
        fixed[index, token] = table.start if is_last else states + index + 1
    before_answer = list(range(len(then), 0, -1))  # tokens from each new state to the start of the answer
    before_answer += [len(then) + tokens for tokens in distance]
    count = len(before_answer)
    if states + count > MOST_STATES:
        raise too_many_states()
    return replace(
        table,
        next_state=np.vstack([table.next_state, fixed, rows]),
        distance=np.append(table.distance, np.array(before_answer, np.int16) + np.int16(table.smallest_limit)),
        text=np.append(table.text, np.full(count, -1, np.int16)),
        sentence_end=np.append(table.sentence_end, np.zeros(count, np.bool_)),
        closing=np.append(table.closing, np.zeros(count, np.bool_)),
        thinking=first,
    )


def _rows_of_thoughts(
    vocabulary: Vocabulary, opens: Iterable[int], mark: bytes, *, first: int, answer: int, width: int
) -> NDArray[np.int16]:
    """Return the state after each token of a thought that a text ends, int16 (1 + bytes of the mark, V).

    The first row is that of the first token; the others are those where 0, 1 … bytes of the mark are written.

    Args:
        vocabulary: the model's vocabulary.
        opens: tokens that may open a thought.
        mark: the text.
        first: the number of the first of these states.
        answer: the state after the mark.
        width: the width of the logits.
    """
    rows = np.full((1 + len(mark), width), -1, np.int16)
    nothing_written = first + 1
    rows[:, list(vocabulary.pieces)] = nothing_written
    rows[:, list(opens)] = nothing_written
    _follow(rows[1:], vocabulary, mark, nothing_written, answer)
    rows[0] = rows[1]
    # At first a token is text or mark, and not both, so that a budget of 0 leaves no thought at all.
    for token in np.flatnonzero(rows[0] != nothing_written).tolist():
        piece = vocabulary.pieces.get(token, b"")
        if not mark.startswith(piece) and not piece.startswith(mark):
            rows[0, token] = -1
    return rows


def _follow(rows: NDArray[np.int16], vocabulary: Vocabulary, mark: bytes, first: int, answer: int) -> None:
    """Set the state after each token that can write a part of the mark.

    Args:
        rows: int16 (bytes of the mark, V), the state after each token where 0, 1 … bytes are written; changed.
        vocabulary: the model's vocabulary.
        mark: the text.
        first: the state where nothing of it is written.
        answer: the state after it.
    """
    prefixes = tuple(mark[:count] for count in range(1, len(mark)))
    suffixes = tuple(mark[count:] for count in range(len(mark)))
    for token, piece in vocabulary.pieces.items():
        concerns_mark = piece in mark or mark in piece or piece.startswith(suffixes) or piece.endswith(prefixes)
        if concerns_mark:
            for written in range(len(mark)):
                rows[written, token] = _state_after(mark[:written] + piece, mark, first, answer)


def _state_after(text: bytes, mark: bytes, first: int, answer: int) -> int:
    """Return the state after a text that begins with a part of the mark; -1 if the text may not follow.

    Args:
        text: what is written.
        mark: the mark.
        first: the state where nothing of it is written.
        answer: the state after it.
    """
    _, complete, after = text.partition(mark)
    if not complete:
        written = max(count for count in range(len(mark)) if text.endswith(mark[:count]))
        return first + written
    if after.strip():
        return -1
    return answer


def _distances(rows: NDArray[np.int16], first: int, answer: int) -> list[int]:
    """Return the fewest tokens that complete the mark from each state of the thoughts."""
    distance = [UNREACHABLE] * len(rows)
    for index in reversed(range(len(rows))):
        reached = set(np.unique(rows[index]).tolist())
        if answer in reached:
            distance[index] = 1
            continue
        nearer = [distance[later] for later in range(index + 1, len(rows)) if first + later in reached]
        if nearer:
            distance[index] = 1 + min(nearer)
    return distance
