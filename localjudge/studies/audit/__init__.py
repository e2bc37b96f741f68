"""Results of an audit: for each perturbation, the share of scores that moved as expected, and the shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats
from localjudge.errors import UsageError
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.jackknife import Shares
from localjudge.statistics.resampling import averages, studentise
from localjudge.studies.audit.audit_findings import NOISE, AspectReading, Audit, AuditCheck
from localjudge.studies.audit.audit_run import RUNS, Sample
from localjudge.studies.audit.audited_scores import AuditedRuns, Bools, Changes
from localjudge.studies.audit.perturbations import (
    ORIGINAL,
    POSITION,
    Direction,
    Perturbation,
    perturbations_of,
)

SMALLEST_CHANGE = 1 / 100
"""Smallest change that counts as lower or higher, as a share of the scale's range: 0.04 from 1 to 5."""
_NEAR_THE_TOP = 1 / 4
_NO_PREFERENCE = 1 / 2
"""The preference between two responses if none is better."""
_OF_ORDERS: tuple[Direction, ...] = ("orders agree", "no place wins")
"""The expectations of one pair by itself: nothing stands before it."""


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
    runs = AuditedRuns.read(out, manifest.rubric)
    if ORIGINAL not in runs.scores:
        raise UsageError(f"no row of the sample could be judged: {runs.errors[ORIGINAL][0]}")
    texts, places = runs.dealt_texts(), runs.dealt_places(seed) if runs.of == "preference" else None
    reader = _AuditReader(runs, _groups(sample), seed, texts, places)
    return Audit(
        model=manifest.model.judge,
        rubric=manifest.rubric.name,
        rows=len(sample.rows),
        instructions=len(set(reader.groups.tolist())),
        seed=seed,
        of=runs.of,
        ranges={column.name: column.highest - column.lowest for column in runs.columns},
        checks=[
            reader.check(each, sample.skipped[each.name], thresholds.get(each.name))
            for each in perturbations_of(manifest.rubric)
        ],
        aspects=[column.name for column in runs.columns],
        halo=_correlations(np.array([each.scores for each in runs.scores[ORIGINAL].values()]), runs.columns),
        notices=list(read_notices(out / RUNS[0])),
    )


@dataclass(frozen=True, slots=True)
class _AuditReader:
    """Reads the checks of one judge.

    `groups` has the number of the instruction of each sampled row. `texts` and `places` are the changes that
    give the level of chance: of scores, and of the probability that the response shown first is better.
    """

    runs: AuditedRuns
    groups: NDArray[np.int32]
    seed: int
    texts: Changes
    places: Changes | None

    def check(self, perturbation: Perturbation, skipped: Counter[str], threshold: float | None) -> AuditCheck:
        name = ORIGINAL if perturbation.name == POSITION else perturbation.name
        original, perturbed = self.runs.scores[ORIGINAL], self.runs.scores.get(name, {})
        rows = np.array([row for row in perturbed if row in original], dtype=np.int64)
        columns, names = self.runs.columns, [column.name for column in self.runs.columns]
        changes = self.runs.changes(name, rows.tolist(), perturbation.of_place)
        by_chance = self.places if self.places and perturbation.of_place else self.texts
        decisive = perturbation.decisive(columns)
        readings, outcomes, chances = {}, [], []
        for place, column in enumerate(columns):
            direction = perturbation.direction(column)
            if direction in _OF_ORDERS:
                changes.before[:, place] = _NO_PREFERENCE
            room, held = _tested(direction, column, *changes.column(place))
            readings[column.name] = AspectReading(
                direction=direction,
                tested=int(room.sum()),
                held=int((room & held).sum()),
                no_room=0 if direction == "any" else int((~room).sum()),
                shift=self._shift([place], changes, rows),
            )
            if column.name in decisive:
                outcomes.append((held[room], self.groups[rows][room]))
                before, after, agree = by_chance.column(place)
                if direction == "loses":  # by chance, either response loses
                    _, own, agree = changes.column(place)
                    before = after = np.concatenate([own, 1 - own])
                chances.append(_tested(direction, column, before, after, agree))
        rooms = sum(int(room.sum()) for room, _ in chances)
        return AuditCheck(
            name=perturbation.name,
            does=perturbation.does,
            rows=len(rows),
            failed=len(self.runs.errors.get(name, ())),
            skipped=dict(skipped.most_common()),
            aspects=readings,
            decisive=decisive,
            share=_share(outcomes),
            chance=sum(int((room & held).sum()) for room, held in chances) / rooms if rooms else None,
            shift=self._shift([names.index(aspect) for aspect in decisive], changes, rows),
            threshold=threshold,
        )

    def _shift(self, places: list[int], changes: Changes, rows: NDArray[np.int64]) -> Estimate:
        """Return the mean change over rows and columns, with an interval from resampling instructions.

        It is a share of the scale if the columns have different scales.
        """
        if not len(rows) or not places:
            return UNDEFINED
        columns = self.runs.columns
        widths = np.array([columns[place].highest - columns[place].lowest for place in places])
        width = widths[0] if len(set(widths.tolist())) == 1 else 1
        change = (changes.after - changes.before)[:, places] * (width / widths)
        of_instructions = averages(
            change.mean(axis=1, keepdims=True), self.groups[rows], int(self.groups.max()) + 1
        )
        return studentise(of_instructions, -width, width, seed=self.seed).estimates()[0]


def _share(outcomes: Sequence[tuple[Bools, NDArray[np.int32]]]) -> Estimate:
    """Return the share of the tested scores that changed as expected, with an interval over instructions.

    Args:
        outcomes: whether each tested score did, and its instruction, for each aspect.
    """
    if not any(len(held) for held, _ in outcomes):
        return UNDEFINED
    held = np.concatenate([held for held, _ in outcomes])
    group = np.concatenate([group for _, group in outcomes])
    return Shares.from_values(
        held.astype(np.float64), np.zeros(len(held), dtype=np.int32), 1, group
    ).estimates()[0]


def _tested(
    direction: Direction, column: ScoreColumn, before: Floats, after: Floats, agree: Bools | bool = False
) -> tuple[Bools, Bools]:
    """Return two masks of the rows: the score had room to move as expected, and it did.

    Whether it had room depends in the same way on the score before and after. A choice by one of them would
    count noise as a change: of scores that are low by chance, most are higher when judged again.
    """
    low, high, shift = column.lowest, column.highest, after - before
    width = high - low
    everywhere = np.ones(len(after), dtype=np.bool_)
    if direction == "lower":
        return np.maximum(before, after) > low + NOISE * width, shift < -SMALLEST_CHANGE * width
    if direction == "higher":  # a candidate that is worse than its reference must score higher after the swap
        return np.minimum(before, after) <= (low + high) / 2, shift > SMALLEST_CHANGE * width
    if direction == "not higher":
        return np.minimum(before, after) < high - NOISE * width, shift <= NOISE * width
    if direction == "loses":
        return everywhere, after < _NO_PREFERENCE - SMALLEST_CHANGE
    if direction == "orders agree":
        return everywhere, everywhere & agree
    if direction == "no place wins":
        return everywhere, (np.abs(after - _NO_PREFERENCE) <= NOISE) | agree
    if direction == "same":
        return everywhere, np.abs(shift) <= NOISE * width
    if direction == "near the top":
        return everywhere, after >= high - _NEAR_THE_TOP * width
    return ~everywhere, everywhere


def _groups(sample: Sample) -> NDArray[np.int32]:
    """Return the number of the instruction and reference of each sampled row."""
    numbers: dict[tuple[str, str | None], int] = {}
    return np.array(
        [numbers.setdefault((row.instruction, row.reference), len(numbers)) for row in sample.rows],
        dtype=np.int32,
    )


def _correlations(scores: Floats, columns: Sequence[ScoreColumn]) -> list[list[float | None]]:
    """Return Pearson's correlation of each pair of columns, (A, A).

    It is None if one of them is constant, and for shares of labels of one aspect, which depend on each other.
    """
    aspects = scores.shape[1]
    if len(scores) < 2:
        return [[None] * aspects for _ in range(aspects)]
    constant = [np.ptp(scores[:, place]) < 1e-9 for place in range(aspects)]
    with np.errstate(invalid="ignore", divide="ignore"):
        table = np.corrcoef(scores, rowvar=False).reshape(aspects, aspects)
    return [
        [
            None
            if constant[one] or constant[two] or (one != two and columns[one].aspect == columns[two].aspect)
            else round(float(table[one, two]), 4)
            for two in range(aspects)
        ]
        for one in range(aspects)
    ]
