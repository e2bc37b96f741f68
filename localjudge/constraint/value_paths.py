"""The probabilities of whole values, from those of the tokens that tell the values apart.

A pick is a state of the token table with several branches: the state in which the value of an aspect begins
and, where values share their first tokens (1 and 10, warm and warmer), the states in which these values part.
The branches of a pick share 1:

* Where the value begins, they are the first tokens of the values. Each has its probability divided by their
  sum. This sum, in the model's distribution over its whole vocabulary, is the mass of the values.
* Where a value may end and others continue it, they are the tokens that continue, and the end, which has all
  other tokens. So the values that begin alike have together what their beginning has, however many they are. A
  token that would spell the continuation in another way counts as the end.
* Where no value may end (`very good`, `very bad`), the tokens that continue are divided by their sum, which
  multiplies the mass alone.

The probability of a value is the product of its branches. So it does not depend on which other values exist,
except on those that share its beginning. The engine writes a branch by the same probabilities: the end's is
given to the only token that the table allows there (`ScoreBuffer.keep`).

An engine keeps the probabilities at each pick that it computes. An answer takes one path;
`ValuePaths.unexplored` returns the picks beside this path that the model still has to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import TokenTable

Floats = NDArray[np.float64]

VALUE_RULE = 2
"""The number of this definition. It is a part of keys and of the identity of a token table."""
UNEXPLORED = 0.001
"""The largest probability of an aspect's values together that the model is not asked for.

An expected score is exact up to this share of its scale, and the probabilities of labels up to this total
variation.
"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A pick that the model is to be asked for.

    Attributes:
        pick: its number.
        state: its state in the table.
        place: number of tokens of the answer before the value, thoughts included.
        written: the tokens of the value before the pick.
    """

    pick: int
    state: int
    place: int
    written: tuple[int, ...]


@dataclass(slots=True)
class _Pick:
    """A pick of an aspect, after the tokens `written` of some of its values.

    Each of its tokens leads to another pick, or decides on a value (`picks` and `values`, by the place of the
    token). `ends` is the value that may end here, and `closing` the token that follows it; -1 if none may end.
    """

    aspect: int
    state: int
    written: tuple[int, ...] = ()
    tokens: list[int] = field(default_factory=list)
    picks: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    ends: int = -1
    closing: int = -1


class ValuePaths:
    """The ways through a token table to the values of A aspects: P picks, each with up to C tokens.

    Attributes:
        table: the table.
        state: int64 (P,), the state of each pick; the first A are those in which the values of aspects begin.
        token: int64 (P, C), the tokens at each pick; its first one again after its last.
        count: int64 (P,), the number of tokens of each pick.
        closing: int64 (P,), the token that follows a value that may end at the pick; -1 if none may.
        column: int64 (P, C + 3), where an engine keeps the probability of each token, that of the end, the sum
            of both before it was divided, and whether the model's likeliest token is one of the tokens; `width`
            where there is nothing to keep.
        width: number of columns.
    """

    def __init__(self, table: TokenTable) -> None:
        self.table = table
        self._picks = [_Pick(aspect, int(state)) for aspect, state in enumerate(table.score_state)]
        self._shape = table.value_token.shape[:2]
        spellings = [
            {place: tuple(value[value >= 0].tolist()) for place, value in enumerate(values) if value[0] >= 0}
            for values in table.value_token
        ]
        for pick in self._picks:  # which become more
            self._spread(pick, spellings[pick.aspect])
        most = max((len(pick.tokens) for pick in self._picks), default=0)
        self.width = sum(len(pick.tokens) + 3 for pick in self._picks)
        self.state = np.array([pick.state for pick in self._picks], np.int64)
        self.closing = np.array([pick.closing for pick in self._picks], np.int64)
        self.count = np.array([len(pick.tokens) for pick in self._picks], np.int64)
        self.token = np.array(
            [pick.tokens + pick.tokens[:1] * (most - len(pick.tokens)) for pick in self._picks], np.int64
        ).reshape(len(self._picks), most)
        self.column = np.full((len(self._picks), most + 3), self.width, np.int64)
        begin = 0
        for place, count in enumerate(self.count.tolist()):
            self.column[place, :count] = np.arange(begin, begin + count)
            self.column[place, -3:] = np.arange(begin + count, begin + count + 3)
            begin += count + 3

    def _spread(self, pick: _Pick, spellings: dict[int, tuple[int, ...]]) -> None:
        """Fill in where the tokens of a pick lead; add the picks that follow.

        Args:
            pick: the pick.
            spellings: the tokens of each value of its aspect.
        """
        length = len(pick.written)
        here = {value: tokens for value, tokens in spellings.items() if tokens[:length] == pick.written}
        longer = {value: tokens for value, tokens in here.items() if len(tokens) > length}
        pick.tokens = [*dict.fromkeys(tokens[length] for tokens in longer.values())]
        if ended := here.keys() - longer.keys():
            (pick.ends,) = ended
            allowed = np.flatnonzero(self.table.next_state[pick.state] >= 0).tolist()
            (pick.closing,) = {*allowed} - {*pick.tokens}
        for place, token in enumerate(pick.tokens):
            alike = {value: tokens for value, tokens in longer.items() if tokens[length] == token}
            if len(alike) == 1:
                (pick.values[place],) = alike
                continue
            shared, state = length, pick.state
            while len(after := {tokens[shared : shared + 1] for tokens in alike.values()}) == 1:
                (tokens,) = after
                state, shared = int(self.table.next_state[state, tokens[0]]), shared + 1
            pick.picks[place] = len(self._picks)
            self._picks.append(_Pick(pick.aspect, state, next(iter(alike.values()))[:shared]))

    @property
    def described(self) -> dict[str, float]:
        """The largest share of the mass that an engine leaves out, for its record; empty if it computes all."""
        return {"unexplored": UNEXPLORED} if self.most_branches else {}

    @property
    def most_branches(self) -> int:
        """The largest number of picks that the model computes beside those on the path of an answer."""
        return len(self._picks) - int(self._shape[0])

    def values(self, kept: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return what is known of each aspect's values.

        Args:
            kept: (`width`,), what an engine kept of an answer; NaN at picks that were not computed.

        Returns:
            the probabilities (A, K), 0 after the last value; the mass (A,); whether the model's likeliest token
            begins a value (A,). NaN where the model's numbers are not finite.
        """
        aspects = self._shape[0]
        roots = kept[self.column[:aspects, -2:]]
        shares, masses = np.zeros(self._shape), np.zeros(self._shape)
        for aspect in range(aspects):
            shares[aspect], masses[aspect], _ = self._explored(aspect, kept)
        total = shares.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return shares / total[:, None], roots[:, 0] * masses.sum(axis=1) / total, roots[:, 1] > 0

    def unexplored(self, kept: Floats, tokens: Sequence[int]) -> list[Branch]:
        """Return the picks beside an answer that the model has to compute next; none when it has finished.

        The least probable picks are left out, as long as they have at most `UNEXPLORED` together.

        Args:
            kept: as in `values`.
            tokens: the answer, thoughts included.
        """
        aspects = range(self._shape[0] if self.most_branches else 0)
        wanted = [pick for aspect in aspects for pick in self._wanted(aspect, kept)]
        if not wanted:
            return []
        answer = self.table.split(tokens)[1]
        before, path = len(tokens) - len(answer), self.table.states(answer)
        return [
            Branch(
                self._picks.index(pick),
                pick.state,
                before + path.index(self._picks[pick.aspect].state),
                pick.written,
            )
            for pick in wanted
        ]

    def _wanted(self, aspect: int, kept: Floats) -> list[_Pick]:
        frontier = sorted(self._explored(aspect, kept)[2], key=lambda each: -each[0])
        rest = sum(share for share, _ in frontier)
        wanted: list[_Pick] = []
        for share, pick in frontier:
            if not rest > UNEXPLORED:
                break
            rest -= share
            wanted.append(pick)
        return wanted

    def _explored(self, aspect: int, kept: Floats) -> tuple[Floats, Floats, list[tuple[float, _Pick]]]:
        """Return what is known of an aspect's values.

        Returns:
            the probability of each value, (K,), 0 where it is not known; the same times the sums of the picks
            on its way, (K,), relative to the mass of the first pick; the picks that were not computed, each
            with the probability of its values together.
        """
        shares, masses = np.zeros(self._shape[1]), np.zeros(self._shape[1])
        frontier: list[tuple[float, _Pick]] = []
        ahead = [(1.0, 1.0, aspect)]
        while ahead:
            weight, mass, place = ahead.pop()
            pick, (end, sum_here, is_likeliest) = self._picks[place], kept[self.column[place, -3:]].tolist()
            if place != aspect:
                if np.isnan(is_likeliest):
                    frontier.append((weight, pick))
                    continue
                mass *= sum_here
            known = (kept[self.column[place, : len(pick.tokens)]] * weight).tolist()
            decided = [(known[token], value) for token, value in pick.values.items()]
            if pick.ends >= 0:
                decided.append((end * weight, pick.ends))
            for share, value in decided:
                shares[value], masses[value] = share, share * mass
            ahead += [(known[token], mass, after) for token, after in pick.picks.items()]
        return shares, masses, frontier
