"""The scores of rows with criteria as a column, for statistics of systems: of all criteria, or of one tag."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace
from math import floor
from pathlib import Path

import numpy as np

from localjudge.analysis import Floats
from localjudge.analysis.matching.run_rows import common_rubric, read_rows
from localjudge.analysis.matching.scores import Scores, scores_of
from localjudge.errors import UsageError
from localjudge.rubrics.checklist_outcome import SCORE, ChecklistOutcome, Points
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.quantities import counted
from localjudge.system.steps import Report, no_progress


class PointValues:
    """The scores of n rows.

    Args:
        tag: the tag of the criteria that count; None for all criteria.

    Attributes:
        tags: the tags of all criteria.
        lowest: the lowest score that a row could have, or 0.
    """

    def __init__(self, tag: str | None) -> None:
        self._tag, self._scores = tag, array("d")
        self.tags: dict[str, None] = {}
        self.lowest = 0.0

    def add(self, outcome: ChecklistOutcome) -> None:
        by_tag = outcome.by_tag
        self.tags |= dict.fromkeys(by_tag)
        points = outcome.points if self._tag is None else by_tag.get(self._tag, Points.of(()))
        for value in (points.score, points.expected):
            self._scores.append(np.nan if value is None or outcome.error else value)
        self.lowest = min(self.lowest, points.lowest or 0.0)

    @property
    def scores(self) -> Floats:
        """The score of each row and its expected score, [n, 2]; NaN for a row without one."""
        return np.asarray(self._scores).reshape(-1, 2)


def read_points(folders: Sequence[Path], by: str | None = None, report: Report = no_progress) -> Scores:
    """Return the scores of the rows of runs of criteria, in one column.

    Args:
        folders: run directories.
        by: a tag, for the score of the criteria that have it; None or "score" for that of all criteria.
        report: receives the number of lines that were read, and of all.

    Raises:
        UsageError: no row has a score, or no criterion has the tag.
    """
    manifests = [read_manifest(folder) for folder in folders]
    common_rubric(folders, manifests)
    values = PointValues(None if by == SCORE else by)
    rows = read_rows(folders, manifests, values, report)
    scores, expected = np.hsplit(values.scores, 2)
    scored = np.flatnonzero(np.isfinite(scores))
    if by not in (None, SCORE, *values.tags):
        known = ", ".join([SCORE, *values.tags])
        raise UsageError(f"`by` {by}: no criterion has this tag; give one of {known}")
    without = len(rows.judged) - len(scored)
    name = by or SCORE
    column = ScoreColumn(name, name, {"lowest": floor(values.lowest), "highest": 1}, 1.0)
    found = scores_of((column,), (scores, expected), rows, scored)
    notes = []
    if without:
        notes.append(f"{counted(without, 'row')} without positive points among these criteria have no score")
    if found.integer.mean() < 0:
        notes.append("means are not clipped here; HealthBench clips them to 0 to 1")
    return replace(found, failed=len(rows) - len(rows.judged), notes=tuple(notes))
