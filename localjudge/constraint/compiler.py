"""Compile an answer's schema into its token table: schema → expression → index → table.

Outlines turns the schema into a regular expression, and the expression and the vocabulary into an index.
`localjudge.constraint.token_table` explains what the table adds to the index and why every answer is complete.

The table differs from the plain index in three ways:

* **A score is its own token.** No token combines a score with the text around it. A score that has a token of
  its own can be written with that token only. So the allowed tokens at a score are the values of the scale, one
  token each, and the model's probabilities of these tokens are the probabilities of the scores. No token limit
  can favour scores with shorter spellings.
* **A rationale closes at the end of a sentence** if a sentence ends near the limit: after a sentence,
  continuing the rationale requires `closing_margin` tokens more than are strictly needed.
* **No white space** outside strings: it would cost tokens and carry no information.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import outlines_core
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from localjudge.constraint.token_table import UNREACHABLE, TokenTable
from localjudge.constraint.vocabulary import Vocabulary
from localjudge.errors import ModelError
from localjudge.rubrics.answer import FreeText, IntegerScale
from localjudge.rubrics.rubric import Rubric
from localjudge.system.cache import keep, recalled

_FORMAT = "4"
_SENTENCE_ENDS = tuple(mark.encode() for mark in (".", "!", "?", "…", "。", "！", "？", "।", "؟"))  # noqa: RUF001
_DIGITS = frozenset(b"0123456789")


def closing_margin_for(max_rationale_tokens: int) -> int:
    """Return how many tokens before its limit a rationale closes after a complete sentence."""
    return min(32, max_rationale_tokens // 4)


def token_table(rubric: Rubric, vocabulary: Vocabulary, cache: Path | None = None) -> TokenTable:
    """Return the table of a rubric's answers in a vocabulary; build it, or load it from the cache folder.

    Raises:
        ModelError: the vocabulary cannot spell an answer.
    """
    if cache is None:
        return _build_table(rubric, vocabulary)
    decisive = (_FORMAT, version("outlines-core"), json.dumps(rubric.answer_layout.schema), vocabulary.digest)
    key = hashlib.sha256("\n".join(decisive).encode()).hexdigest()
    file = cache / "tables" / f"{key[:32]}.npz"
    table = _cached_table(file, key)
    if table is None:
        table = _build_table(rubric, vocabulary)
        keep(file, lambda scratch: table.save(scratch, key))
    return table


def _build_table(rubric: Rubric, vocabulary: Vocabulary) -> TokenTable:
    next_state, start, final = _index(rubric.answer_layout.schema, vocabulary)
    tokens_of = _tokens_of(vocabulary)
    scales = rubric.answer_layout.scales
    score_state: list[int] = []
    state, literal, rationale = start, b"", -1
    for part in rubric.answer_layout.parts:
        match part:
            case str():
                literal = part.encode()
            case FreeText():
                state = rationale = _walk(next_state, tokens_of, state, literal + b"x")
            case IntegerScale():
                score_state.append(_walk(next_state, tokens_of, state, literal))
                state = _walk(next_state, tokens_of, score_state[-1], part.texts[0].encode())
    next_state, sentence_end = _mark_sentence_ends(next_state, rationale, vocabulary)
    picks, score_token = _settle_scores(next_state, score_state, scales, vocabulary)
    in_rationale = _reachability(next_state)[:, rationale]
    distance = _distances(next_state, final, picks, sentence_end, in_rationale)
    if distance[start] >= UNREACHABLE:
        raise ModelError("the tokenizer cannot spell an answer to this rubric")
    for state, scale in zip(score_state, scales, strict=True):
        for value in scale.texts:
            if distance[_walk(next_state, tokens_of, state, value.encode())] >= UNREACHABLE:
                raise ModelError(f"the tokenizer cannot spell an answer with the score {value}")
    for end in vocabulary.ends:
        next_state[final, end] = final
    return TokenTable(
        next_state=next_state,
        distance=distance,
        in_rationale=in_rationale,
        sentence_end=sentence_end,
        score_state=np.array(score_state, np.int16),
        score_token=score_token,
        start=start,
    )


def _index(schema: dict[str, Any], vocabulary: Vocabulary) -> tuple[NDArray[np.int16], int, list[int]]:
    """Return Outlines' index with states numbered from 0: transitions as an array, start, final states."""
    expression = build_regex_from_schema(json.dumps(schema, ensure_ascii=False), whitespace_pattern="")
    beyond = (
        vocabulary.size
    )  # Outlines requires one end token; `_build_table` adds the model's end tokens last.
    try:
        index: Any = outlines_core.Index(expression, outlines_core.Vocabulary(beyond, _tokens_of(vocabulary)))
    except ValueError as error:
        raise ModelError(f"the tokenizer cannot spell an answer to this rubric: {error}") from None
    transitions = index.get_transitions()
    finals = index.get_final_states()
    names = {index.get_initial_state(), *transitions, *finals}
    names.update(state for targets in transitions.values() for state in targets.values())
    if len(names) > UNREACHABLE - 3:  # three more states: sentence end, thinking, and rows without an answer
        raise ModelError(f"the answer's grammar has {len(names)} states, more than a table holds")
    number = {name: rank for rank, name in enumerate(sorted(names))}
    ranks = np.vectorize(number.__getitem__, otypes=[np.int16])
    next_state = np.full((len(names), vocabulary.size), -1, np.int16)
    for name, targets in transitions.items():
        targets.pop(beyond, None)
        if targets:
            tokens = np.fromiter(targets.keys(), np.int64, len(targets))
            next_state[number[name], tokens] = ranks(np.fromiter(targets.values(), np.int64, len(targets)))
    return next_state, number[index.get_initial_state()], [number[name] for name in finals]


def _tokens_of(vocabulary: Vocabulary) -> dict[bytes, list[int]]:
    """Return the tokens that represent each piece of text."""
    tokens: dict[bytes, list[int]] = defaultdict(list)
    for token, piece in vocabulary.pieces.items():
        tokens[piece].append(token)
    return dict(tokens)


def _walk(next_state: NDArray[np.int16], tokens_of: Mapping[bytes, list[int]], state: int, text: bytes) -> int:
    """Return the state after a text; any tokens that spell the text lead there."""
    reached = {0: state}
    for begin in range(len(text)):
        if begin not in reached:
            continue
        for end in range(begin + 1, len(text) + 1):
            for token in tokens_of.get(text[begin:end], ()):
                if (after := int(next_state[reached[begin], token])) >= 0:
                    reached[end] = after
    if len(text) not in reached:
        raise ModelError(
            f"the tokenizer cannot spell {text.decode()!r}, which every answer contains: it has no "
            "token for it, or eos_token_id names that token; use another model"
        )
    return reached[len(text)]


def _settle_scores(
    next_state: NDArray[np.int16],
    score_state: list[int],
    scales: list[IntegerScale],
    vocabulary: Vocabulary,
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Forbid, in place, each token that combines a score with other text, and each second spelling of a score.

    Returns:
        bool (S, S), True where a step between two states picks a score or a part of it; and int32 (A, K), the
        token of each value for each aspect, all -1 if some value has no token of its own.
    """
    # No token may skip the state in which a score is picked.
    passed = ~_reachability(next_state)[:, score_state]
    level = passed.sum(axis=1)
    stop = np.array([*score_state, -1])
    for state, after in enumerate(next_state):
        next_state[state, (after >= 0) & (level[after] > level[state]) & (after != stop[level[state]])] = -1

    digits: dict[bytes, int] = {}
    touches_digits = np.zeros(vocabulary.size, bool)
    for token, piece in sorted(vocabulary.pieces.items()):
        touches_digits[token] = not _DIGITS.isdisjoint(piece)
        if _DIGITS.issuperset(piece):
            digits.setdefault(piece, token)
    score_token = np.full((len(scales), len(scales[0].values)), -1, np.int32)
    picks = np.zeros((len(next_state), len(next_state)), bool)
    for aspect, (state, scale) in enumerate(zip(score_state, scales, strict=True)):
        own_tokens = [digits.get(value.encode(), -1) for value in scale.texts]
        if -1 not in own_tokens:
            picked = next_state[state, own_tokens]
            next_state[state] = -1
            next_state[np.ix_(picked, touches_digits)] = -1
            next_state[state, own_tokens] = picked
            picks[state, picked] = True
            score_token[aspect] = own_tokens
            continue
        # Some value takes several tokens: allow one token for each string of digits, and no token that mixes
        # digits with other text.
        parts = np.array(list(digits.values()))
        queue = [state]
        while queue:
            here = queue.pop()
            after = next_state[here, parts]
            next_state[here, touches_digits] = -1
            next_state[here, parts] = after
            new = np.unique(after[after >= 0])
            queue += [int(there) for there in new if not picks[here, there]]
            picks[here, new] = True
    return picks, score_token


def _mark_sentence_ends(
    next_state: NDArray[np.int16], rationale: int, vocabulary: Vocabulary
) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Add a state for the end of a sentence: a copy of the rationale's state, reached by other tokens."""
    ends, quotes = np.zeros(vocabulary.size, bool), np.zeros(vocabulary.size, bool)
    for token, piece in vocabulary.pieces.items():
        ends[token] = piece.endswith(_SENTENCE_ENDS)
        quotes[token] = piece.startswith(b'"')
    after = next_state[rationale].copy()
    closes = (after >= 0) & ~_reachability(next_state)[after, rationale]
    after[closes & ~quotes] = -1  # no token that holds both another word and the closing quote
    next_state = np.vstack([next_state, after])
    states = len(next_state)
    next_state[(next_state == rationale) & ends] = states - 1
    sentence_end = np.zeros(states, bool)
    sentence_end[-1] = True
    return next_state, sentence_end


def _edges(next_state: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Return bool (S, S): True where some token leads from the first state to the second."""
    edges = np.zeros((len(next_state), len(next_state)), bool)
    for state, after in enumerate(next_state):
        edges[state, np.unique(after[after >= 0])] = True
    return edges


def _reachability(next_state: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Return bool (S, S): True where a sequence of tokens leads from the first state to the second."""
    reach = _edges(next_state)
    while True:
        further = reach | (reach.astype(np.float32) @ reach.astype(np.float32) > 0)
        if (further == reach).all():
            return reach
        reach = further


def _distances(
    next_state: NDArray[np.int16],
    final: list[int],
    picks: NDArray[np.bool_],
    sentence_end: NDArray[np.bool_],
    in_rationale: NDArray[np.bool_],
) -> NDArray[np.int16]:
    """Return the tokens that suffice from each state: the minimum over text, the maximum over scores."""
    edges = _edges(next_state)
    # To continue the rationale after a sentence requires `closing_margin` extra tokens. So the distance from a
    # sentence's end counts only the paths that leave the rationale, even if a path back into it is shorter.
    edges[np.ix_(sentence_end, in_rationale)] = False
    picked, free = edges & picks, edges & ~picks
    offers_score, offers_text = picked.any(axis=1), free.any(axis=1)
    distance = np.full(len(next_state), UNREACHABLE, np.int32)
    distance[final] = 0
    while True:
        nearest = np.where(free, distance, UNREACHABLE).min(axis=1)
        furthest = np.where(picked, distance, -1).max(axis=1)
        step = np.where(offers_score & offers_text, np.maximum(nearest, furthest), nearest)
        step = np.where(offers_score & ~offers_text, furthest, step)
        updated = np.minimum(step + 1, UNREACHABLE)
        updated[final] = 0
        if (updated == distance).all():
            return distance.astype(np.int16)
        distance = updated


def _cached_table(file: Path, key: str) -> TokenTable | None:
    """Return the table in a cache file; None if the file is missing, damaged or holds another table."""
    try:
        return TokenTable.load(recalled(file), key)
    except (OSError, ValueError, KeyError, EOFError, TypeError, MemoryError, zipfile.BadZipFile):
        return None
