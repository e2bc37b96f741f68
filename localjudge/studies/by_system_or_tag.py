"""A statistic of each system or of each tag: the changes of each system, the means of the systems by tag.

Among many systems or tags some differ by chance. So the intervals of changes and the tests of significance hold
for all rows of a table together (see `Studentised`). Those of single means are not adjusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.matching.scores import RowTags, ScoreKind, Scores
from localjudge.statistics import Estimate
from localjudge.statistics.resampling import studentise
from localjudge.statistics.system_means import column_means, instruction_means
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """The estimates of a system or a tag, by the name of a column or a system, and significant differences."""

    name: str
    instructions: int
    estimates: Mapping[str, Estimate]
    significant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EstimateTable:
    """A statistic of each system or of each tag; `column` says of which, and `statistic` what it is."""

    column: str
    statistic: str
    rows: tuple[EstimateRow, ...]


def rank_by_tag(
    scores: Scores, tags: RowTags, of: ScoreKind | None, resamples: int, seed: int
) -> EstimateTable:
    """Return the means of the systems in the score of the criteria with each tag.

    Args:
        scores: the scores of all systems by tag, and the tag of each: `Scores.by_tag` of complete runs.
        tags: the tags of their rows.
        of: as for `localjudge.studies.rank.rank`.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    [(column, (values, (lowest, highest)))] = scores.table(scores.best if of is None else of).items()
    systems = scores.systems
    means = _means_by_tag(scores, tags, values)  # [instructions, tags, systems]
    of_all_tags = studentise(
        column_means(means.reshape(scores.groups, -1)), lowest, highest, resamples=resamples, seed=seed
    )
    estimates = of_all_tags.estimates()
    differences = _Differences.of(means, width=highest - lowest, resamples=resamples, seed=seed)
    rows: list[EstimateRow] = []
    for tag, name in enumerate(tags.names):
        of_tag = estimates[tag * len(systems) : (tag + 1) * len(systems)]
        rows.append(
            EstimateRow(
                name=name,
                instructions=int(np.isfinite(means[:, tag]).any(axis=1).sum()),
                estimates=dict(zip(systems, of_tag, strict=True)),
                significant=tuple(differences.significant(tag, systems)),
            )
        )
    return EstimateTable(tags.column, f"means of {column}", tuple(rows))


def _means_by_tag(scores: Scores, tags: RowTags, values: Floats) -> Floats:
    """Return the means of the systems on each instruction, [instructions, tags, systems]; NaN without rows."""
    means = np.full((scores.groups, len(tags.names), len(scores.systems)), np.nan)
    for tag in range(len(tags.names)):
        has_tag = tags.of_row == tag
        of_tag = instruction_means(scores.take(has_tag), values[has_tag])
        means[: len(of_tag), tag] = of_tag  # the last instructions of all may be missing for a tag
    return means


@dataclass(frozen=True, slots=True)
class _Differences:
    """The differences of each two systems in each tag.

    Attributes:
        first: the first system of each pair, [pairs].
        second: the second one, [pairs].
        value: the mean of the first minus that of the second, [tags, pairs].
        p: its p-value, adjusted for all tags and pairs, [tags, pairs]; NaN if it is not tested.
    """

    first: Integers
    second: Integers
    value: Floats
    p: Floats

    @classmethod
    def of(cls, means: Floats, *, width: float, resamples: int, seed: int) -> Self:
        """Test the differences of the means, [instructions, tags, systems]; `width` is that of the scale."""
        instructions, tags, systems = means.shape
        first, second = np.array(list(combinations(range(systems), 2)), dtype=np.int32).reshape(-1, 2).T
        differences = (means[:, :, first] - means[:, :, second]).reshape(instructions, -1)
        tested = studentise(
            column_means(differences), -width, width, symmetric=True, resamples=resamples, seed=seed
        )
        return cls(first, second, value=tested.value.reshape(tags, -1), p=tested.adjusted().reshape(tags, -1))

    def significant(self, tag: int, systems: Sequence[str]) -> Iterator[str]:
        """Yield the significant differences in a tag and those that are not tested, the better system first."""
        for pair, (difference, p) in enumerate(zip(self.value[tag], self.p[tag], strict=True)):
            first = systems[self.first[pair]]
            second = systems[self.second[pair]]
            order = f"{first} > {second}" if difference > 0 else f"{second} > {first}"
            if p < SIGNIFICANCE_LEVEL:
                yield order
            elif np.isnan(p) and abs(difference) > NO_DIFFERENCE:
                yield f"{order}, not tested"
