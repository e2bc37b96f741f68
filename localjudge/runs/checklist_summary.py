"""Mean scores of the systems of a run of criteria, also of the criteria with each tag."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import Any

from localjudge.records import Failure
from localjudge.rubrics.checklist_outcome import ChecklistOutcome, Points
from localjudge.system.quantities import counted

MOST_TAGS = 15
"""Largest number of tags in a table: the most frequent."""


@dataclass(slots=True)
class MeanScore:
    """The mean score of rows. It is clipped to 0 to 1, as by HealthBench; the score of a row is not."""

    rows: int = 0
    total: float = 0.0
    total_expected: float = 0.0

    def add(self, points: Points) -> None:
        """Add a row; one without a score does not count."""
        if points.score is not None:
            self.rows += 1
            self.total += points.score
            self.total_expected += nan if points.expected is None else points.expected

    @property
    def mean(self) -> float | None:
        """The mean of the scores; None if no row has one."""
        return round(self.total / self.rows, 4) if self.rows else None

    @property
    def clipped(self) -> float | None:
        """The mean, clipped; None if no row has a score."""
        return _clipped(self.mean)

    @property
    def expected(self) -> float | None:
        """The mean of the expected scores, clipped; None unless all rows have one."""
        known = self.rows and isfinite(self.total_expected)
        return _clipped(round(self.total_expected / self.rows, 4)) if known else None


def _clipped(mean: float | None) -> float | None:
    return None if mean is None else min(1.0, max(0.0, mean))


@dataclass(slots=True)
class SystemPoints:
    """The rows of one system; those with a failed criterion or without positive points count separately."""

    judged: int = 0
    failed: int = 0
    score: MeanScore = field(default_factory=MeanScore)
    tags: defaultdict[str, MeanScore] = field(default_factory=lambda: defaultdict(MeanScore))

    @property
    def unscored(self) -> int:
        """Number of judged rows without positive points."""
        return self.judged - self.score.rows


class ChecklistSummary:
    """Counts and mean scores, from the outcomes of the rows of a run.

    Attributes:
        sides: the rows of each system; None is the name of rows without one.
        reasons: number of criteria that failed for each reason.
    """

    def __init__(self) -> None:
        self.sides: dict[str | None, SystemPoints] = {}
        self.reasons: Counter[str] = Counter()
        self._criteria = 0

    def add(self, row: ChecklistOutcome) -> None:
        """Count a row."""
        side, points = self.sides.setdefault(row.first.system, SystemPoints()), row.points
        self.reasons.update(each.reason for each in row.of_prompts if isinstance(each, Failure))
        self._criteria += points.judged
        if row.error is not None:
            side.failed += 1
            return
        side.judged += 1
        side.score.add(points)
        for tag, own in row.by_tag.items():
            side.tags[tag].add(own)

    @property
    def tags(self) -> list[str]:
        """The tags, the most frequent first."""
        counts = Counter[str]()
        for side in self.sides.values():
            counts.update({tag: score.rows for tag, score in side.tags.items()})
        return [tag for tag, _ in counts.most_common()]

    @property
    def counted(self) -> str:
        """The numbers of judged and failed rows, in words."""
        judged = sum(side.judged for side in self.sides.values())
        failed = sum(side.failed for side in self.sides.values())
        criteria = counted(self._criteria, "criterion", "criteria")
        return f"{counted(judged, 'row')} judged, {failed} failed ({criteria} judged)"

    def by_system(self) -> list[tuple[str | None, SystemPoints]]:
        """Return the systems by name, rows without a system last."""
        return sorted(self.sides.items(), key=lambda item: (item[0] is None, item[0] or ""))

    def systems(self) -> list[dict[str, Any]]:
        """Return the counts and mean scores of each system for `summary.json`."""
        return [
            {
                "system": name,
                "judged": side.judged,
                "failed": side.failed,
                "without_positive_points": side.unscored,
                "mean": side.score.mean,
                "mean_clipped": side.score.clipped,
                "mean_expected": side.score.expected,
                "tags": {tag: side.tags[tag].clipped for tag in self.tags if tag in side.tags},
            }
            for name, side in self.by_system()
        ]
