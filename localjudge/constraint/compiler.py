"""Compile the layout of an answer into its token table, part by part from the end of the answer to its start.

Each part leads to states that exist already, so the distance of a new state follows from theirs.
`localjudge.constraint.token_table` explains the distance and why every answer is complete.

* **Fixed text has one spelling**, the tokenizer's own: each of its states allows one token. Where a token of
  the tokenizer would cross the edge of a field, the shortest spelling that does not cross it is used.
* **A text closes at the end of a sentence** if a sentence ends near the limit: after a sentence, continuing
  requires `closing_margin` tokens more than are strictly needed.
* **A score is its own token.** No token combines a score with the text around it. A score that has a token of
  its own can be written with that token only. So the allowed tokens at a score are the values of the scale, one
  token each, and the model's probabilities of these tokens are the probabilities of the scores. No token limit
  can favour scores with shorter spellings.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from localjudge.constraint.fixed_text import FixedText, Speller, Token, cannot_spell, own_tokens
from localjudge.constraint.open_text import add_text
from localjudge.constraint.states import States
from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import AnswerLayout, FreeText, IntegerScale
from localjudge.system.cache import keep, recalled

_FORMAT = "5"
_DIGITS = frozenset(b"0123456789")
_STAND_IN = "x"


def closing_margin_for(max_rationale_tokens: int) -> int:
    """Return how many tokens before its limit a rationale closes after a complete sentence."""
    return min(32, max_rationale_tokens // 4)


def token_table(
    layout: AnswerLayout,
    vocabulary: Vocabulary,
    encode: Callable[[str], Sequence[int]] | None = None,
    *,
    decodes_opening: bool = False,
    cache: Path | None = None,
) -> TokenTable:
    """Return the table of an answer's tokens in a vocabulary; build it, or load it from the cache folder.

    Args:
        layout: the answer's fields and the fixed text between them.
        vocabulary: the model's text tokens.
        encode: the tokenizer's own token ids of a text; None spells fixed text with the fewest tokens.
        decodes_opening: whether the answer's opening is decoded; otherwise the prompt ends with it.
        cache: a folder that keeps tables.

    Raises:
        ModelError: the vocabulary cannot spell an answer.
    """
    ids = list(encode(_example(layout))) if encode else []
    if cache is None:
        return _build_table(layout, vocabulary, ids, decodes_opening)
    parts = [part if isinstance(part, str) else part.schema for part in layout.parts]
    decisive = (_FORMAT, version("outlines-core"), vocabulary.digest, json.dumps([parts, ids, decodes_opening]))
    key = hashlib.sha256("\n".join(decisive).encode()).hexdigest()
    file = cache / "tables" / f"{key[:32]}.npz"
    table = _cached_table(file, key)
    if table is None:
        table = _build_table(layout, vocabulary, ids, decodes_opening)
        keep(file, lambda scratch: table.save(scratch, key))
    return table


def _example(layout: AnswerLayout) -> str:
    """Return an answer with short values."""
    return "".join(map(_example_of, layout.parts))


def _example_of(part: str | FreeText | IntegerScale) -> str:
    return part if isinstance(part, str) else part.texts[0] if isinstance(part, IntegerScale) else _STAND_IN


def _build_table(
    layout: AnswerLayout, vocabulary: Vocabulary, ids: Sequence[int], decodes_opening: bool
) -> TokenTable:
    example = _example(layout).encode()
    speller = Speller(vocabulary, own_tokens(ids, example, vocabulary))
    states = States(vocabulary.size)
    final = follows = states.add({}, 0)
    score_state: list[int] = []
    score_token: list[list[int]] = []
    place = len(example)
    following = FixedText(states, b"", [], final)
    for part in reversed(layout.parts):
        place -= len(_example_of(part).encode())
        match part:
            case str():
                text = part.encode()
                following = FixedText(states, text, speller.spell(text, place), follows)
            case IntegerScale():
                follows, tokens = _add_scale(states, part, following, speller.token_of)
                score_state.insert(0, follows)
                score_token.insert(0, tokens)
            case FreeText():
                follows = add_text(states, part, following, vocabulary)
    start = following.state(0) if decodes_opening else follows
    if states.distance[start] >= UNREACHABLE:
        raise ModelError("the tokenizer cannot spell an answer to this rubric")
    states.rows[final][list(vocabulary.ends)] = final
    return TokenTable(
        next_state=np.stack(states.rows),
        distance=np.array(states.distance, np.int16),
        in_rationale=np.array(states.in_text),
        sentence_end=np.array(states.sentence_end),
        score_state=np.array(score_state, np.int16),
        score_token=np.array(score_token, np.int32),
        start=start,
    )


def _add_scale(
    states: States, scale: IntegerScale, following: FixedText, token_of: Mapping[bytes, Token]
) -> tuple[int, list[int]]:
    """Add the states of a score.

    Returns:
        the state in which the score is picked, and the token of each value, lowest first; -1 for each if some
        value has no token of its own.
    """
    after = following.state(0)
    digits = {piece: token.id for piece, token in token_of.items() if _DIGITS.issuperset(piece)}
    values = [text.encode() for text in scale.texts]
    if digits.keys() >= set(values):
        own = [digits[value] for value in values]
        return states.add(dict.fromkeys(own, after), 1 + states.distance[after]), own

    # Some value takes several tokens: one token for each string of digits. Where a value is whole and another
    # one continues it, the fixed text may follow. The distance covers the longest way, so a limit forbids none.
    beginnings = {value[:end] for value in values for end in range(len(value))}
    spelled: dict[bytes, int] = {}
    first = {int(token): int(states.rows[after][token]) for token in np.flatnonzero(states.rows[after] >= 0)}

    def state_after(written: bytes) -> int:
        if written not in spelled:
            row = {
                token: state
                for more, token in digits.items()
                if written in beginnings
                and (written + more in beginnings or written + more in values)
                and (state := state_after(written + more)) >= 0
            }
            if not row:
                spelled[written] = after if written in values else -1
            else:
                row |= first if written in values else {}
                spelled[written] = states.add(row, 1 + max(states.distance[state] for state in row.values()))
        return spelled[written]

    picked = state_after(b"")
    for value in values:
        if value not in spelled:
            raise cannot_spell(value)
    return picked, [-1] * len(values)


def _cached_table(file: Path, key: str) -> TokenTable | None:
    """Return the table in a cache file; None if the file is missing, damaged or holds another table."""
    try:
        return TokenTable.load(recalled(file), key)
    except (OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, zipfile.BadZipFile):
        return None
