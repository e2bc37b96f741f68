"""Agreement of a judge with people, next to the agreement among people and that of trivial baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localjudge.analysis import resampled_statistics
from localjudge.analysis.interval import UNDEFINED, Estimate
from localjudge.analysis.krippendorff import alphas
from localjudge.analysis.labels import Labels, Marks
from localjudge.analysis.measured_texts import Measures
from localjudge.analysis.resampling import (
    RESAMPLES,
    Contributions,
    averages,
    bootstrap_weights,
    expanded_percentile,
    studentise,
)
from localjudge.analysis.scores import Floats, Integers, Scores


@dataclass(frozen=True, slots=True)
class Comparison:
    """The agreement statistics of one column of numbers with the labels.

    The correlations use the mean label of each row. `kappa` (quadratic weights), `exact`, `within_one`, `mae`
    and `bias` (the column minus the label) use each label separately; they are undefined if a label lies
    outside the judge's scale. `kappa` and `exact` require whole numbers on both sides.
    """

    pearson: Estimate = UNDEFINED
    spearman: Estimate = UNDEFINED
    kendall: Estimate = UNDEFINED
    kappa: Estimate = UNDEFINED
    exact: Estimate = UNDEFINED
    within_one: Estimate = UNDEFINED
    mae: Estimate = UNDEFINED
    bias: Estimate = UNDEFINED


STATISTICS = tuple(field.name for field in fields(Comparison))


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The agreement among the annotators, which no judge is likely to exceed by much.

    `rest` compares each label with the other labels of its row, over all annotators together; `annotators`
    does the same for each annotator, without intervals. The alphas are Krippendorff's.
    """

    alpha_ordinal: Estimate
    alpha_interval: Estimate
    rest: Comparison
    annotators: Mapping[str, Comparison]


@dataclass(frozen=True, slots=True)
class AspectAgreement:
    """The agreement for one aspect.

    The keys of `comparisons` are those of "integer", "expected", "calibrated", "length" and "overlap" that have
    values.
    """

    rows: int
    instructions: int
    annotators: int
    comparisons: Mapping[str, Comparison]
    ceiling: Ceiling | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a judge with labels, for each aspect."""

    aspects: Mapping[str, AspectAgreement]
    notes: tuple[str, ...]
    notices: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Against:
    """The labels to compare with, [rows] and [labels].

    The correlations use `mean`, the mean label of each row; the other statistics use `single`, each label
    separately. Groups are numbered from 0 without gaps.
    """

    groups: int
    mean: Floats
    mean_row: Integers
    mean_group: Integers
    single: Floats
    single_row: Integers
    single_group: Integers


def agree(
    scores: Scores,
    labels: Labels,
    measures: Measures | None = None,
    calibrated: Scores | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Compare a judge's scores with labels.

    Args:
        scores: the scores of one run.
        labels: the labels of some of its rows.
        measures: length and word overlap of its rows, for the trivial baselines.
        calibrated: the same scores after a calibration; each of their aspects is compared as one more column.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    aspects = {}
    notes = list(labels.notes)
    for aspect, marks in labels.marks.items():
        in_scale = bool(((marks.value >= scores.lowest) & (marks.value <= scores.highest)).all())
        if not in_scale:
            notes.append(
                f"{aspect}: labels from {marks.value.min():g} to {marks.value.max():g} are outside the scale "
                f"{scores.lowest} to {scores.highest}; only the correlations are defined"
            )
        columns = {"integer": scores.column(aspect, "integer")}
        if scores.expected is not None:
            columns["expected"] = scores.column(aspect, "expected")
        if calibrated and aspect in calibrated.aspects:
            columns["calibrated"] = calibrated.column(aspect, "expected")
        against = _against(marks, scores.group)
        statistics = _Statistics(against.groups, resamples, seed, scores.lowest, scores.highest)
        comparisons = {name: statistics.compare(column, against, in_scale) for name, column in columns.items()}
        if measures is not None:
            known = _select(marks, measures.known)
            if len(known.row):
                against_known = _against(known, scores.group)
                statistics = replace(statistics, groups=against_known.groups)
                for name, column in {"length": measures.length, "overlap": measures.overlap}.items():
                    if column is not None:
                        comparisons[name] = statistics.correlations(column, against_known)
        aspects[aspect] = AspectAgreement(
            rows=len(against.mean),
            instructions=against.groups,
            annotators=len(np.unique(marks.annotator)),
            comparisons=comparisons,
            ceiling=_ceiling(marks, scores, labels.annotators, in_scale, resamples, seed),
        )
    return Agreement(aspects, tuple(notes), (calibrated or scores).notices)


def _select(marks: Marks, rows: NDArray[np.bool_]) -> Marks:
    selected = rows[marks.row]
    return Marks(marks.row[selected], marks.annotator[selected], marks.value[selected])


def _against(marks: Marks, group: Integers) -> _Against:
    rows, means = marks.means()
    present, mean_group = np.unique(group[rows], return_inverse=True)
    return _Against(
        groups=len(present),
        mean=means,
        mean_row=rows,
        mean_group=mean_group.astype(np.int32),
        single=marks.value,
        single_row=marks.row,
        single_group=np.searchsorted(present, group[marks.row]).astype(np.int32),
    )


@dataclass(frozen=True, slots=True)
class _Statistics:
    """The computation of agreement statistics with intervals, for one set of labels and one scale."""

    groups: int
    resamples: int
    seed: int
    lowest: int
    highest: int

    def compare(self, column: Floats, against: _Against, in_scale: bool) -> Comparison:
        """Return all statistics of a column [rows of the run]."""
        correlations = self.correlations(column, against)
        if not in_scale or len(against.mean) < 2:
            return correlations
        x, y = column[against.single_row], against.single
        are_whole = _are_whole(x) and _are_whole(y)
        error = x - y
        errors = np.column_stack([error == 0, np.abs(error) <= 1, np.abs(error), error]).astype(np.float64)
        width = self.highest - self.lowest
        estimates = averages(errors, against.single_group, against.groups)
        exact, within_one, mae, _ = self._studentised(estimates, 0, width)
        bias = self._studentised(estimates, -width, width, symmetric=True)[3]
        return replace(
            correlations,
            kappa=self._resampled(_kappa(x, y, self), resampled_statistics.kappa, x, y, against.single_group)
            if are_whole
            else UNDEFINED,
            exact=_at_most_one(exact) if are_whole else UNDEFINED,
            within_one=_at_most_one(within_one),
            mae=mae,
            bias=bias,
        )

    def _studentised(
        self, estimates: Contributions, low: float, high: float, symmetric: bool = False
    ) -> list[Estimate]:
        return studentise(
            estimates, low, high, symmetric=symmetric, resamples=self.resamples, seed=self.seed
        ).estimates()

    def correlations(self, column: Floats, against: _Against) -> Comparison:
        """Return the correlations of a column, which do not depend on its scale."""
        x, y, group = column[against.mean_row], against.mean, against.mean_group
        found = {
            name: self._resampled(correlation(name, x, y), statistic, x, y, group)
            for name, statistic in (
                ("pearson", resampled_statistics.pearson),
                ("spearman", resampled_statistics.spearman),
                ("kendall", resampled_statistics.kendall),
            )
        }
        return Comparison(**found)

    def _resampled(
        self, value: float | None, statistic: Callable[..., Floats], x: Floats, y: Floats, group: Integers
    ) -> Estimate:
        if value is None or not self.resamples:
            return Estimate(value)
        # Equal pairs become one pair with more weight, because integers have few different pairs.
        pairs, pair = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
        resampled = [
            statistic(pairs[:, 0], pairs[:, 1], weights)
            for weights in self._weights(group, pair.ravel(), len(pairs))
        ]
        return expanded_percentile(value, np.concatenate(resampled), self.groups)

    def _weights(self, group: Integers, pair: NDArray[np.intp], pairs: int) -> Iterator[Floats]:
        """Yield the weight of each distinct pair in each resample, in blocks of [resamples, pairs]."""
        from scipy.sparse import csr_array

        pair_counts = csr_array((np.ones(len(pair)), (pair, group)), shape=(pairs, self.groups))
        block = max(1, 2_000_000 // pairs)
        for weights in bootstrap_weights(self.groups, self.resamples, self.seed):
            for start in range(0, len(weights), block):
                yield np.ascontiguousarray((pair_counts @ weights[start : start + block].T).T)


def correlation(name: str, x: Floats, y: Floats) -> float | None:
    """Return a correlation, computed by SciPy; None for fewer than two pairs or a constant column.

    Args:
        name: "pearson", "spearman" or "kendall" (tau-b).
        x: the first column, [n].
        y: the second column, [n].
    """
    from scipy import stats

    if len(x) < 2 or _constant(x) or _constant(y):
        return None
    statistics = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return float(statistics[name](x, y).statistic)


def _kappa(x: Floats, y: Floats, scale: _Statistics) -> float | None:
    from sklearn.metrics import cohen_kappa_score

    if _constant(x) and _constant(y) and x[0] == y[0]:
        return None
    values = np.arange(scale.lowest, scale.highest + 1)
    return float(cohen_kappa_score(x.astype(int), y.astype(int), labels=values, weights="quadratic"))


def _at_most_one(share: Estimate) -> Estimate:
    return replace(share, high=None if share.high is None else min(share.high, 1.0))


def _constant(values: Floats) -> bool:
    return bool((values == values[0]).all())


def _are_whole(values: Floats) -> bool:
    return bool((values == np.round(values)).all())


def _ceiling(
    marks: Marks, scores: Scores, annotators: tuple[str, ...], in_scale: bool, resamples: int, seed: int
) -> Ceiling | None:
    """Return the agreement among the annotators; None if no row has two labels."""
    counts = np.bincount(marks.row, minlength=len(scores.ids))
    several = _select(marks, counts >= 2)
    if not len(several.row):
        return None
    rest, own = _rest(several, scores.group)
    statistics = _Statistics(rest.groups, resamples, seed, scores.lowest, scores.highest)
    without_intervals = replace(statistics, resamples=0)
    names = np.unique(several.annotator)
    each = {}
    for annotator in names if len(names) <= 20 else ():
        part = _part(rest, several.annotator == annotator)
        each[annotators[annotator]] = without_intervals.compare(own, part, in_scale)
    ordinal, interval = alphas(several, scores.group, resamples, seed)
    return Ceiling(ordinal, interval, statistics.compare(own, rest, in_scale), each)


def _rest(marks: Marks, group: Integers) -> tuple[_Against, Floats]:
    """Return the other labels of each label's row, and the labels as the column to compare with them.

    Each label counts as one row.
    """
    total = np.bincount(marks.row, marks.value)[marks.row]
    count = np.bincount(marks.row)[marks.row]
    order = np.argsort(marks.row, kind="stable")
    first, second = [], []
    for of_row in np.split(order, np.flatnonzero(np.diff(marks.row[order])) + 1):
        pairs = ~np.eye(len(of_row), dtype=np.bool_)
        first.append(np.repeat(of_row, len(of_row)).reshape(pairs.shape)[pairs])
        second.append(np.tile(of_row, len(of_row)).reshape(pairs.shape)[pairs])
    label, other = np.concatenate(first), np.concatenate(second)
    present, numbered = np.unique(group[marks.row], return_inverse=True)
    numbers: Integers = numbered.astype(np.int32)
    rest = _Against(
        groups=len(present),
        mean=(total - marks.value) / (count - 1),
        mean_row=np.arange(len(marks.row), dtype=np.int32),
        mean_group=numbers,
        single=marks.value[other],
        single_row=label.astype(np.int32),
        single_group=numbers[label],
    )
    return rest, marks.value


def _part(rest: _Against, chosen: NDArray[np.bool_]) -> _Against:
    """Return the part of `rest` that belongs to the chosen labels, a mask [labels]."""
    single = chosen[rest.single_row]
    return replace(
        rest,
        mean=rest.mean[chosen],
        mean_row=rest.mean_row[chosen],
        mean_group=rest.mean_group[chosen],
        single=rest.single[single],
        single_row=rest.single_row[single],
        single_group=rest.single_group[single],
    )
