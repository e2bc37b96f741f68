"""The probabilities of whole values, from those of the tokens that tell the values apart.

Where each value of an aspect begins with a token of its own, the probabilities of these tokens, divided by
their sum, are those of the values. Where values share their first tokens (1 and 10, warm and warmer), the
probability of a value is the product of the probabilities of its tokens, and of the token that ends it if
another value continues it, divided by the sum over all values. All of these are the model's own probabilities
over its whole vocabulary, before the constraint. The sum over all values is the mass of the values.

A pick is a state of the token table in which tokens tell values apart: the state in which the value of an
aspect begins and, where values share tokens, the states after these. An engine keeps the probabilities at each
pick that it computes. An answer takes one path; `ValuePaths.unexplored` returns the picks beside this path that
the model still has to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localjudge.constraint.token_table import TokenTable

Floats = NDArray[np.float64]

UNEXPLORED = 0.001
"""The largest share of the mass of an aspect's values that the model is not asked for.

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

    Each of its tokens leads to another pick, or ends a value (`picks` and `values`, by the place of the token).
    """

    aspect: int
    state: int
    written: tuple[int, ...] = ()
    tokens: list[int] = field(default_factory=list)
    picks: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)


class ValuePaths:
    """The ways through a token table to the values of A aspects: P picks, each with up to C tokens.

    Attributes:
        table: the table.
        state: int64 (P,), the state of each pick; the first A are those in which the values of aspects begin.
        token: int64 (P, C), the tokens at each pick; -1 after its last.
        column: int64 (P, C + 2), where an engine keeps the probability of each token, their mass, and whether
            the model's likeliest token is one of them; `width` where there is nothing to keep.
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
        self.width = sum(len(pick.tokens) + 2 for pick in self._picks)
        self.state = np.array([pick.state for pick in self._picks], np.int64)
        self.token = np.full((len(self._picks), most), -1, np.int64)
        self.column = np.full((len(self._picks), most + 2), self.width, np.int64)
        begin = 0
        for place, pick in enumerate(self._picks):
            end = begin + len(pick.tokens)
            self.token[place, : end - begin] = pick.tokens
            self.column[place, : end - begin] = np.arange(begin, end)
            self.column[place, -2:] = end, end + 1
            begin = end + 2

    def _spread(self, pick: _Pick, spellings: dict[int, tuple[int, ...]]) -> None:
        """Fill in where the tokens of a pick lead; add the picks that follow.

        Args:
            pick: the pick.
            spellings: the tokens of each value of its aspect.
        """
        first = {value: tokens[0] for value, tokens in spellings.items()}
        if not pick.written and len(set(first.values())) == len(first):
            pick.tokens, pick.values = [*first.values()], dict(enumerate(first))
            return
        length = len(pick.written)
        here = {value: each for value, each in spellings.items() if each[:length] == pick.written}
        pick.tokens = [*dict.fromkeys(each[length] for each in here.values() if len(each) > length)]
        for place, token in enumerate(pick.tokens):
            written = (*pick.written, token)
            if [value for value, each in here.items() if each[: length + 1] == written and each != written]:
                pick.picks[place] = len(self._picks)
                self._picks.append(_Pick(pick.aspect, int(self.table.next_state[pick.state, token]), written))
            else:
                pick.values[place] = next(value for value, each in here.items() if each == written)
        for value in (value for value, each in here.items() if each == pick.written):
            allowed = np.flatnonzero(self.table.next_state[pick.state] >= 0).tolist()
            for token in sorted({*allowed} - {*pick.tokens}):
                pick.values[len(pick.tokens)] = value
                pick.tokens.append(token)

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
        found, aspects = np.zeros(self._shape), self._shape[0]
        for aspect in range(aspects):
            found[aspect] = self._explored(aspect, kept)[0]
        total, roots = found.sum(axis=1), kept[self.column[:aspects, -2:]]
        with np.errstate(invalid="ignore"):
            return found / total[:, None], roots[:, 0] * total, roots[:, 1] > 0

    def unexplored(self, kept: Floats, tokens: Sequence[int], start: int | None = None) -> list[Branch]:
        """Return the picks beside an answer that the model has to compute next; none when it has finished.

        The least probable picks are left out, as long as they have at most `UNEXPLORED` of the mass together.

        Args:
            kept: as in `values`.
            tokens: the answer, thoughts included.
            start: the state in which it begins; None for the table's own.
        """
        aspects = range(self._shape[0] if self.most_branches else 0)
        wanted = [pick for aspect in aspects for pick in self._wanted(aspect, kept)]
        if not wanted:
            return []
        table = self.table.beginning(start)
        answer = table.split(tokens)[1]
        before, path = len(tokens) - len(answer), table.states(answer)
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
        shares, frontier = self._explored(aspect, kept)
        frontier.sort(key=lambda each: -each[0])
        known, rest = float(shares.sum()), sum(reach for reach, _ in frontier)
        wanted: list[_Pick] = []
        for reach, pick in frontier:
            if not rest > UNEXPLORED * (known + rest):
                break
            known, rest = known + reach, rest - reach
            wanted.append(pick)
            while len(wanted[-1].tokens) == len(wanted[-1].picks) == 1:  # a single way, without a choice
                wanted.append(self._picks[wanted[-1].picks[0]])
        return wanted

    def _explored(self, aspect: int, kept: Floats) -> tuple[Floats, list[tuple[float, _Pick]]]:
        """Return the share of each value that is known, (K,), and the picks that are not, with their shares.

        Shares are of the mass of the tokens that begin a value.
        """
        shares = np.zeros(self._shape[1])
        frontier: list[tuple[float, _Pick]] = []
        ahead = [(1.0, aspect)]
        while ahead:
            weight, place = ahead.pop()
            pick, (mass, is_likeliest) = self._picks[place], kept[self.column[place, -2:]].tolist()
            if np.isnan(is_likeliest) and place != aspect:
                frontier.append((weight, pick))
                continue
            # A mass of 0 is that of a broken logit: the probability of what follows is then not known.
            part = 1.0 if place == aspect else mass or np.nan
            known = kept[self.column[place, : len(pick.tokens)]] * weight * part
            for token, value in pick.values.items():
                shares[value] += known[token]
            ahead += [(float(known[token]), after) for token, after in pick.picks.items()]
        return shares, frontier
