"""The scores of rows with criteria as a column, for statistics of systems: of all criteria, or of tags."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import floor
from pathlib import Path

import numpy as np

from localjudge.analysis import Floats, Integers
from localjudge.analysis.matching.run_rows import RunRows, common_rubric, read_rows
from localjudge.analysis.matching.scores import Scores, scores_of
from localjudge.analysis.matching.slices import Slices
from localjudge.errors import UsageError
from localjudge.modes.checklist import MOST_TAGS, SCORE, ChecklistOutcome
from localjudge.rubrics.score_column import ScoreColumn
from localjudge.runs.run_manifest import read_manifest
from localjudge.system.quantities import counted
from localjudge.system.steps import Report, no_progress


class PointValues:
    """The scores of rows: of all their criteria, and of those with each tag."""

    def __init__(self) -> None:
        self._tables = defaultdict[str, "array[float]"](lambda: array("d"))
        self._lowest = defaultdict[str, float](float)
        self._rows = 0

    def add(self, outcome: ChecklistOutcome) -> None:
        for name, points in (outcome.by_tag | {SCORE: outcome.points}).items():
            values = (points.score, points.expected)
            known = (np.nan if value is None or outcome.error else value for value in values)
            self._tables[name].extend([self._rows, *known])
            self._lowest[name] = min(self._lowest[name], points.lowest or 0.0)
        self._rows += 1

    @property
    def tags(self) -> dict[str, int]:
        """The number of rows with a score of each tag, the most frequent first."""
        counts = {
            name: int(np.isfinite(self.table(name)[:, 1]).sum()) for name in self._tables if name != SCORE
        }
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def table(self, name: str) -> Floats:
        """Return the number, the score and the expected score of each row with this tag; NaN without one."""
        return np.reshape(self._tables[name], (-1, 3))

    def scores(
        self, names: Sequence[str], column: str, rows: RunRows, by_run: bool = True
    ) -> tuple[Scores, Integers]:
        """Return the scores of the criteria with each of these tags in one column, and the tag of each, [n].

        Args:
            names: the tags, or "score" for all criteria.
            column: the name of the column.
            rows: the rows that were added.
            by_run: as for `localjudge.analysis.matching.scores.read_scores`.

        Raises:
            UsageError: no row has a score.
        """
        table = np.concatenate([self.table(name) for name in names])
        tag = np.repeat(np.arange(len(names)), [len(self.table(name)) for name in names])
        scored = np.flatnonzero(np.isfinite(table[:, 1]))
        lowest, number = floor(min(self._lowest[name] for name in names)), table[:, 0].astype(np.intp)
        own = ScoreColumn(column, column, {"lowest": lowest, "highest": 1}, 1.0)
        found = scores_of((own,), (table[:, 1:2], table[:, 2:]), rows.take(number), scored, by_run)
        return replace(found, failed=len(rows) - len(rows.judged)), tag[scored]


def read_points(
    folders: Sequence[Path], by: str | None = None, report: Report = no_progress, by_run: bool = True
) -> Scores:
    """Return the scores of the rows of runs of criteria, in one column.

    Args:
        folders: run directories.
        by: a tag, for the score of the criteria that have it; None or "score" for that of all criteria.
        report: receives the number of lines that were read, and of all.
        by_run: as for `localjudge.analysis.matching.scores.read_scores`.

    Raises:
        UsageError: no row has a score, or no criterion has the tag.
    """
    values, rows = _read(folders, report)
    if by not in (None, SCORE, *values.tags):
        raise UsageError(
            f"`by` {by}: no criterion has this tag; give one of {', '.join([SCORE, *values.tags])}"
        )
    found, _ = values.scores([by or SCORE], by or SCORE, rows, by_run)
    notes = []
    if without := len(rows.judged) - len(found.ids):
        notes.append(f"{counted(without, 'row')} without positive points among these criteria have no score")
    if (np.bincount(found.system, found.integer[:, 0]) < 0).any():
        notes.append("means are not clipped here; show clips them to 0 to 1, as HealthBench does")
    return replace(found, notes=tuple(notes))


def read_points_by_tag(folders: Sequence[Path]) -> tuple[Scores, Slices] | None:
    """Return the scores of the criteria with each of the most frequent tags as slices; None without any.

    A row is in the slice of each of its tags.
    """
    values, rows = _read(folders)
    tags = [tag for tag, scored in values.tags.items() if scored]
    if not tags:
        return None
    scores, of_row = values.scores(tags[:MOST_TAGS], SCORE, rows)
    more = len(tags) - MOST_TAGS
    return scores, Slices(f"tag ({more} more)" if more > 0 else "tag", tuple(tags[:MOST_TAGS]), of_row)


def _read(folders: Sequence[Path], report: Report = no_progress) -> tuple[PointValues, RunRows]:
    manifests = [read_manifest(folder) for folder in folders]
    common_rubric(folders, manifests)
    values = PointValues()
    return values, read_rows(folders, manifests, values, report)
