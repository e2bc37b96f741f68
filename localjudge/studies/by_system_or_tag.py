"""A statistic of each system or of each tag: the changes of each system, the means of the systems by tag.

Among many systems or tags some differ by chance. So the intervals of changes and the tests of significance hold
for all rows of a table together (see `Studentised`). Those of single means are not adjusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

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
    ((column, (values, (low, high))),) = scores.table(of or scores.best).items()
    count, systems, groups = len(tags.names), scores.systems, scores.groups
    means = np.full((groups, count, len(systems)), np.nan)
    for place in range(count):
        chosen = tags.of_row == place
        part = instruction_means(scores.take(chosen), values[chosen])
        means[: len(part), place] = part  # the last instructions of all may be missing for a tag
    of_means = studentise(
        column_means(means.reshape(groups, -1)), low, high, False, resamples, seed
    ).estimates()
    first, second = np.array([*combinations(range(len(systems)), 2)], dtype=np.int32).reshape(-1, 2).T
    differences = (means[:, :, first] - means[:, :, second]).reshape(groups, -1)
    tested = studentise(column_means(differences), low - high, high - low, True, resamples, seed)
    p, value = (each.reshape(count, -1) for each in (tested.adjusted(), tested.value))

    def significant(place: int) -> Iterator[str]:
        for one, other, difference, chance in zip(first, second, value[place], p[place], strict=True):
            better, worse = (one, other) if difference > 0 else (other, one)
            if chance < SIGNIFICANCE_LEVEL or (np.isnan(chance) and abs(difference) > NO_DIFFERENCE):
                yield f"{systems[better]} > {systems[worse]}" + ", not tested" * bool(np.isnan(chance))

    return EstimateTable(
        tags.column,
        f"means of {column}",
        tuple(
            EstimateRow(
                name,
                int(np.isfinite(means[:, place]).any(axis=1).sum()),
                dict(zip(systems, of_means[place * len(systems) :], strict=False)),
                tuple(significant(place)),
            )
            for place, name in enumerate(tags.names)
        ),
    )
