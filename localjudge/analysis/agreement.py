"""How far a judge agrees with people, beside how far people agree with each other and how far a ruler does."""

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
    draws,
    expanded_percentile,
    studentise,
)
from localjudge.analysis.scores import Floats, Integers, Scores


@dataclass(frozen=True, slots=True)
class Comparison:
    """One column of numbers against the labels, statistic by statistic.

    The correlations compare with the mean of a row's labels. `kappa` (quadratic weights), `exact`,
    `within_one`, `mae` and `bias` (the column less the label) compare with every label on its own; they are
    undefined where labels lie outside the judge's scale. `kappa` and `exact` want whole numbers on both sides.
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
    """How far the annotators agree: what no judge can be expected to exceed by much.

    `rest` compares each label with the row's other labels, as a judge is compared with all of them, for the
    annotators together; `annotators` does so one by one, without intervals. The alphas are Krippendorff's.
    """

    alpha_ordinal: Estimate
    alpha_interval: Estimate
    rest: Comparison
    annotators: Mapping[str, Comparison]


@dataclass(frozen=True, slots=True)
class AspectAgreement:
    """One aspect. `comparisons` goes by "integer", "expected", "calibrated", "length" and "overlap", as far as
    there are such columns."""

    rows: int
    instructions: int
    annotators: int
    comparisons: Mapping[str, Comparison]
    ceiling: Ceiling | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against labels, aspect by aspect."""

    aspects: Mapping[str, AspectAgreement]
    notes: tuple[str, ...]
    notices: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Against:
    """The labels to compare with: `mean`, one a row, for the correlations; `single`, every label on its own,
    for the rest. Groups are numbered from 0 without gaps."""

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
        scores: of one run.
        labels: of some of its rows.
        measures: of its rows, for the trivial baselines.
        calibrated: the same scores after a calibration, compared too: for each of their aspects a column.
        resamples: for the intervals.
        seed: of the resamples.
    """
    aspects = {}
    notes = list(labels.notes)
    for aspect, marks in labels.marks.items():
        in_scale = bool(((marks.value >= scores.lowest) & (marks.value <= scores.highest)).all())
        if not in_scale:
            notes.append(
                f"{aspect}: labels from {marks.value.min():g} to {marks.value.max():g}, outside of the scale "
                f"{scores.lowest} to {scores.highest}: only correlations are defined"
            )
        columns = {"integer": scores.column(aspect, "integer")}
        if scores.expected is not None:
            columns["expected"] = scores.column(aspect, "expected")
        if calibrated and aspect in calibrated.aspects:
            columns["calibrated"] = calibrated.column(aspect, "expected")
        against = _against(marks, scores.group)
        drawing = _Drawing(against.groups, resamples, seed, scores.lowest, scores.highest)
        comparisons = {name: drawing.compare(column, against, in_scale) for name, column in columns.items()}
        if measures is not None:
            known = _kept(marks, measures.known)
            if len(known.row):
                of_known = _against(known, scores.group)
                drawing = replace(drawing, groups=of_known.groups)
                for name, column in {"length": measures.length, "overlap": measures.overlap}.items():
                    if column is not None:
                        comparisons[name] = drawing.correlations(column, of_known)
        aspects[aspect] = AspectAgreement(
            rows=len(against.mean),
            instructions=against.groups,
            annotators=len(np.unique(marks.annotator)),
            comparisons=comparisons,
            ceiling=_ceiling(marks, scores, labels.annotators, in_scale, resamples, seed),
        )
    return Agreement(aspects, tuple(notes), (calibrated or scores).notices)


def _kept(marks: Marks, rows: NDArray[np.bool_]) -> Marks:
    kept = rows[marks.row]
    return Marks(marks.row[kept], marks.annotator[kept], marks.value[kept])


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
class _Drawing:
    """How the intervals of a comparison are drawn."""

    groups: int
    resamples: int
    seed: int
    lowest: int
    highest: int

    def compare(self, column: Floats, against: _Against, in_scale: bool) -> Comparison:
        """All statistics of a column [rows of the run]."""
        found = self.correlations(column, against)
        if not in_scale or len(against.mean) < 2:
            return found
        x, y = column[against.single_row], against.single
        whole = _whole(x) and _whole(y)
        off = x - y
        shares = np.column_stack([off == 0, np.abs(off) <= 1, np.abs(off), off]).astype(np.float64)
        reach = self.highest - self.lowest
        estimates = averages(shares, against.single_group, against.groups)
        exact, within_one, mae, _ = self._studentised(estimates, 0, reach)
        bias = self._studentised(estimates, -reach, reach, symmetric=True)[3]
        return replace(
            found,
            kappa=self._resampled(_kappa(x, y, self), resampled_statistics.kappa, x, y, against.single_group)
            if whole
            else UNDEFINED,
            exact=_at_most_one(exact) if whole else UNDEFINED,
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
        """Those statistics of a column that do not depend on its scale."""
        x, y, group = column[against.mean_row], against.mean, against.mean_group
        found = {
            name: self._resampled(correlation(name, x, y), again, x, y, group)
            for name, again in (
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
        # Equal pairs are one pair with more weight: integers have few.
        pairs, pair = np.unique(np.column_stack([x, y]), axis=0, return_inverse=True)
        drawn = [
            statistic(pairs[:, 0], pairs[:, 1], weights)
            for weights in self._weights(group, pair.ravel(), len(pairs))
        ]
        return expanded_percentile(value, np.concatenate(drawn), self.groups)

    def _weights(self, group: Integers, pair: NDArray[np.intp], pairs: int) -> Iterator[Floats]:
        """The weight of each distinct pair in each resample of the instructions."""
        from scipy.sparse import csr_array

        held = csr_array((np.ones(len(pair)), (pair, group)), shape=(pairs, self.groups))
        block = max(1, 2_000_000 // pairs)
        for weights in draws(self.groups, self.resamples, self.seed):
            for start in range(0, len(weights), block):
                yield np.ascontiguousarray((held @ weights[start : start + block].T).T)


def correlation(name: str, x: Floats, y: Floats) -> float | None:
    """SciPy's "pearson", "spearman" or "kendall" (tau-b); None under two pairs, or for a constant column."""
    from scipy import stats

    if len(x) < 2 or _constant(x) or _constant(y):
        return None
    statistics = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return float(statistics[name](x, y).statistic)


def _kappa(x: Floats, y: Floats, scale: _Drawing) -> float | None:
    from sklearn.metrics import cohen_kappa_score

    if _constant(x) and _constant(y) and x[0] == y[0]:
        return None
    values = np.arange(scale.lowest, scale.highest + 1)
    return float(cohen_kappa_score(x.astype(int), y.astype(int), labels=values, weights="quadratic"))


def _at_most_one(share: Estimate) -> Estimate:
    return replace(share, high=None if share.high is None else min(share.high, 1.0))


def _constant(values: Floats) -> bool:
    return bool((values == values[0]).all())


def _whole(values: Floats) -> bool:
    return bool((values == np.round(values)).all())


def _ceiling(
    marks: Marks, scores: Scores, annotators: tuple[str, ...], in_scale: bool, resamples: int, seed: int
) -> Ceiling | None:
    """None where no row has two labels."""
    counts = np.bincount(marks.row, minlength=len(scores.ids))
    several = _kept(marks, counts >= 2)
    if not len(several.row):
        return None
    rest, own = _rest(several, scores.group)
    drawing = _Drawing(rest.groups, resamples, seed, scores.lowest, scores.highest)
    alone = replace(drawing, resamples=0)
    names = np.unique(several.annotator)
    each = {}
    for annotator in names if len(names) <= 20 else ():
        theirs = several.annotator == annotator
        part = _part(rest, theirs)
        each[annotators[annotator]] = alone.compare(own, part, in_scale)
    ordinal, interval = alphas(several, scores.group, resamples, seed)
    return Ceiling(ordinal, interval, drawing.compare(own, rest, in_scale), each)


def _rest(marks: Marks, group: Integers) -> tuple[_Against, Floats]:
    """Each label (as a row of its own) against the others of its row; and the labels, as that column."""
    total = np.bincount(marks.row, marks.value)[marks.row]
    count = np.bincount(marks.row)[marks.row]
    order = np.argsort(marks.row, kind="stable")
    first, second = [], []
    for same in np.split(order, np.flatnonzero(np.diff(marks.row[order])) + 1):
        pairs = ~np.eye(len(same), dtype=np.bool_)
        first.append(np.repeat(same, len(same)).reshape(pairs.shape)[pairs])
        second.append(np.tile(same, len(same)).reshape(pairs.shape)[pairs])
    one, other = np.concatenate(first), np.concatenate(second)
    present, numbered = np.unique(group[marks.row], return_inverse=True)
    numbers: Integers = numbered.astype(np.int32)
    rest = _Against(
        groups=len(present),
        mean=(total - marks.value) / (count - 1),
        mean_row=np.arange(len(marks.row), dtype=np.int32),
        mean_group=numbers,
        single=marks.value[other],
        single_row=one.astype(np.int32),
        single_group=numbers[one],
    )
    return rest, marks.value


def _part(rest: _Against, chosen: NDArray[np.bool_]) -> _Against:
    """Only these labels' part of `rest`."""
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
