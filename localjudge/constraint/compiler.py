"""Compile the layout of an answer into its token table, part by part from the end of the answer to its start.

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
* **Layouts that end in the same way share the states of their end.** So the layouts of 1 to N criteria take as
  many states for their values as that of N.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import numpy as np

from localjudge.constraint.open_text import TextCompiler
from localjudge.constraint.states import FixedText, Speller, States, own_tokens
from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.value_paths import VALUE_RULE
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import AnswerField, AnswerLayout, FreeText, ValueField
from localjudge.system.durable import keep, recalled

_FORMAT = f"10 {VALUE_RULE}"
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
    shorter: Sequence[AnswerLayout] = (),
    cache: Path | None = None,
) -> TokenTable:
    """Return the table of an answer's tokens in a vocabulary; build it, or load it from the cache folder.

    Args:
        layout: the answer's fields and the fixed text between them.
        vocabulary: the model's text tokens.
        encode: the tokenizer's own token ids of a text; None spells fixed text with the fewest tokens.
        decodes_opening: whether the answer's opening is decoded; otherwise the prompt ends with it.
        shorter: layouts that are answers of this table, too: of one value less each, down to one, and ending as
            the layout does.
        cache: a folder that keeps tables.

    Raises:
        ModelError: the vocabulary cannot spell an answer.
    """
    layouts = (layout, *shorter)
    ids = [list(encode(_example(each))) if encode else [] for each in layouts]
    if cache is None:
        return _build_table(layouts, vocabulary, ids, decodes_opening)
    answer = json.dumps([[[*map(repr, each.parts)] for each in layouts], ids, decodes_opening])
    identity = (_FORMAT, version("outlines-core"), vocabulary.digest, answer)
    key = hashlib.sha256("\n".join(identity).encode()).hexdigest()
    file = cache / "tables" / f"{key[:32]}.npz"
    table = _cached_table(file, key)
    if table is None:
        table = _build_table(layouts, vocabulary, ids, decodes_opening)
        keep(file, lambda scratch: table.save(scratch, key))
    return table


def _example(layout: AnswerLayout) -> str:
    """Return an answer with short values."""
    return "".join(map(_example_of, layout.parts))


def _shape(part: str | AnswerField) -> str:
    """Return what decides the states of a part: all but its name in a judgement."""
    return repr(part if isinstance(part, str) else replace(part, name=""))


def _example_of(part: str | AnswerField) -> str:
    match part:
        case str():
            return part
        case ValueField():
            return part.lead + next(iter(part.values))
        case FreeText():
            return part.lead + _STAND_IN


def _build_table(
    layouts: Sequence[AnswerLayout],
    vocabulary: Vocabulary,
    ids: Sequence[Sequence[int]],
    decodes_opening: bool,
) -> TokenTable:
    speller = Speller(vocabulary)
    states = States(vocabulary.size)
    final = last = states.add({}, 0)
    texts = TextCompiler(states, vocabulary)
    text_start: list[int] = []
    score_state: list[int] = []
    spellings: list[list[tuple[int, ...]]] = []
    starts: list[int] = []
    if not layouts[0].parts[-1]:
        if not vocabulary.ends:
            raise ModelError("the model has no token that ends an answer; end the rubric's form with text")
        last = states.add(dict.fromkeys(vocabulary.ends, final), 1)
    built: dict[tuple[str, ...], tuple[int, FixedText]] = {}
    for layout, own in zip(layouts, ids, strict=True):
        example, rest = _example(layout).encode(), tuple(map(_shape, layout.parts))
        speller.own = own_tokens(own, example, vocabulary)
        place, texts_after = len(example), 0
        follows, following = last, FixedText(states, b"", [], final)
        for rank, part in reversed([*enumerate(layout.parts)]):
            place -= len(_example_of(part).encode())
            if rest[rank:] in built:
                follows, following = built[rest[rank:]]
                texts_after += isinstance(part, FreeText)
                continue
            match part:
                case str():
                    text = part.encode()
                    following = FixedText(states, text, speller.spell(text, place), follows)
                case ValueField():
                    follows, picks, spelled = _add_values(states, part, following, speller)
                    score_state.insert(0, picks)
                    spellings.insert(0, spelled)
                case FreeText():
                    texts_after += 1
                    follows = texts.add(len(layout.texts) - texts_after, part, following)
                    text_start.insert(0, follows)
            built[rest[rank:]] = follows, following
        starts.insert(0, following.state(0) if decodes_opening else follows)
    start = starts[-1]
    if max(states.distance[each] for each in starts) >= UNREACHABLE:
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
        starts=np.array(starts[: len(layouts) if len(layouts) > 1 else 0], np.int16),
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


def _cached_table(file: Path, key: str) -> TokenTable | None:
    """Return the table in a cache file; None if the file is missing, damaged or holds another table."""
    try:
        return TokenTable.load(recalled(file), key)
    except (OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, zipfile.BadZipFile):
        return None
