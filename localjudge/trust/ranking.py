"""Systems compared on the same instructions: means with intervals, what cannot be told apart, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from localjudge.trust.estimate import Estimate

OVERALL = "overall"
"""The column of the mean over the aspects."""


@dataclass(frozen=True, slots=True)
class SystemRank:
    """One system; its figures go by column, the aspects and then "overall".

    `ranks` are the best and the worst rank that the paired comparisons do not rule out. `length_held` are the
    means at the mean length of all, `human` the prediction-powered means of the human score.
    """

    name: str
    rows: int
    instructions: int
    length: float | None
    means: Mapping[str, Estimate]
    ranks: Mapping[str, tuple[int, int]]
    win_rate: Mapping[str, float | None]
    length_held: Mapping[str, Estimate] | None
    human: Mapping[str, Estimate] | None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two systems on the instructions that both answered: `first` less `second`.

    `p` is adjusted for all pairs of its column. Wins, losses and ties count instructions.
    """

    first: str
    second: str
    column: str
    instructions: int
    difference: Estimate
    p: float | None
    wins: int
    losses: int
    ties: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """Systems from the best overall to the worst. `of` says which scores, `basis` whose differences decide the
    ranks and groups: the judge's, or with labels the human ones."""

    columns: tuple[str, ...]
    of: str
    basis: str
    systems: tuple[SystemRank, ...]
    pairs: tuple[Pair, ...]
    groups: Mapping[str, tuple[tuple[str, ...], ...]]
    length_explains: Mapping[str, float | None]
    notes: tuple[str, ...]
