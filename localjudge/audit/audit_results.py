"""Results of an audit: for each perturbation, the share of scores that moved as expected, and the shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis.interval import Estimate
from localjudge.analysis.resampling import averages, studentise
from localjudge.analysis.scores import Floats
from localjudge.audit.audit_run import RUNS, Sample
from localjudge.audit.audited_scores import AuditedRuns
from localjudge.audit.findings import NOISE, AspectReading, Audit, AuditCheck
from localjudge.audit.perturbations import ORIGINAL, POSITION, Direction, Perturbation, perturbations_of
from localjudge.errors import UsageError
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.reader import read_notices
from localjudge.runs.run_manifest import read_manifest

FELT = 1 / 100
"""Smallest change that counts as lower or higher, as a share of the scale's range: 0.04 from 1 to 5."""
_NEAR_THE_TOP = 1 / 4
_NO_PREFERENCE = 1 / 2
"""The preference between two responses if none is better."""


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
    reader = _AuditReader(runs, _groups(sample), seed)
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
    """Reads the checks of one judge; `groups` has the number of the instruction of each sampled row."""

    runs: AuditedRuns
    groups: NDArray[np.int32]
    seed: int

    def check(self, perturbation: Perturbation, skipped: Counter[str], threshold: float | None) -> AuditCheck:
        name = ORIGINAL if perturbation.name == POSITION else perturbation.name
        original, perturbed = self.runs.scores[ORIGINAL], self.runs.scores.get(name, {})
        rows = np.array([row for row in perturbed if row in original], dtype=np.int64)
        of_place = perturbation.of_place
        columns, names = self.runs.columns, [column.name for column in self.runs.columns]
        before, after = (
            np.array([each[row].shown_first if of_place else each[row].scores for row in rows]).reshape(
                -1, len(columns)
            )
            for each in (original, perturbed)
        )
        decisive = perturbation.decisive(columns)
        readings = {}
        for place, column in enumerate(columns):
            direction = perturbation.direction(column)
            of_orders = direction in ("orders agree", "no place wins")
            if of_orders:
                before[:, place] = _NO_PREFERENCE
            room, held = _tested(direction, column, before[:, place], after[:, place])
            if of_orders:
                held |= np.array([perturbed[row].agree[place] for row in rows], dtype=np.bool_)
            readings[column.name] = AspectReading(
                direction=direction,
                tested=int(room.sum()),
                held=int((room & held).sum()),
                no_room=0 if direction == "any" else int((~room).sum()),
                shift=self._shift([place], before, after, rows),
            )
        tested = sum(readings[aspect].tested for aspect in decisive)
        return AuditCheck(
            name=perturbation.name,
            does=perturbation.does,
            rows=len(rows),
            failed=len(self.runs.errors.get(name, ())),
            skipped=dict(skipped.most_common()),
            aspects=readings,
            decisive=decisive,
            share=sum(readings[aspect].held for aspect in decisive) / tested if tested else None,
            shift=self._shift([names.index(aspect) for aspect in decisive], before, after, rows),
            threshold=threshold,
        )

    def _shift(self, places: list[int], before: Floats, after: Floats, rows: NDArray[np.int64]) -> Estimate:
        """Return the mean change over rows and columns, with an interval from resampling instructions.

        It is a share of the scale if the columns have different scales.
        """
        if not before.size or not places:
            return Estimate()
        columns = self.runs.columns
        widths = np.array([columns[place].highest - columns[place].lowest for place in places])
        width = widths[0] if len(set(widths.tolist())) == 1 else 1
        change = (after - before)[:, places] * (width / widths)
        of_instructions = averages(
            change.mean(axis=1, keepdims=True), self.groups[rows], int(self.groups.max()) + 1
        )
        return studentise(of_instructions, -width, width, seed=self.seed).estimates()[0]


def _tested(direction: Direction, column: ScoreColumn, before: Floats, after: Floats) -> tuple[Any, Any]:
    """Return two masks of the rows: the score had room to move as expected, and it did.

    Whether the orders of a pair agree is not in its scores.
    """
    low, high, shift = column.lowest, column.highest, after - before
    width = high - low
    everywhere = np.ones(len(before), dtype=np.bool_)
    if direction == "lower":
        return before > low + NOISE * width, shift < -FELT * width
    if direction == "higher":  # a candidate that is worse than its reference must score higher after the swap
        return before <= (low + high) / 2, shift > FELT * width
    if direction == "not higher":
        return before < high - NOISE * width, shift <= NOISE * width
    if direction == "loses":
        return everywhere, after < _NO_PREFERENCE - FELT
    if direction == "orders agree":
        return everywhere, ~everywhere
    if direction in ("same", "no place wins"):
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
