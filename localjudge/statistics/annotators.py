"""Annotators: how far they agree, and whether a judge is as close to them as one of them is.

In the alternative annotator test, each annotator is left out in turn. On the rows that this annotator labelled,
the judge and the annotator are both compared with the same labels: those of the other annotators (Calderon et
al. 2025, arXiv 2501.10970).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.jackknife import agreement_estimate, left_out
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, Contributions, averages, studentise

EPSILON = 0.1
"""How far the judge may be behind an annotator; the smallest of the paper, for labels that are cheap to get."""
_ANNOTATORS, _ROWS, _ALL_ROWS = 3, 30, 100
_FALSE_DISCOVERIES = 0.05
_PASSED = 0.5
"""The winning rate from which on the test's authors let a judge replace annotators."""
_DIGITS = 9
NO_TEST = (
    f"The judge is not compared with single annotators: this needs {_ANNOTATORS} annotators, each with {_ROWS} "
    f"rows (of {MIN_INSTRUCTIONS} instructions) or more that another annotator labelled too, and {_ALL_ROWS} "
    "such rows in all."
)


@dataclass(frozen=True, slots=True)
class ReplacedAnnotator:
    """One annotator beside the judge.

    Attributes:
        rows: number of rows that this annotator and at least one other labelled.
        judge_closer: share of these rows on which the judge is closer to the other labels.
        annotator_closer: share of these rows on which the annotator is closer.
        advantage: `judge_closer` minus `annotator_closer`.
        p: p-value of the hypothesis that the advantage is at most minus epsilon; not adjusted.
    """

    rows: int
    judge_closer: float
    annotator_closer: float
    advantage: Estimate
    p: float


@dataclass(frozen=True, slots=True)
class AnnotatorTest:
    """The judge and each annotator, compared with the same labels of the other annotators.

    Attributes:
        epsilon: how far the judge may be behind an annotator.
        annotators: the comparison with each annotator who has enough rows.
        advantage: the mean advantage of the judge; 0 for a judge that is like one more annotator.
        winning_rate: share of the annotators whom the judge is shown to be less than epsilon behind, with a
            false discovery rate of 5 % (Benjamini & Yekutieli 2001, doi:10.1214/aos/1013699998).
        constant_winning_rate: the winning rate of a judge that always gives the most frequent label.
    """

    epsilon: float
    annotators: Mapping[str, ReplacedAnnotator]
    advantage: Estimate
    winning_rate: float
    constant_winning_rate: float

    @property
    def in_words(self) -> str:
        """Return the result in two sentences, and a third if a constant would win as well."""
        closer = np.mean([each.judge_closer for each in self.annotators.values()])
        behind = np.mean([each.annotator_closer for each in self.annotators.values()])
        count = len(self.annotators)
        return (
            f"Judge and annotator against the same other annotators: the judge is closer in {closer:.0%} of "
            f"cases, the annotator in {behind:.0%}; difference {self.advantage.in_words()}. Alternative "
            f"annotator test (epsilon {self.epsilon:.2f}): the judge is shown to be less than epsilon behind "
            f"{round(self.winning_rate * count)} of {count} annotators (winning rate {self.winning_rate:.2f})."
            + self._warning
        )

    @property
    def _warning(self) -> str:
        if self.constant_winning_rate < _PASSED:
            return ""
        return (
            " A judge that always gives the most frequent label would have a winning rate of "
            f"{self.constant_winning_rate:.2f}, because the labels are skewed or the annotators agree little: "
            "here a high rate does not show that a judge reads the rows."
        )


def replace_annotators(
    marks: LabelArray,
    judged: Floats,
    group: Integers,
    names: tuple[str, ...],
    distance: Callable[[Floats, Floats], Floats],
    resamples: int,
    seed: int,
) -> AnnotatorTest | None:
    """Compare a judge and each annotator with the other annotators; None if there are too few labels.

    Args:
        marks: the labels.
        judged: the judge's label of each row, [rows]; NaN for a row to leave out.
        group: the instruction of each row, [rows].
        names: the names of the annotators.
        distance: the distance of labels [m] from others [m]; the mean over the other labels of a row decides.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    from scipy.sparse import csr_array

    labels = np.bincount(marks.row, minlength=len(judged))
    marks = marks.of_rows((labels >= 2) & np.isfinite(judged))
    _, numbered = np.unique(group[marks.row], return_inverse=True)
    masks = {}
    for annotator in np.unique(marks.annotator):
        mask = marks.annotator == annotator
        if mask.sum() >= _ROWS and len(np.unique(numbered[mask])) >= MIN_INSTRUCTIONS:
            masks[names[annotator]] = mask
    if len(masks) < _ANNOTATORS or len(np.unique(marks.row)) < _ALL_ROWS:
        return None
    of_rows = csr_array((np.ones(len(marks.row)), (np.arange(len(marks.row)), marks.row)))
    label, other = (of_rows @ of_rows.T).nonzero()  # every ordered pair of labels of the same row
    label, other = label[label != other], other[label != other]
    values, place = np.unique(marks.value, return_inverse=True)
    constant = np.full(len(marks.row), values[np.bincount(place, marks.weight).argmax()])
    of_annotator, of_judge, of_constant = (
        np.bincount(label, distance(given[label], marks.value[other]), len(marks.row)).round(_DIGITS)
        for given in (marks.value, judged[marks.row], constant)
    )
    sign = np.sign(of_annotator - of_judge)  # 1 where the judge is closer
    weights = np.stack([*masks.values()], axis=1) * marks.weights[:, None]
    advantages, p = _advantages(sign, weights, numbered)
    _, p_of_constant = _advantages(np.sign(of_annotator - of_constant), weights, numbered)
    shares = weights / weights.sum(axis=0)
    *estimates, together = studentise(advantages, -1, 1, True, resamples, seed).estimates()
    columns = (weights > 0).sum(axis=0), (sign > 0) @ shares, (sign < 0) @ shares, estimates, p
    compared = {
        name: ReplacedAnnotator(int(rows), float(judge), float(annotator), estimate, float(chance))
        for name, rows, judge, annotator, estimate, chance in zip(masks, *columns, strict=True)
    }
    return AnnotatorTest(EPSILON, compared, together, _winning_rate(p), _winning_rate(p_of_constant))


def _advantages(sign: Floats, weights: Floats, group: Integers) -> tuple[Contributions, Floats]:
    """Return the advantage over each of k annotators and the mean of these, and the p-value of each.

    Args:
        sign: 1 for a label where the judge is closer to the others, -1 where the annotator is, [m].
        weights: the weight of each label, 0 for the labels of another annotator, [m, k].
        group: the instruction of each label, [m], from 0.
    """
    from scipy.special import stdtr

    each = averages(sign[:, None], group, int(group.max()) + 1, weights)
    together = Contributions(
        np.append(each.value, each.value.mean()),
        np.column_stack([each.shares, each.shares.mean(axis=1)]),
        np.append(each.units, len(np.unique(group[weights.any(axis=1)]))),
    )
    error = np.sqrt((each.shares**2).sum(axis=0) * each.units / (each.units - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.nan_to_num(stdtr(each.units - 1, -(each.value + EPSILON) / error), nan=1.0)
    # If the annotator is never closer, the variance says too little: the chance of this under the hypothesis,
    # if the rows on which the annotator is closer are those that are drawn least often.
    drawn = weights.sum(axis=0) / (weights > 0).sum(axis=0) / weights.max(axis=0)
    behind = ((sign < 0)[:, None] & (weights > 0)).any(axis=0)
    return together, np.where(behind, p, np.maximum(p, (1 - EPSILON * drawn) ** each.units))


def _winning_rate(p: Floats) -> float:
    from scipy.stats import false_discovery_control

    return float((false_discovery_control(p, method="by") <= _FALSE_DISCOVERIES).mean())


def annotator_lines(level: str, alpha: Estimate, test: AnnotatorTest | None) -> list[str]:
    """Return the lines below a table: the agreement among the annotators, if known, and the test."""
    among = (
        "Agreement among the annotators, which does not limit a judge: Krippendorff's "
        f"{level} alpha {alpha.in_words()}"
    )
    return [among] * (alpha.value is not None) + [test.in_words if test else NO_TEST]


def alpha_estimate(marks: LabelArray, group: Integers, level: str) -> Estimate:
    """Return Krippendorff's alpha over rows with at least two labels; undefined if no row has two.

    Args:
        marks: the labels.
        group: the instruction of each row of the run, [rows].
        level: as for `alpha`.
    """
    marks = marks.of_rows(np.bincount(marks.row, minlength=1) >= 2)
    if not len(marks.row):
        return UNDEFINED
    domain, value = np.unique(marks.value, return_inverse=True)
    rows, row = np.unique(marks.row, return_inverse=True)
    counts = np.zeros((len(rows), len(domain)))
    np.add.at(counts, (row, value), 1)
    weights = np.bincount(row, marks.weights) / counts.sum(axis=1)
    without = [alpha(counts[kept], domain, level, weights[kept]) for kept in left_out(group[rows])]
    return agreement_estimate(alpha(counts, domain, level, weights), np.array(without))


def alpha(counts: Floats, domain: Floats, level: str, weights: Floats | None = None) -> float:
    """Return Krippendorff's alpha (Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability").

    NaN if all labels are equal. It is computed here because the library for it is under the GPL.

    Args:
        counts: number of annotators who gave each value to each unit, [units, values].
        domain: the values, in ascending order.
        level: "nominal", "ordinal" or "interval".
        weights: the weight of each unit, such as the inverse of its chance to be drawn, [units]; None for equal
            ones.
    """
    labels = counts.sum(axis=1)
    own = np.ones(len(counts)) if weights is None else weights
    pairable, own, labels = counts[labels > 1], own[labels > 1], labels[labels > 1]
    own = own * (labels.sum() / (own @ labels))
    # The matrix of observed coincidences, [values, values].
    scaled = pairable * (own / (labels - 1))[:, None]
    observed = pairable.T @ scaled - np.diag(scaled.sum(axis=0))
    of_value = observed.sum(axis=0)
    if level == "nominal":
        distance = 1 - np.eye(len(domain))
    else:
        # The ordinal distance of two values is the distance of their mean ranks.
        position = domain if level == "interval" else of_value.cumsum() - of_value / 2
        distance = (position[:, None] - position) ** 2
    expected = of_value @ distance @ of_value
    if expected == 0:
        return float("nan")
    return float(1 - (of_value.sum() - 1) * (observed * distance).sum() / expected)
