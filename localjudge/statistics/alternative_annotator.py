"""Whether a judge is as close to annotators as one of them is: the alternative annotator test.

Each annotator is left out in turn. On the rows that this annotator labelled, the judge and the annotator are
both compared with the same labels: those of the other annotators (Calderon et al. 2025, arXiv 2501.10970).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers, LabelArray
from localjudge.statistics import Estimate
from localjudge.statistics.resampling import MIN_INSTRUCTIONS, Contributions, averages, studentise

EPSILON = 0.1
"""How far the judge may be behind an annotator; the smallest of the paper, for labels that are cheap to get."""
_ANNOTATORS, _ROWS = 3, 30
_FALSE_DISCOVERIES = 0.05
_PASSED = 0.5
"""The winning rate from which on the test's authors let a judge replace annotators."""
_DIGITS = 9
NO_TEST = (
    f"The judge is not compared with single annotators: this needs {_ANNOTATORS} annotators, each with {_ROWS} "
    f"rows (of {MIN_INSTRUCTIONS} instructions) or more that another annotator labelled too."
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
        closer, behind = (
            float(np.mean([getattr(each, name) for each in self.annotators.values()]))
            for name in ("judge_closer", "annotator_closer")
        )
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
    labels = np.bincount(marks.row, minlength=len(judged))
    marks = marks.of_rows((labels >= 2) & np.isfinite(judged))
    present, numbered = np.unique(group[marks.row], return_inverse=True)
    kept = {}
    for annotator in np.unique(marks.annotator):
        own = marks.annotator == annotator
        if own.sum() >= _ROWS and len(np.unique(numbered[own])) >= MIN_INSTRUCTIONS:
            kept[names[annotator]] = own
    if len(kept) < _ANNOTATORS:
        return None
    label, other = _others(marks.row)
    values, place = np.unique(marks.value, return_inverse=True)
    constant = np.full(len(marks.row), values[np.bincount(place, marks.weight).argmax()])
    of_annotator, of_judge, of_constant = (
        np.bincount(label, distance(given[label], marks.value[other]), len(marks.row)).round(_DIGITS)
        for given in (marks.value, judged[marks.row], constant)
    )
    sign = np.sign(of_annotator - of_judge)  # 1 where the judge is closer
    weights = marks.weights
    together, p = _advantages(sign, [*kept.values()], numbered, len(present), weights)
    estimates = studentise(together, -1, 1, True, resamples, seed).estimates()
    found = {
        name: ReplacedAnnotator(
            rows=int(own.sum()),
            judge_closer=float(np.average(sign[own] > 0, weights=weights[own])),
            annotator_closer=float(np.average(sign[own] < 0, weights=weights[own])),
            advantage=estimate,
            p=float(one),
        )
        for (name, own), estimate, one in zip(kept.items(), estimates, p, strict=False)
    }
    _, p_of_constant = _advantages(
        np.sign(of_annotator - of_constant), [*kept.values()], numbered, len(present), weights
    )
    return AnnotatorTest(EPSILON, found, estimates[-1], _winning_rate(p), _winning_rate(p_of_constant))


def _advantages(
    sign: Floats, kept: Sequence[Flags], group: Integers, groups: int, weights: Floats
) -> tuple[Contributions, Floats]:
    """Return the advantage over each annotator and the mean of these, and the p-value of each.

    Args:
        sign: 1 for a label where the judge is closer to the others, -1 where the annotator is, [m].
        kept: the masks of the labels of each annotator, each [m].
        group: the instruction of each label, [m], from 0.
        groups: number of instructions.
        weights: the weight of each label, [m].
    """
    from scipy.special import stdtr

    each = [averages(sign[own, None], group[own].astype(np.int32), groups, weights[own]) for own in kept]
    value, shares = np.concatenate([one.value for one in each]), np.hstack([one.shares for one in each])
    units = np.concatenate([one.units for one in each])
    together = Contributions(
        np.append(value, value.mean()),
        np.column_stack([shares, shares.mean(axis=1)]),
        np.append(units, len(np.unique(group[np.any(kept, axis=0)]))),
    )
    error = np.sqrt((shares**2).sum(axis=0) * units / (units - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.nan_to_num(stdtr(units - 1, -(value + EPSILON) / error), nan=1.0)
    # If the annotator is never closer, the variance says too little: the chance of this under the hypothesis,
    # if the rows on which the annotator is closer are those that are drawn least often.
    drawn = np.array([weights[own].mean() / weights[own].max() for own in kept])
    behind = np.array([(sign[own] < 0).any() for own in kept])
    return together, np.where(behind, p, np.maximum(p, (1 - EPSILON * drawn) ** units))


def _winning_rate(p: Floats) -> float:
    from scipy.stats import false_discovery_control

    return float((false_discovery_control(p, method="by") <= _FALSE_DISCOVERIES).mean())


def annotator_lines(alpha: str, test: AnnotatorTest | None) -> list[str]:
    """Return the lines below a table: the agreement among the annotators, if known, and the test."""
    among = [f"Agreement among the annotators, which does not limit a judge: Krippendorff's alpha {alpha}"]
    return among * bool(alpha) + [test.in_words if test else NO_TEST]


def _others(row: Integers) -> tuple[Integers, Integers]:
    """Return every ordered pair of labels of the same row, as two lists of places in `row`."""
    order = np.argsort(row, kind="stable")
    first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for of_row in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
        pairs = ~np.eye(len(of_row), dtype=np.bool_)
        first.append(np.repeat(of_row, len(of_row)).reshape(pairs.shape)[pairs])
        second.append(np.tile(of_row, len(of_row)).reshape(pairs.shape)[pairs])
    return np.concatenate(first), np.concatenate(second)
