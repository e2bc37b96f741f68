"""The rows of each system of a ranking, also those without a score, and the gate on its means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
from localjudge.matching.run_rows import RunRows
from localjudge.matching.scores import ScoreKind, Scores
from localjudge.matching.system_names import UNNAMED
from localjudge.runs.notices import is_dry_run
from localjudge.runs.reader import is_complete
from localjudge.statistics.resampling import cell_means
from localjudge.studies.conditions import (
    Condition,
    Kind,
    SystemRows,
    Threshold,
    check_threshold,
    mean_condition,
    share_condition,
)


@dataclass(frozen=True, slots=True)
class SystemScores:
    """The r rows of one system in a run: those that have a score, and those that were lost.

    Attributes:
        system: the system.
        score: the score of each row in each column, [r, C]; NaN for a lost one.
        group: the number of the instruction of each row, [r]; -1 if it is not known, as of a lost row that
            could not be read.
        by_instruction: whether all instructions have the same weight in a mean; otherwise all rows have.
    """

    system: str
    score: Floats
    group: Integers
    by_instruction: bool

    @property
    def is_lost(self) -> Flags:
        """Whether a row has no score, [r]."""
        return np.isnan(self.score[:, 0])

    @property
    def lost(self) -> int:
        """Number of rows without a score."""
        return int(self.is_lost.sum())

    @property
    def counted(self) -> SystemRows:
        """The rows for a share of them, in which a row of an unknown instruction is of the largest one."""
        is_known = self.group >= 0
        largest = 0
        if is_known.any():
            largest = int(np.bincount(self.group[is_known]).argmax())
        return SystemRows(self.system, self.is_lost, np.where(is_known, self.group, largest))

    def mean(self, column: int) -> float:
        """Return the mean of a column, without lost rows; NaN without a row."""
        has_score = ~self.is_lost
        if not has_score.any():
            return float("nan")
        values, _ = _values(
            self.score[has_score, column], self.group[has_score], by_instruction=self.by_instruction
        )
        return float(values.mean())

    def values(self, column: int, lost_score: float) -> tuple[Floats, Integers]:
        """Return the values of a column whose mean is that of the system, and the instruction of each, [m].

        A lost row of an unknown instruction can be of any. It counts as if all rows to one instruction were
        lost: of the instructions, that whose mean is farthest from the score of lost rows.

        Args:
            column: the index of the column.
            lost_score: the score of lost rows.
        """
        score = np.where(self.is_lost, lost_score, self.score[:, column])
        if not self.by_instruction:
            return score, self.group
        is_known = self.group >= 0
        values, group = _values(score[is_known], self.group[is_known], by_instruction=True)
        unknown = int((~is_known).sum())
        if not len(values):
            return np.full(unknown, lost_score), np.arange(unknown)
        farthest = np.argsort(-np.abs(values - lost_score), kind="stable")[:unknown]
        values[farthest] = lost_score
        return values, group


def _values(score: Floats, group: Integers, *, by_instruction: bool) -> tuple[Floats, Integers]:
    """Return the mean on each instruction, and the instructions; or the scores as they are."""
    if not by_instruction:
        return score, group
    present, numbered = np.unique(group, return_inverse=True)
    return cell_means(score[:, None], numbered, len(present))[:, 0], present


def rows_of_systems(judged: Scores | JudgedPairs, of: ScoreKind | None = None) -> list[SystemScores]:
    """Return the rows of each system.

    A row is lost if it failed; one without positive points in the chosen criteria is not. A lost row whose
    system is not known is lost for every system. Pairs that do not name two systems are left out, as in the
    ranking.

    Args:
        judged: the rows of a run. Of pairs, the score of a system is the preference for it.
        of: the kind of scores; by default the expected scores if all rows have them.
    """
    scored = _scored_pairs(judged) if isinstance(judged, JudgedPairs) else _scored_rows(judged, of)
    is_failed = np.ones(len(scored.unscored), dtype=np.bool_)
    is_failed[scored.unscored.judged] = False
    failed = scored.unscored.take(is_failed)
    systems_of_failed = failed.system_names(scored.unnamed)
    systems = _known_systems(scored.systems, systems_of_failed)
    rows_of_systems = []
    for system in sorted(systems):
        is_scored = scored.systems == system
        is_lost = np.array(
            [system in of_row or not systems.issuperset(of_row) for of_row in systems_of_failed],
            dtype=np.bool_,
        )
        lost = np.full((int(is_lost.sum()), scored.score.shape[1]), np.nan)
        rows_of_systems.append(
            SystemScores(
                system=system,
                score=np.concatenate([scored.score[is_scored], lost]),
                group=np.concatenate([scored.group[is_scored], failed.group[is_lost]]),
                by_instruction=not isinstance(judged, JudgedPairs),
            )
        )
    return rows_of_systems


@dataclass(frozen=True, slots=True)
class _ScoredRows:
    """The n scores of systems, and the rows without one.

    Attributes:
        systems: the name of the system of each score, [n].
        score: the scores in each column, [n, C].
        group: the number of the instruction of each score, [n].
        unscored: the rows without a score.
        unnamed: the name of a system of these that is not known, for each response of a row.
    """

    systems: NDArray[np.str_]
    score: Floats
    group: Integers
    unscored: RunRows
    unnamed: Sequence[str]


def _scored_rows(judged: Scores, of: ScoreKind | None) -> _ScoredRows:
    """Return the scores of responses."""
    assert judged.unscored is not None  # the rows were read from runs
    table = judged.table(judged.best if of is None else of)
    return _ScoredRows(
        systems=np.array(judged.systems)[judged.system],
        score=np.column_stack([values for values, _ in table.values()]),
        group=judged.group,
        unscored=judged.unscored,
        unnamed=[UNNAMED],
    )


def _scored_pairs(judged: JudgedPairs) -> _ScoredRows:
    """Return the preferences for both systems of each pair that names two."""
    unnamed = ["", ""]
    first, second = np.array(judged.system_names(unnamed)).reshape(-1, 2).T
    is_named = (first != "") & (second != "") & (first != second)
    preference = np.column_stack([verdicts.preference[:, 0] for verdicts in judged.aspects.values()])[is_named]
    return _ScoredRows(
        systems=np.concatenate([first[is_named], second[is_named]]),
        score=np.concatenate([preference, 1 - preference]),
        group=np.tile(judged.group[is_named], 2),
        unscored=judged.unscored,
        unnamed=unnamed,
    )


def _known_systems(scored: NDArray[np.str_], failed: Sequence[Sequence[str]]) -> set[str]:
    """Return the names of all systems.

    Args:
        scored: the systems of scores, [n].
        failed: the systems of each row that failed.
    """
    systems = set(scored.tolist())
    for of_row in failed:
        systems.update(of_row)
    is_one_of_several = len(systems) > 1
    systems.discard("")
    if UNNAMED not in scored and is_one_of_several:
        systems.discard(UNNAMED)
    return systems


def check_means(
    judged: Scores | JudgedPairs, thresholds: Sequence[Threshold], of: ScoreKind | None = None
) -> tuple[Condition, ...]:
    """Return the conditions on the means of a ranking, each for every system.

    Args:
        judged: the rows of one judge's runs.
        thresholds: what is asked: `min` and `max_failed`.
        of: the kind of scores; by default the expected scores if all rows have them.

    Raises:
        UsageError: there is no such column, a limit is not possible, or a run is dry or incomplete.
    """
    if not thresholds:
        return ()
    ends = ends_of_columns(judged, of)
    for threshold in thresholds:
        check_threshold(threshold, ends)
    for folder, manifest in zip(judged.folders, judged.manifests, strict=True):
        if is_dry_run(manifest) or not is_complete(folder):
            what = "a dry run" if is_dry_run(manifest) else "not complete; the same score command continues it"
            raise UsageError(f"{folder}: is {what}, and a gate needs every score")
    may_lose = any(threshold.kind is Kind.MAX_FAILED for threshold in thresholds)
    systems = rows_of_systems(judged, of)
    return tuple(
        _condition(threshold, system, ends=ends, may_lose=may_lose)
        for threshold in thresholds
        for system in systems
    )


def ends_of_columns(
    judged: Scores | JudgedPairs, of: ScoreKind | None = None
) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each column."""
    if isinstance(judged, JudgedPairs):
        return dict.fromkeys(judged.aspects, (0.0, 1.0))
    table = judged.table(judged.best if of is None else of)
    return {name: ends for name, (_, ends) in table.items()}


def _condition(
    threshold: Threshold, system: SystemScores, *, ends: Mapping[str, tuple[float, float]], may_lose: bool
) -> Condition:
    """Return whether a condition holds for a system."""
    if threshold.kind is Kind.MAX_FAILED:
        return share_condition(threshold, system.counted, held=system.is_lost)
    column = list(ends).index(threshold.column)
    lowest, _ = ends[threshold.column]
    values, group = system.values(column, lost_score=lowest)
    return mean_condition(
        threshold,
        system.counted,
        values=values,
        group=group,
        measured=system.mean(column),
        least=0.0 if threshold.limit is None else threshold.limit,
        may_lose=may_lose,
    )


@dataclass(frozen=True, slots=True)
class LostRows:
    """The lost rows of a system, and its mean if these had the lowest or the highest score."""

    system: str
    lost: int
    rows: int
    if_lowest: float
    if_highest: float


def lost_rows(systems: Sequence[SystemScores], column: int, ends: tuple[float, float]) -> Iterator[LostRows]:
    """Yield the lost rows of each system that has some, and what its mean would be with any scores of these.

    Args:
        systems: the rows of each system.
        column: the index of the column.
        ends: its lowest and its highest value.
    """
    lowest, highest = ends
    for system in systems:
        if not system.lost:
            continue
        if_lowest, _ = system.values(column, lowest)
        if_highest, _ = system.values(column, highest)
        yield LostRows(
            system=system.system,
            lost=system.lost,
            rows=len(system.score),
            if_lowest=float(if_lowest.mean()),
            if_highest=float(if_highest.mean()),
        )
