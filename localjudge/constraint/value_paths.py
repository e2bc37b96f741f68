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
        begin: number of tokens of the answer before the value, thoughts included.
        written: the tokens of the value before the pick.
    """

    pick: int
    state: int
    begin: int
    written: tuple[int, ...]


@dataclass(slots=True)
class _Pick:
    """A pick of an aspect, after the tokens `written` of some of its values.

    Each of its tokens leads to another pick, or decides on a value (`picks` and `values`, by the index of the
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
        spellings = [_spellings(values) for values in table.value_token]
        for pick in self._picks:  # which become more
            self._spread(pick, spellings[pick.aspect])
        self.state = np.array([pick.state for pick in self._picks], np.int64)
        self.closing = np.array([pick.closing for pick in self._picks], np.int64)
        self.count = np.array([len(pick.tokens) for pick in self._picks], np.int64)
        self.width = int((self.count + 3).sum())
        most = int(self.count.max(initial=0))
        self.token = np.zeros((len(self._picks), most), np.int64)
        self.column = np.full((len(self._picks), most + 3), self.width, np.int64)
        begin = 0
        for number, pick in enumerate(self._picks):
            count = len(pick.tokens)
            self.token[number] = pick.tokens[:1]
            self.token[number, :count] = pick.tokens
            self.column[number, :count] = np.arange(begin, begin + count)
            self.column[number, -3:] = np.arange(begin + count, begin + count + 3)
            begin += count + 3

    def _spread(self, pick: _Pick, spellings: dict[int, tuple[int, ...]]) -> None:
        """Fill in where the tokens of a pick lead; add the picks that follow.

        Args:
            pick: the pick.
            spellings: the tokens of each value of its aspect.
        """
        length = len(pick.written)
        begun = {value: tokens for value, tokens in spellings.items() if tokens[:length] == pick.written}
        longer = {value: tokens for value, tokens in begun.items() if len(tokens) > length}
        pick.tokens = list(dict.fromkeys(tokens[length] for tokens in longer.values()))
        ended = begun.keys() - longer.keys()
        if ended:
            (pick.ends,) = ended
            allowed = np.flatnonzero(self.table.next_state[pick.state] >= 0).tolist()
            (pick.closing,) = set(allowed) - set(pick.tokens)
        for index, token in enumerate(pick.tokens):
            alike = {value: tokens for value, tokens in longer.items() if tokens[length] == token}
            if len(alike) == 1:
                (pick.values[index],) = alike
            else:
                pick.picks[index] = len(self._picks)
                self._picks.append(self._parting(pick, list(alike.values())))

    def _parting(self, pick: _Pick, spellings: Sequence[tuple[int, ...]]) -> _Pick:
        """Return the pick at which values that go on alike after this one part.

        Args:
            pick: the pick before.
            spellings: the tokens of each of these values.
        """
        length = len(pick.written)
        state = pick.state
        while True:
            next_tokens = {tokens[length : length + 1] for tokens in spellings}  # empty where a value ends
            if len(next_tokens) > 1:
                return _Pick(pick.aspect, state, spellings[0][:length])
            ((token,),) = next_tokens
            state = int(self.table.next_state[state, token])
            length += 1

    @property
    def described(self) -> dict[str, float]:
        """The largest share of the mass that an engine leaves out, for its record; empty if it computes all."""
        if self.most_branches == 0:
            return {}
        return {"unexplored": UNEXPLORED}

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
        shares = np.zeros(self._shape)
        masses = np.zeros(self._shape)
        for aspect in range(aspects):
            explored = self._explored(aspect, kept)
            shares[aspect] = explored.shares
            masses[aspect] = explored.masses
        total = shares.sum(axis=1)  # (A,)
        first_picks = kept[self.column[:aspects, -2:]]  # (A, 2)
        is_likeliest = first_picks[:, 1] > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            mass = first_picks[:, 0] * masses.sum(axis=1) / total
            return shares / total[:, None], mass, is_likeliest

    def unexplored(self, kept: Floats, tokens: Sequence[int]) -> list[Branch]:
        """Return the picks beside an answer that the model has to compute next; none when it has finished.

        The least probable picks are left out, as long as they have at most `UNEXPLORED` together.

        Args:
            kept: as in `values`.
            tokens: the answer, thoughts included.
        """
        if self.most_branches == 0:
            return []
        wanted: list[int] = []
        for aspect in range(self._shape[0]):
            wanted += self._wanted(aspect, kept)
        if not wanted:
            return []
        _, answer = self.table.split(tokens)
        thoughts = len(tokens) - len(answer)
        path = self.table.states(answer)
        branches: list[Branch] = []
        for number in wanted:
            pick = self._picks[number]
            begin_of_value = path.index(self._picks[pick.aspect].state)
            branches.append(Branch(number, pick.state, thoughts + begin_of_value, pick.written))
        return branches

    def _wanted(self, aspect: int, kept: Floats) -> list[int]:
        """Return the picks of an aspect that have to be computed next, the most probable first."""
        frontier = self._explored(aspect, kept).frontier
        frontier.sort(key=lambda uncomputed: -uncomputed.share)
        remaining = sum(uncomputed.share for uncomputed in frontier)
        wanted: list[int] = []
        for uncomputed in frontier:
            if not remaining > UNEXPLORED:
                break
            remaining -= uncomputed.share
            wanted.append(uncomputed.pick)
        return wanted

    def _explored(self, aspect: int, kept: Floats) -> _Explored:
        """Return what is known of an aspect's values; `kept` is that of `values`."""
        explored = _Explored(np.zeros(self._shape[1]), np.zeros(self._shape[1]), [])
        # The picks to visit: the probability of all their values, the product of the sums before, the number.
        ahead = [(1.0, 1.0, aspect)]
        while ahead:
            share, mass, number = ahead.pop()
            pick = self._picks[number]
            end, branch_sum, is_likeliest = kept[self.column[number, -3:]].tolist()
            if number != aspect:
                if np.isnan(is_likeliest):
                    explored.frontier.append(_Uncomputed(share, number))
                    continue
                mass *= branch_sum
            of_tokens = (kept[self.column[number, : len(pick.tokens)]] * share).tolist()
            for index, value in pick.values.items():
                explored.set(value, of_tokens[index], mass)
            if pick.ends >= 0:
                explored.set(pick.ends, end * share, mass)
            for index, next_pick in pick.picks.items():
                ahead.append((of_tokens[index], mass, next_pick))
        return explored


@dataclass(frozen=True, slots=True)
class _Uncomputed:
    """The number of a pick that was not computed, and the probability of its values together."""

    share: float
    pick: int


@dataclass(frozen=True, slots=True)
class _Explored:
    """What is known of the K values of an aspect.

    Attributes:
        shares: the probability of each value, (K,); 0 where it is not known.
        masses: the same times the sums of the picks on its way, (K,), relative to the mass of the first pick.
        frontier: the picks that were not computed.
    """

    shares: Floats
    masses: Floats
    frontier: list[_Uncomputed]

    def set(self, value: int, share: float, mass: float) -> None:
        """Set the probability of a value, and the product of the sums of the picks on its way."""
        self.shares[value] = share
        self.masses[value] = share * mass


def _spellings(values: NDArray[np.int32]) -> dict[int, tuple[int, ...]]:
    """Return the tokens of each value of an aspect, by its number.

    Args:
        values: the values of the aspect in a table, (K, L).
    """
    spellings: dict[int, tuple[int, ...]] = {}
    for number, tokens in enumerate(values):
        if tokens[0] >= 0:
            spellings[number] = tuple(tokens[tokens >= 0].tolist())
    return spellings
