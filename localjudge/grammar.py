"""The token table: which tokens may come next, and how many are needed to finish.

Outlines turns the answer's schema into a regular expression, and the expression and the vocabulary into an
index: states, and for each state the tokens allowed and the state each leads to. An index alone does not
keep an answer whole, because a model that never closes its rationale runs into the token limit. So the table
knows how far each state is from the end:

    next_state[s, t]   where token t leads from state s, -1 where it is not allowed
    distance[s]        tokens that suffice from s to a complete answer, whatever scores are picked
    need[s, t]         distance[next_state[s, t]]

With `left` tokens left, token t is allowed in state s exactly when `need[s, t] <= left - 1`. If
`distance[start] <= limit`, some token is always allowed and the answer is complete within the limit: where
the choice is free, `distance[s]` is one more than the smallest need, so the token with that need is allowed;
where a score is picked, it is one more than the largest need, so every score is allowed. Either way the next
state again satisfies `distance <= left`, and at `left = 0` only a complete answer has distance 0.

Three things are shaped beyond what the expression says:

* **A score is its own token.** No token runs over the edge of a score, and a score that has a token of its
  own is spelled by it alone. So at a score the allowed tokens are the values of the scale, one each, and the
  model's probabilities over them are the probabilities of the scores. And no limit can favour the scores
  that happen to have shorter spellings.
* **A rationale closes at the end of a sentence** when one ends near its limit: past a sentence's end, going
  on asks for `stretch` tokens more than it needs.
* **No white space** outside strings: it would cost tokens and say nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import outlines_core
from numpy.typing import NDArray
from outlines_core.json_schema import build_regex_from_schema

from localjudge.errors import ModelError
from localjudge.rubric import Rubric
from localjudge.vocabulary import Vocabulary

FAR = int(np.iinfo(np.int16).max)
"""The distance of a state from which no answer can be completed."""

_FORMAT = "3"
_SENTENCE_ENDS = tuple(mark.encode() for mark in (".", "!", "?", "…", "。", "！", "？", "।", "؟"))  # noqa: RUF001
_DIGITS = frozenset(b"0123456789")


@dataclass(frozen=True, slots=True)
class TokenTable:
    """The answers to one rubric as one model's tokens. S states, V the width of the logits, A aspects.

    Attributes:
        next_state: int16 (S, V), the state that a token leads to; -1 where the grammar forbids it.
        distance: int16 (S,), tokens that suffice to complete the answer; `FAR` where none do.
        in_rationale: bool (S,), whether the rationale can still grow from here.
        sentence_end: bool (S,), whether a sentence of the rationale has just ended.
        score_state: int16 (A,), the state in which each aspect's score is picked.
        score_token: int32 (A, K), the token of each value of the scale, lowest first; -1 throughout where
            some value has no token of its own, so that one position does not hold the distribution.
        start: the state of an empty answer.
        thinking: the state of a model that thinks before it answers; None where it answers at once.
    """

    next_state: NDArray[np.int16]
    distance: NDArray[np.int16]
    in_rationale: NDArray[np.bool_]
    sentence_end: NDArray[np.bool_]
    score_state: NDArray[np.int16]
    score_token: NDArray[np.int32]
    start: int
    thinking: int | None = None

    @property
    def entry(self) -> int:
        """The state before the first token."""
        return self.start if self.thinking is None else self.thinking

    @property
    def smallest_limit(self) -> int:
        """The fewest tokens that can always hold an answer, with one token of rationale."""
        return int(self.distance[self.start])

    @property
    def has_probabilities(self) -> bool:
        return bool((self.score_token >= 0).all())

    def limit(self, max_rationale_tokens: int) -> int:
        """The most tokens of an answer whose rationale has at most this many.

        Raises:
            ValueError: no answer fits.
        """
        if max_rationale_tokens < 1:
            raise ValueError(
                f"a rationale of {max_rationale_tokens} tokens leaves no room for an answer; "
                f"the smallest that works is 1 ({self.smallest_limit} tokens in all)"
            )
        return self.smallest_limit - 1 + max_rationale_tokens

    def after_thinking(self, vocabulary: Vocabulary, opens: int | None, ends: int, limit: int) -> TokenTable:
        """The table of a model that thinks until the token `ends`, and then answers within `limit` tokens.

        Thoughts are text, and the token that opens them. They need `limit` tokens to be left for the answer, so
        an engine that allows `budget + 1 + limit` tokens in all ends the thinking after `budget` of them.
        """
        thinking = len(self.distance)
        thoughts = np.full(self.next_state.shape[1], -1, np.int16)
        thoughts[[*vocabulary.pieces, *([] if opens is None else [opens])]] = thinking
        thoughts[ends] = self.start
        nothing = np.zeros(1, bool)
        return replace(
            self,
            next_state=np.vstack([self.next_state, thoughts]),
            distance=np.append(self.distance, np.int16(limit + 1)),
            in_rationale=np.append(self.in_rationale, nothing),
            sentence_end=np.append(self.sentence_end, nothing),
            thinking=thinking,
        )

    def split(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """The thoughts and the answer, without the token between them."""
        if self.thinking is None:
            return [], list(tokens)
        end = next(
            rank for rank, token in enumerate(tokens) if self.next_state[self.thinking, token] == self.start
        )
        return list(tokens[:end]), list(tokens[end + 1 :])

    def need(self, state: int, stretch: int = 0) -> NDArray[np.int32]:
        """Tokens needed after each token, int32 (V,); `FAR` or more where it is not allowed."""
        after = self.next_state[state]
        need = np.where(after >= 0, self.distance[after], FAR).astype(np.int32)
        if self.sentence_end[state]:
            need[(after >= 0) & self.in_rationale[after]] += stretch
        return need

    def allowed(self, state: int, left: int, stretch: int = 0) -> NDArray[np.bool_]:
        """Whether each token may come next with `left` tokens left, bool (V,): the rule, as it reads."""
        return self.need(state, stretch) <= min(left - 1, FAR - 1)

    def states(self, tokens: Iterable[int]) -> list[int]:
        """The states before each token of an answer and after the last.

        Raises:
            ValueError: a token is not allowed where it stands.
        """
        path = [self.start]
        for token in tokens:
            state = int(self.next_state[path[-1], token])
            if state < 0:
                raise ValueError(f"token {token} is not allowed at position {len(path) - 1}")
            path.append(state)
        return path

    def is_complete(self, state: int) -> bool:
        return bool(self.distance[state] == 0)

    def save(self, file: Path, key: str = "") -> None:
        """Write the table to a file, under a key that `load` must be given again."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        parts["thinking"] = -1 if self.thinking is None else self.thinking
        with file.open("wb") as stream:
            np.savez(stream, allow_pickle=False, key=np.array(key), **parts)

    @classmethod
    def load(cls, file: Path, key: str = "") -> Self:
        """The table in a file.

        Raises:
            OSError, ValueError, KeyError, zipfile.BadZipFile …: the file holds no table under this key.
        """
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                raise ValueError(f"{file} holds another table")
            parts: dict[str, Any] = {field.name: stored[field.name] for field in fields(cls)}
        thinking = int(parts["thinking"])
        return cls(**{**parts, "start": int(parts["start"]), "thinking": None if thinking < 0 else thinking})

    def was_cut(self, tokens: Sequence[int], limit: int, stretch: int = 0) -> bool:
        """Whether the limit, and not the model, ended the rationale of this answer."""
        path = self.states(tokens)
        closing = next(step for step in range(len(tokens)) if not self.in_rationale[path[step + 1]])
        state, left = path[closing], limit - closing
        after = self.next_state[state]
        goes_on = (after >= 0) & self.in_rationale[after]
        return not bool((goes_on & self.allowed(state, left, stretch)).any())


def stretch_for(max_rationale_tokens: int) -> int:
    """How near its limit a rationale closes at the end of a sentence, in tokens."""
    return min(32, max_rationale_tokens // 4)


def token_table(rubric: Rubric, vocabulary: Vocabulary, cache: Path | None = None) -> TokenTable:
    """The table of a rubric's answers in a vocabulary, built or taken from the cache folder.

    Raises:
        ModelError: the vocabulary cannot spell an answer.
    """
    if cache is None:
        return _build(rubric, vocabulary)
    decisive = (_FORMAT, version("outlines-core"), json.dumps(rubric.answer_schema), vocabulary.digest)
    key = hashlib.sha256("\n".join(decisive).encode()).hexdigest()
    file = cache / "tables" / f"{key[:32]}.npz"
    table = _load(file, key)
    if table is None:
        table = _build(rubric, vocabulary)
        _save(file, key, table)
    return table


def cache_folder() -> Path:
    """The user's cache folder for localjudge: `LOCALJUDGE_CACHE`, or below `XDG_CACHE_HOME`."""
    if own := os.environ.get("LOCALJUDGE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "localjudge"


def _build(rubric: Rubric, vocabulary: Vocabulary) -> TokenTable:
    opening, separators, values = _literals(rubric)
    next_state, start, final = _index(rubric.answer_schema, vocabulary)
    rationale = _walk(next_state, vocabulary, start, opening + b"x")
    next_state, sentence_end = _mark_sentence_ends(next_state, rationale, vocabulary)
    score_state, here = [], rationale
    for separator in separators:
        score_state.append(_walk(next_state, vocabulary, here, separator))
        here = _walk(next_state, vocabulary, score_state[-1], values[0])
    picks, score_token = _settle_scores(next_state, score_state, values, vocabulary)
    in_rationale = _reachability(next_state)[:, rationale]
    distance = _distances(next_state, final, picks, sentence_end, in_rationale)
    if distance[start] >= FAR:
        raise ModelError("the tokenizer cannot spell an answer to this rubric")
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
    """Outlines' index as an array, with its states numbered from 0: transitions, start, final states."""
    expression = build_regex_from_schema(json.dumps(schema, ensure_ascii=False), whitespace_pattern="")
    ids: dict[bytes, list[int]] = defaultdict(list)
    for token, piece in vocabulary.pieces.items():
        ids[piece].append(token)
    beyond = vocabulary.size  # Outlines wants one end token; ours are added where the table is complete.
    try:
        index: Any = outlines_core.Index(expression, outlines_core.Vocabulary(beyond, dict(ids)))
    except ValueError as error:
        raise ModelError(f"the tokenizer cannot spell an answer to this rubric: {error}") from None
    transitions = index.get_transitions()
    finals = index.get_final_states()
    names = {index.get_initial_state(), *transitions, *finals}
    names.update(state for targets in transitions.values() for state in targets.values())
    if len(names) >= FAR:
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


def _literals(rubric: Rubric) -> tuple[bytes, list[bytes], list[bytes]]:
    """The fixed text of an answer: before the rationale, before each score, and the values themselves."""
    opening = f'{{"{rubric.answer.rationale}":"'
    keys = [f'"{key}":"' for key in rubric.aspect_keys.values()]
    separators = [f'","{rubric.answer.scores}":{{{keys[0]}', *(f'",{key}' for key in keys[1:])]
    values = [str(value).encode() for value in rubric.scale.values]
    return opening.encode(), [separator.encode() for separator in separators], values


def _walk(next_state: NDArray[np.int16], vocabulary: Vocabulary, state: int, text: bytes) -> int:
    """The state that a text leads to, by any tokens that spell it."""
    token_of = {piece: token for token, piece in vocabulary.pieces.items()}
    reached = {0: state}
    for begin in range(len(text)):
        if begin not in reached:
            continue
        for end in range(begin + 1, len(text) + 1):
            token = token_of.get(text[begin:end])
            if token is not None and (after := int(next_state[reached[begin], token])) >= 0:
                reached[end] = after
    if len(text) not in reached:
        raise ModelError(f"the tokenizer cannot spell {text.decode()!r}, which every answer contains")
    return reached[len(text)]


def _settle_scores(
    next_state: NDArray[np.int16], score_state: list[int], values: list[bytes], vocabulary: Vocabulary
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Forbid, in place, each token that runs over the edge of a score and each second spelling of one.

    Returns:
        bool (S, S), whether a step from one state to another picks a score or a part of one; and the token
        of each value at each aspect, int32 (A, K), or -1 throughout.
    """
    # No token passes a score without stopping at it.
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
    own_tokens = [digits.get(value, -1) for value in values]
    score_token = np.full((len(score_state), len(values)), -1, np.int32)
    picks = np.zeros((len(next_state), len(next_state)), bool)
    for aspect, state in enumerate(score_state):
        if -1 not in own_tokens:
            picked = next_state[state, own_tokens]
            next_state[state] = -1
            next_state[np.ix_(picked, touches_digits)] = -1
            next_state[state, own_tokens] = picked
            picks[state, picked] = True
            score_token[aspect] = own_tokens
            continue
        # Some value takes several tokens: leave each token of digits alone, once, and nothing that mixes.
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
    """Give the end of a sentence a state of its own: a copy of the rationale's, entered by other tokens."""
    ends, quotes = np.zeros(vocabulary.size, bool), np.zeros(vocabulary.size, bool)
    for token, piece in vocabulary.pieces.items():
        ends[token] = piece.endswith(_SENTENCE_ENDS)
        quotes[token] = piece.startswith(b'"')
    after = next_state[rationale].copy()
    closes = (after >= 0) & ~_reachability(next_state)[after, rationale]
    after[closes & ~quotes] = -1  # not another word and the closing quote in one
    next_state = np.vstack([next_state, after])
    states = len(next_state)
    next_state[(next_state == rationale) & ends] = states - 1
    sentence_end = np.zeros(states, bool)
    sentence_end[-1] = True
    return next_state, sentence_end


def _edges(next_state: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Whether some token leads from one state to another, bool (S, S)."""
    edges = np.zeros((len(next_state), len(next_state)), bool)
    for state, after in enumerate(next_state):
        edges[state, np.unique(after[after >= 0])] = True
    return edges


def _reachability(next_state: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Whether one or more tokens lead from one state to another, bool (S, S)."""
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
    """Tokens that suffice from each state: the fewest where the choice is free, the most over a score."""
    edges = _edges(next_state)
    # A way back into the rationale asks for `stretch` more than it needs: from a sentence's end only the ways
    # out of it suffice, even if a token that joins a word and the closing quote makes the way back shorter.
    edges[np.ix_(sentence_end, in_rationale)] = False
    picked, free = edges & picks, edges & ~picks
    offers_score, offers_text = picked.any(axis=1), free.any(axis=1)
    distance = np.full(len(next_state), FAR, np.int32)
    distance[final] = 0
    while True:
        nearest = np.where(free, distance, FAR).min(axis=1)
        furthest = np.where(picked, distance, -1).max(axis=1)
        step = np.where(offers_score & offers_text, np.maximum(nearest, furthest), nearest)
        step = np.where(offers_score & ~offers_text, furthest, step)
        updated = np.minimum(step + 1, FAR)
        updated[final] = 0
        if (updated == distance).all():
            return distance.astype(np.int16)
        distance = updated


def _load(file: Path, key: str) -> TokenTable | None:
    """The table in a cache file; None where there is none, or only a damaged or a foreign one."""
    try:
        return TokenTable.load(file, key)
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        return None


def _save(file: Path, key: str, table: TokenTable) -> None:
    """Put a table into the cache in one step; a cache that cannot be written is only a slower start."""
    scratch = file.with_name(f"{file.stem}.{os.getpid()}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        table.save(scratch, key)
        scratch.replace(file)
    except OSError:
        with suppress(OSError):
            scratch.unlink()
