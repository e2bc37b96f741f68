"""The rows of each system of a ranking, also those without a score, and the gate on its means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs
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
        known = self.group[self.group >= 0]
        largest = int(np.bincount(known).argmax()) if len(known) else 0
        return SystemRows(self.system, self.is_lost, np.where(self.group < 0, largest, self.group))

    def mean(self, at: int) -> float:
        """Return the mean of a column, without lost rows; NaN without a row."""
        kept = ~self.is_lost
        if not kept.any():
            return float("nan")
        return float(
            _values(self.score[kept, at], self.group[kept], by_instruction=self.by_instruction)[0].mean()
        )

    def values(self, at: int, lost_score: float) -> tuple[Floats, Integers]:
        """Return the values of a column whose mean is that of the system, and the instruction of each, [m].

        A lost row of an unknown instruction can be of any. It counts as if all rows to one instruction were
        lost: of the instructions, that whose mean is farthest from the score of lost rows.

        Args:
            at: the place of the column.
            lost_score: the score of lost rows.
        """
        score = np.where(self.is_lost, lost_score, self.score[:, at])
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
    if isinstance(judged, JudgedPairs):
        first, second = np.array(judged.system_names(["", ""])).reshape(-1, 2).T
        is_named = (first != "") & (second != "") & (first != second)
        preference = np.column_stack([each.preference[:, 0] for each in judged.aspects.values()])[is_named]
        names = np.concatenate([first[is_named], second[is_named]])
        score = np.concatenate([preference, 1 - preference])
        group = np.tile(judged.group[is_named], 2)
        unscored, unnamed = judged.unscored, ["", ""]
    else:
        names = np.array(judged.systems)[judged.system]
        score = np.column_stack([values for values, _ in judged.table(of or judged.best).values()])
        group = judged.group
        assert judged.unscored is not None  # the rows were read from runs
        unscored, unnamed = judged.unscored, [UNNAMED]
    failed = unscored.take(np.setdiff1d(np.arange(len(unscored)), unscored.judged))
    lost_systems = failed.system_names(unnamed)
    known = {*names.tolist()} | {name for systems in lost_systems for name in systems}
    known -= {""} | ({UNNAMED} if UNNAMED not in names and len(known) > 1 else set())
    found = []
    for system in sorted(known):
        of_system = names == system
        is_lost = np.array(
            [system in each or not known.issuperset(each) for each in lost_systems], dtype=np.bool_
        )
        lost = np.full((int(is_lost.sum()), score.shape[1]), np.nan)
        found.append(
            SystemScores(
                system=system,
                score=np.concatenate([score[of_system], lost]),
                group=np.concatenate([group[of_system], failed.group[is_lost]]),
                by_instruction=not isinstance(judged, JudgedPairs),
            )
        )
    return found


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
    return tuple(
        _condition(threshold, of_system, ends, may_lose=may_lose)
        for threshold in thresholds
        for of_system in rows_of_systems(judged, of)
    )


def ends_of_columns(
    judged: Scores | JudgedPairs, of: ScoreKind | None = None
) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each column."""
    if isinstance(judged, JudgedPairs):
        return dict.fromkeys(judged.aspects, (0.0, 1.0))
    return {name: ends for name, (_, ends) in judged.table(of or judged.best).items()}


def _condition(
    threshold: Threshold, of_system: SystemScores, ends: Mapping[str, tuple[float, float]], *, may_lose: bool
) -> Condition:
    """Return whether a condition holds for a system."""
    if threshold.kind is Kind.MAX_FAILED:
        return share_condition(threshold, of_system.counted, held=of_system.is_lost)
    at = list(ends).index(threshold.column)
    lowest, _ = ends[threshold.column]
    values, group = of_system.values(at, lost_score=lowest)
    return mean_condition(
        threshold,
        of_system.counted,
        values=values,
        group=group,
        measured=of_system.mean(at),
        least=threshold.limit or 0.0,
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
        column: the place of the column.
        ends: its lowest and its highest value.
    """
    for each in systems:
        if each.lost:
            low, high = (float(each.values(column, end)[0].mean()) for end in ends)
            yield LostRows(each.system, each.lost, len(each.score), low, high)
