"""The scores of rows with criteria as a column, for statistics of systems: of all criteria, or of tags."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from typing import Self

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.errors import UsageError
from localjudge.matching.run_rows import RunRows, common_rubric, read_rows
from localjudge.matching.scores import Scores, scores_of
from localjudge.matching.slices import Slices
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
            by_run: as for `localjudge.matching.scores.read_scores`.

        Raises:
            UsageError: no row has a score.
        """
        table = np.concatenate([self.table(name) for name in names])
        tag = np.repeat(np.arange(len(names)), [len(self.table(name)) for name in names])
        scored = np.flatnonzero(np.isfinite(table[:, 1]))
        lowest, number = floor(min(self._lowest[name] for name in names)), table[:, 0].astype(np.intp)
        score_column = ScoreColumn(column, column, {"lowest": lowest, "highest": 1}, 1.0)
        scores = scores_of((score_column,), (table[:, 1:2], table[:, 2:]), rows.take(number), scored, by_run)
        return replace(scores, failed=len(rows) - len(rows.judged)), tag[scored]


@dataclass(frozen=True, slots=True)
class PointRows:
    """The rows of runs of criteria, and their scores."""

    values: PointValues
    rows: RunRows

    @classmethod
    def read(cls, folders: Sequence[Path], report: Report = no_progress) -> Self:
        """Return the rows of runs.

        Args:
            folders: run directories.
            report: receives the number of lines that were read, and of all.
        """
        manifests = [read_manifest(folder) for folder in folders]
        common_rubric(folders, manifests)
        values = PointValues()
        return cls(values, read_rows(folders, manifests, values, report))

    def scores(self, by: str | None = None, by_run: bool = True) -> Scores:
        """Return the scores in one column.

        Args:
            by: a tag, for the score of the criteria that have it; None or "score" for that of all criteria.
            by_run: as for `localjudge.matching.scores.read_scores`.

        Raises:
            UsageError: no row has a score, or no criterion has the tag.
        """
        names = [SCORE, *self.values.tags]
        if by not in (None, *names):
            raise UsageError(f"`by` {by}: no criterion has this tag; give one of {', '.join(names)}")
        scores, _ = self.values.scores([by or SCORE], by or SCORE, self.rows, by_run)
        notes = []
        if without := len(self.rows.judged) - len(scores.ids):
            notes.append(
                f"{counted(without, 'row')} without positive points among these criteria have no score"
            )
        if (np.bincount(scores.system, scores.integer[:, 0]) < 0).any():
            notes.append("means are not clipped here; show clips them to 0 to 1, as HealthBench does")
        return replace(scores, notes=tuple(notes))

    def by_tag(self) -> tuple[Scores, Slices] | None:
        """Return the scores of the criteria with each of the most frequent tags as slices; None without any.

        A row is in the slice of each of its tags.
        """
        tags = [tag for tag, scored in self.values.tags.items() if scored]
        if not tags:
            return None
        scores, of_row = self.values.scores(tags[:MOST_TAGS], SCORE, self.rows)
        more = len(tags) - MOST_TAGS
        return scores, Slices(f"tag ({more} more)" if more > 0 else "tag", tuple(tags[:MOST_TAGS]), of_row)
