"""Results of an audit: for each perturbation, the share of scores that moved as expected, and the shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localjudge.arrays import Flags, Integers
from localjudge.errors import UsageError
from localjudge.matching.run_rows import first_seen
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.log_odds import Shares
from localjudge.statistics.resampling import mean_estimate
from localjudge.studies.audit.audit_findings import AspectReading, Audit, AuditCheck
from localjudge.studies.audit.audit_run import RUNS, Sample
from localjudge.studies.audit.audit_scores import AuditedScores
from localjudge.studies.audit.expected_changes import ColumnChanges, ScoreChanges, change_test
from localjudge.studies.audit.perturbations import (
    ORIGINAL,
    POSITION,
    Direction,
    Perturbation,
    perturbations_of,
)
from localjudge.studies.audit.row_changes import SkipReason

_WITHIN_ONE_PAIR: tuple[Direction, ...] = ("orders agree", "no place wins")
"""The expectations of one pair by itself: it is not compared with the original pair."""


def read_audit(out: Path, sample: Sample, seed: int, thresholds: Mapping[str, float]) -> Audit:
    """Return the results of an audit's runs.

    Args:
        out: the folder that `run_audit` filled.
        sample: the audited rows.
        seed: the seed of the sample and of the intervals.
        thresholds: the minimum share for each perturbation.

    Raises:
        UsageError: the judge could not judge any unperturbed row.
    """
    manifest = read_manifest(out / RUNS[0])
    scores = AuditedScores.read(out, manifest.rubric, len(sample.rows))
    is_judged = np.isfinite(scores.numbers[ORIGINAL]).all(axis=1)
    if not is_judged.any():
        raise UsageError(f"no row of the sample could be judged: {scores.errors[ORIGINAL][0]}")
    _, group = np.unique([row.group for row in sample.rows], return_inverse=True)
    reader = AuditReader(scores, first_seen(group), seed)
    checks = [
        reader.check(perturbation, sample.skipped[perturbation.name], thresholds.get(perturbation.name))
        for perturbation in perturbations_of(manifest.rubric)
    ]
    return Audit(
        model=manifest.model.name,
        rubric=manifest.rubric.name,
        rows=len(sample.rows),
        instructions=int(reader.group.max()) + 1,
        seed=seed,
        score_kind=scores.score_kind,
        ranges={column.name: column.highest - column.lowest for column in scores.columns},
        checks=checks,
        aspects=[column.name for column in scores.columns],
        notices=read_notices(out / RUNS[0]),
    )


@dataclass(frozen=True, slots=True)
class _Perturbed:
    """The n rows that were judged as they are and with a perturbation.

    Attributes:
        directions: the expected change of each column, [A].
        decisive: the columns that decide the check.
        changes: the changes of the scores.
        group: the instruction of each row, [n].
    """

    directions: Sequence[Direction]
    decisive: Sequence[int]
    changes: ScoreChanges
    group: Integers


class AuditReader:
    """Reads the checks of one judge.

    Args:
        scores: the scores.
        group: the number of the instruction of each sampled row, [S].
        seed: the seed of the intervals, and of the pairs that give the level of chance.
    """

    def __init__(self, scores: AuditedScores, group: Integers, seed: int) -> None:
        self.scores = scores
        self.group = group
        self.seed = seed
        # The changes that give the level of chance: of scores, and of the probability of the place.
        self._chance_changes = scores.changes_between_texts()
        self._chance_changes_of_place = self._chance_changes
        if scores.are_of_pairs:
            self._chance_changes_of_place = scores.changes_between_drawn_orders(seed)

    def check(
        self, perturbation: Perturbation, skipped: Counter[SkipReason], threshold: float | None
    ) -> AuditCheck:
        """Return the result of one perturbation.

        Args:
            perturbation: the perturbation.
            skipped: number of rows by the reason why it did not apply to them.
            threshold: the minimum share; None for none.
        """
        name = ORIGINAL if perturbation.name == POSITION else perturbation.name
        perturbed = self._perturbed(perturbation, name)
        columns = self.scores.columns
        return AuditCheck(
            name=perturbation.name,
            description=perturbation.description,
            rows=len(perturbed.group),
            failed=len(self.scores.errors.get(name, ())),
            skipped=dict(skipped.most_common()),
            aspects={column.name: self._reading(index, perturbed) for index, column in enumerate(columns)},
            decisive=[columns[index].name for index in perturbed.decisive],
            share=self._share(perturbed),
            chance=self._chance(perturbed, of_place=perturbation.of_place),
            shift=self._shift(perturbed.decisive, perturbed),
            threshold=threshold,
        )

    def _perturbed(self, perturbation: Perturbation, name: str) -> _Perturbed:
        """Return the rows of a perturbation; `name` is that of its scores."""
        columns = self.scores.columns
        directions = [perturbation.direction(column) for column in columns]
        decisive_names = perturbation.decisive(columns)
        rows = self.scores.judged_rows(name)
        changes = self.scores.changes(name, rows, of_place=perturbation.of_place)
        within_one_pair = [index for index, direction in enumerate(directions) if direction in _WITHIN_ONE_PAIR]
        return _Perturbed(
            directions=directions,
            decisive=[index for index, column in enumerate(columns) if column.name in decisive_names],
            changes=changes.from_no_preference(within_one_pair),
            group=self.group[rows],
        )

    def _reading(self, index: int, perturbed: _Perturbed) -> AspectReading:
        """Return the number of scores in a column that changed as expected, and their shift."""
        direction = perturbed.directions[index]
        test = change_test(direction, self.scores.columns[index], perturbed.changes.column(index))
        tested = int(test.has_room.sum())
        return AspectReading(
            direction=direction,
            tested=tested,
            held=int(test.tested.sum()),
            no_room=0 if direction == "any" else len(test.has_room) - tested,
            shift=self._shift([index], perturbed),
        )

    def _share(self, perturbed: _Perturbed) -> Estimate:
        """Return the share of the tested scores in decisive columns that changed as expected."""
        changed: list[Flags] = []
        groups: list[Integers] = []
        for index in perturbed.decisive:
            column = self.scores.columns[index]
            test = change_test(perturbed.directions[index], column, perturbed.changes.column(index))
            changed.append(test.tested)
            groups.append(perturbed.group[test.has_room])
        if not any(map(len, changed)):
            return UNDEFINED
        is_expected = np.concatenate(changed).astype(np.float64)
        only_part = np.zeros(len(is_expected), dtype=np.int32)
        [share] = Shares.from_values(is_expected, only_part, 1, np.concatenate(groups)).estimates()
        return share

    def _chance(self, perturbed: _Perturbed, *, of_place: bool) -> float | None:
        """Return the share that changes as expected by chance; None if no score had room for it."""
        by_chance = self._chance_changes_of_place if of_place else self._chance_changes
        changed: list[Flags] = []
        for index in perturbed.decisive:
            direction = perturbed.directions[index]
            changes = by_chance.column(index)
            if direction == "loses":
                changes = _either_loses(perturbed.changes.column(index))
            changed.append(change_test(direction, self.scores.columns[index], changes).tested)
        if not any(map(len, changed)):
            return None
        return float(np.concatenate(changed).mean())

    def _shift(self, indexes: Sequence[int], perturbed: _Perturbed) -> Estimate:
        """Return the mean change over rows and columns, with an interval from resampling instructions.

        It is a share of the scale if the columns have different scales.
        """
        if not len(perturbed.group) or not indexes:
            return UNDEFINED
        widths = np.array([_width(self.scores.columns[index]) for index in indexes])
        width = widths[0] if (widths == widths[0]).all() else 1
        changes = perturbed.changes
        change = (changes.after - changes.before)[:, indexes] * (width / widths)
        return mean_estimate(
            change.mean(axis=1),
            perturbed.group,
            lowest=-width,
            highest=width,
            symmetric=True,
            seed=self.seed,
        )


def _either_loses(changes: ColumnChanges) -> ColumnChanges:
    """Return the preferences for each response of the pairs: by chance, either of them loses."""
    preferences = np.concatenate([changes.after, 1 - changes.after])
    orders_agree = np.concatenate([changes.orders_agree, changes.orders_agree])
    return ColumnChanges(preferences, preferences, orders_agree)


def _width(column: ScoreColumn) -> int:
    return column.highest - column.lowest
