"""Results of an audit: for each perturbation, the share of scores that moved as expected, and the shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.interval import Estimate
from localjudge.analysis.resampling import averages, studentise
from localjudge.audit.audit_run import RUNS, Sample, sampled_row
from localjudge.audit.findings import NOISE, AspectReading, Audit, AuditCheck
from localjudge.audit.perturbations import ORIGINAL, PERTURBATIONS, Direction, Perturbation
from localjudge.errors import UsageError
from localjudge.records import Failure, Judgement, Outcome
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_notices, read_outcomes
from localjudge.runs.run_manifest import read_manifest

Floats = NDArray[np.float64]

FELT = 1 / 100
"""Smallest change that counts as lower or higher, as a share of the scale's range: 0.04 from 1 to 5."""
_NEAR_THE_TOP = 1 / 4


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
    columns = manifest.rubric.score_columns
    aspects = [column.name for column in columns]
    outcomes: dict[str, dict[int, Outcome]] = {}
    for run in RUNS:
        if (out / run).is_dir():
            for outcome in read_outcomes(out / run):
                name = str(outcome.system) if run == RUNS[0] else run
                outcomes.setdefault(name, {})[sampled_row(outcome)] = outcome
    every = [outcome for by_row in outcomes.values() for outcome in by_row.values()]
    judged = [each for each in every if isinstance(each, Judgement)]
    measured = {column.name for column in columns if all(column.expected(each) is not None for each in judged)}
    reader = _AuditReader(columns, measured, _groups(sample), seed)
    original = reader.scores(outcomes[ORIGINAL])
    if not original:
        reasons = [each.error for each in outcomes[ORIGINAL].values() if isinstance(each, Failure)]
        raise UsageError(f"no row of the sample could be judged: {reasons[0]}")
    checks = [
        reader.check(
            each, original, outcomes.get(each.name, {}), sample.skipped[each.name], thresholds.get(each.name)
        )
        for each in PERTURBATIONS
    ]
    return Audit(
        model=manifest.model.judge,
        rubric=manifest.rubric.name,
        rows=len(sample.rows),
        instructions=len(set(reader.groups.tolist())),
        seed=seed,
        of="expected" if measured else "integer",
        ranges={column.name: column.highest - column.lowest for column in columns},
        checks=checks,
        aspects=aspects,
        halo=_correlations(np.array(list(original.values())), columns),
        notices=list(read_notices(out / RUNS[0])),
    )


class _AuditReader:
    """Reads the checks of one judge."""

    def __init__(
        self, columns: Sequence[ScoreColumn], measured: Collection[str], groups: NDArray[np.int32], seed: int
    ) -> None:
        self._columns, self._measured, self._seed = columns, measured, seed
        self._aspects = [column.name for column in columns]
        self.groups = groups

    def scores(self, outcomes: Mapping[int, Outcome]) -> dict[int, Floats]:
        """Return the scores (A,) of each sampled row that was judged, in the order of the aspects."""
        found = {}
        for row, outcome in sorted(outcomes.items()):
            if isinstance(outcome, Judgement):
                found[row] = np.array([self._score(outcome, column) for column in self._columns])
        return found

    def _score(self, judgement: Judgement, column: ScoreColumn) -> float:
        expected = column.expected(judgement) if column.name in self._measured else None
        return float(column.number(judgement) if expected is None else expected)

    def check(
        self,
        perturbation: Perturbation,
        original: Mapping[int, Floats],
        outcomes: Mapping[int, Outcome],
        skipped: Counter[str],
        threshold: float | None,
    ) -> AuditCheck:
        perturbed = self.scores(outcomes)
        rows = np.array([row for row in perturbed if row in original], dtype=np.int64)
        before = np.array([original[row] for row in rows]).reshape(-1, len(self._aspects))
        after = np.array([perturbed[row] for row in rows]).reshape(-1, len(self._aspects))
        decisive = perturbation.decisive(self._columns)
        readings = {}
        for place, column in enumerate(self._columns):
            direction = perturbation.direction(column)
            room, held = _tested(direction, column, before[:, place], after[:, place])
            readings[column.name] = AspectReading(
                direction=direction,
                tested=int(room.sum()),
                held=int((room & held).sum()),
                no_room=0 if direction == "any" else int((~room).sum()),
                shift=self._shift([place], before, after, rows),
            )
        places = [self._aspects.index(aspect) for aspect in decisive]
        tested = sum(readings[aspect].tested for aspect in decisive)
        return AuditCheck(
            name=perturbation.name,
            does=perturbation.does,
            rows=len(rows),
            failed=len(outcomes) - len(perturbed),
            skipped=dict(skipped.most_common()),
            aspects=readings,
            decisive=decisive,
            share=sum(readings[aspect].held for aspect in decisive) / tested if tested else None,
            shift=self._shift(places, before, after, rows),
            threshold=threshold,
        )

    def _shift(self, places: list[int], before: Floats, after: Floats, rows: NDArray[np.int64]) -> Estimate:
        """Return the mean change over rows and columns, with an interval from resampling instructions.

        It is a share of the scale if the columns have different scales.
        """
        if not before.size or not places:
            return Estimate()
        widths = np.array([self._columns[place].highest - self._columns[place].lowest for place in places])
        width = widths[0] if len(set(widths.tolist())) == 1 else 1
        change = (after - before)[:, places] * (width / widths)
        of_instructions = averages(
            change.mean(axis=1, keepdims=True), self.groups[rows], int(self.groups.max()) + 1
        )
        return studentise(of_instructions, -width, width, seed=self._seed).estimates()[0]


def _tested(direction: Direction, column: ScoreColumn, before: Floats, after: Floats) -> tuple[Any, Any]:
    """Return two masks of the rows: the score had room to move as expected, and it did."""
    low, high, shift = column.lowest, column.highest, after - before
    width = high - low
    everywhere = np.ones(len(before), dtype=np.bool_)
    if direction == "lower":
        return before > low + NOISE * width, shift < -FELT * width
    if direction == "higher":  # a candidate that is worse than its reference must score higher after the swap
        return before <= (low + high) / 2, shift > FELT * width
    if direction == "not higher":
        return before < high - NOISE * width, shift <= NOISE * width
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
