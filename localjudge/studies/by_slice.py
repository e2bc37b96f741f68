"""Statistics of each slice of a run. Among many slices some differ by chance, so differences are adjusted.

The intervals of changes and the tests of significance hold for all slices of a table together (see
`Studentised`). The intervals of agreement have Bonferroni's correction. Those of single means are not adjusted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from localjudge.errors import UsageError
from localjudge.matching.labels import Labels
from localjudge.matching.scores import ScoreKind, Scores, Slices
from localjudge.runs.reader import is_complete
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import SampledRows, nominal_kappa, spearman
from localjudge.statistics.resampling import studentise
from localjudge.statistics.system_means import column_means, instruction_means
from localjudge.statistics.system_order import NO_DIFFERENCE, SIGNIFICANCE_LEVEL
from localjudge.studies.rank import deciding_column
from localjudge.system.quantities import counted


@dataclass(frozen=True, slots=True)
class SliceRow:
    """The statistics of a slice: estimates by the name of a system or column, and significant differences."""

    name: str
    instructions: int
    estimates: Mapping[str, Estimate]
    significant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sliced:
    """A statistic of each slice; `statistic` says what it is."""

    column: str
    statistic: str
    rows: tuple[SliceRow, ...]

    @property
    def title(self) -> str:
        return f"By {self.column}: {self.statistic}, with 95 % intervals"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the estimates, which all slices have."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.estimates))

    @property
    def note(self) -> str:
        """A sentence that says for which tests the p-values are adjusted."""
        return f"Differences and agreement are adjusted for {counted(len(self.rows), 'slice')}."


def rank_by_slice(
    scores: Scores, slices: Slices, of: ScoreKind | None, by: str | None, resamples: int, seed: int
) -> Sliced:
    """Return the means of the systems in the column that decides, in each slice.

    Args:
        scores: the scores of all systems.
        slices: the slices of their rows.
        of: as for `localjudge.studies.rank.rank`.
        by: as for `localjudge.studies.rank.rank`.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.

    Raises:
        UsageError: a run is not complete.
    """
    if incomplete := [folder for folder in scores.folders if not is_complete(folder)]:
        raise UsageError(f"{incomplete[0]}: not complete, and slices need all rows; continue it")
    table = scores.table(of or scores.best)
    column = by or deciding_column(scores, [*table])
    values, (low, high) = table[column]
    count, systems, groups = len(slices.names), scores.systems, scores.groups
    means = np.full((groups, count, len(systems)), np.nan)
    for place in range(count):
        chosen = slices.of_row == place
        part = instruction_means(scores.take(chosen), values[chosen])
        means[: len(part), place] = part  # the last instructions of all may be missing in a slice
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

    return Sliced(
        slices.column,
        f"means of {column}",
        tuple(
            SliceRow(
                name,
                int(np.isfinite(means[:, place]).any(axis=1).sum()),
                dict(zip(systems, of_means[place * len(systems) :], strict=False)),
                tuple(significant(place)),
            )
            for place, name in enumerate(slices.names)
        ),
    )


def agree_by_slice(scores: Scores, labels: Labels, slices: Slices) -> Sliced:
    """Return Spearman's correlation with the labels, or Cohen's kappa without an order, in each slice."""

    def estimates(place: int) -> Iterator[tuple[str, Estimate]]:
        for aspect, marks in {**labels.marks, **labels.nominal}.items():
            if aspect.partition("=")[0] in labels.nominal and aspect not in labels.nominal:
                continue
            marks = marks.of_rows(slices.of_row == place)
            if aspect in labels.nominal:
                statistic, column = nominal_kappa, scores.verdicts(aspect)
                rows, label, weight = marks.row, marks.value, marks.weight
            else:
                statistic, column = spearman, scores.column(aspect, scores.best)
                rows, label = marks.means()
                weight = marks.weight_of(rows)
            sampled = SampledRows(scores.group[rows], weight)
            yield aspect, sampled.agreement(statistic, column[rows], label, tests=count)

    count = len(slices.names)
    return Sliced(
        slices.column,
        "agreement (Spearman's correlation, Cohen's kappa of labels)",
        tuple(
            SliceRow(name, len(np.unique(scores.group[slices.of_row == place])), dict(estimates(place)))
            for place, name in enumerate(slices.names)
        ),
    )
