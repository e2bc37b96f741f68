"""Agreement of a judge with people, compared with trivial baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, LabelArray
from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import Comparison, compare, spearman
from localjudge.statistics.krippendorff import alpha_estimate
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.trivial_judges import median_label, most_frequent_label
from localjudge.statistics.within_instructions import WithinInstructions, agree_within
from localjudge.studies.labelled_aspect import LabelledAspect
from localjudge.studies.nominal_agreement import NominalAgreement, agree_on_labels


@dataclass(frozen=True, slots=True)
class LabelsOutsideScale:
    """The range of labels of which some are outside the judge's scale; only Spearman's correlation is defined.

    Attributes:
        lowest: the lowest label.
        highest: the highest label.
        scale: the lowest and the highest score.
    """

    lowest: float
    highest: float
    scale: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectAgreement:
    """The agreement for one aspect.

    Attributes:
        rows: number of rows with labels.
        instructions: number of their instructions.
        annotators: number of annotators.
        comparisons: the agreement of the judge's scores, "integer" and "expected", and of the baselines:
            "length" and "overlap", "most frequent" (the most frequent label) and "median" (the median label),
            both of other instructions. One without values is missing.
        over_baselines: by a statistic over all rows, "spearman", "mae" or "exact": that of the judge minus that
            of each baseline that has it, on the same rows. Of correlations and errors, the judge's are those of
            its expected scores, if they are known.
        within: the agreement within instructions; None if fewer than two of them have two labelled responses.
        alpha: Krippendorff's ordinal alpha of the annotators; undefined if no row has two labels.
        counts: the number of labels with each value, by the judge's integer: `counts[label][integer]`; empty if
            a label is not on its scale, or a label or a score is no whole number.
        outside: the labels outside the judge's scale; None if all are on it.
    """

    rows: int
    instructions: int
    annotators: int
    comparisons: Mapping[str, Comparison]
    over_baselines: Mapping[str, Mapping[str, Estimate]]
    within: WithinInstructions | None
    alpha: Estimate
    counts: Mapping[str, Mapping[str, int]]
    outside: LabelsOutsideScale | None

    @property
    def kind(self) -> str:
        """The scores that are compared where one kind is: the expected ones, if they are known."""
        return "expected" if "expected" in self.comparisons else "integer"


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a judge with labels.

    Attributes:
        aspects: the aspects with an order, and the shares of labels that a column was mapped to.
        nominal: the aspects without an order.
        input_notes: the notes on the labels and on the scores.
        notices: the notices of the run.
    """

    aspects: Mapping[str, AspectAgreement]
    nominal: Mapping[str, NominalAgreement]
    input_notes: tuple[str, ...]
    notices: tuple[str, ...]


def agree(scores: Scores, labels: Labels, resamples: int = RESAMPLES, seed: int = 0) -> Agreement:
    """Compare a judge's scores with labels.

    Args:
        scores: the scores of one run.
        labels: the labels of some of its rows.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    aspects: dict[str, AspectAgreement] = {}
    for name, marks in labels.marks.items():
        aspect, _, _ = name.partition("=")
        if aspect not in labels.nominal:
            labelled = LabelledAspect(marks, scores.group, resamples=resamples, seed=seed)
            aspects[name] = _agree_on_scores(scores, name, labelled)
    nominal: dict[str, NominalAgreement] = {}
    for name, marks in labels.nominal.items():
        labelled = LabelledAspect(marks, scores.group, resamples=resamples, seed=seed)
        nominal[name] = agree_on_labels(scores, name, labelled)
    return Agreement(aspects, nominal, input_notes=labels.notes + scores.notes, notices=scores.notices)


def _agree_on_scores(scores: Scores, aspect: str, labelled: LabelledAspect) -> AspectAgreement:
    """Compare a judge's scores with labels, in an aspect with an order or in the share of a label."""
    marks = labelled.marks
    scale = scores.ends(aspect)
    outside = _labels_outside(marks, scale)
    columns = {"integer": scores.column(aspect, "integer")}
    if scores.expected is not None and aspect not in scores.without_expected:
        columns["expected"] = scores.column(aspect, "expected")
    baselines = scores.baselines

    comparisons: dict[str, Comparison] = {}
    for name, column in (columns | baselines).items():
        has_scale = outside is None and name in columns
        comparisons[name] = compare(
            column,
            marks,
            group=scores.group,
            ends=scale if has_scale else None,
            resamples=labelled.resamples,
            seed=labelled.seed,
        )
    over_baselines: dict[str, Mapping[str, Estimate]] = {
        "spearman": _spearman_over(columns, baselines, labelled)
    }
    counts: dict[str, dict[str, int]] = {}
    if outside is None:
        constants = _compare_constants(columns, labelled, width=scale[1] - scale[0])
        comparisons |= constants.comparisons
        over_baselines |= constants.over
        counts = _counts_by_score(columns["integer"][marks.row], marks.value)
    return AspectAgreement(
        rows=labelled.rows,
        instructions=labelled.instructions,
        annotators=labelled.annotators,
        comparisons=comparisons,
        over_baselines=over_baselines,
        within=agree_within(
            columns | baselines,
            marks,
            group=scores.by_digest,
            response=scores.response,
            seed=labelled.seed,
        ),
        alpha=alpha_estimate(marks, scores.group, "ordinal"),
        counts=counts,
        outside=outside,
    )


def _labels_outside(marks: LabelArray, scale: tuple[int, int]) -> LabelsOutsideScale | None:
    """Return the range of the labels; None if all are on the scale."""
    lowest, highest = scale
    if ((marks.value >= lowest) & (marks.value <= highest)).all():
        return None
    return LabelsOutsideScale(float(marks.value.min()), float(marks.value.max()), scale)


def _best(columns: Mapping[str, Floats]) -> Floats:
    """Return the judge's expected scores, if they are known, or its integers."""
    return columns["expected"] if "expected" in columns else columns["integer"]


def _spearman_over(
    columns: Mapping[str, Floats], baselines: Mapping[str, Floats], labelled: LabelledAspect
) -> dict[str, Estimate]:
    """Return Spearman's correlation of the judge minus that of each baseline, over all rows."""
    rows, means = labelled.marks.means()
    sampled = labelled.sampled_rows(rows)
    judge = _best(columns)[rows]
    return {
        name: sampled.difference(spearman, judge, baseline[rows], means) for name, baseline in baselines.items()
    }


@dataclass(frozen=True, slots=True)
class _Constants:
    """The agreement of constant labels, learned on other instructions.

    Attributes:
        comparisons: the agreement of each constant.
        over: by a statistic, that of the judge minus that of the constant.
    """

    comparisons: Mapping[str, Comparison]
    over: Mapping[str, Mapping[str, Estimate]]


def _compare_constants(columns: Mapping[str, Floats], labelled: LabelledAspect, *, width: float) -> _Constants:
    """Compare the median label with the labels, and the most frequent one if scores and labels are whole.

    Args:
        columns: the judge's scores.
        labelled: the labels, all on the judge's scale.
        width: the width of the scale.
    """
    marks = labelled.marks
    sampled = labelled.sampled_labels()
    median = median_label(marks.value, sampled)
    error_of_median = np.abs(median - marks.value)
    error = np.abs(_best(columns)[marks.row] - marks.value)
    comparisons = {"median": Comparison(mae=sampled.mean_error(median, marks.value, width))}
    over = {"mae": {"median": sampled.mean(error - error_of_median, -width, width, signed=True)}}
    integer = columns["integer"][marks.row]
    if _are_whole(integer) and _are_whole(marks.value):
        is_most_frequent = most_frequent_label(marks.value, sampled) == marks.value
        is_equal = integer == marks.value
        difference = is_equal.astype(np.float64) - is_most_frequent
        comparisons["most frequent"] = Comparison(exact=sampled.share(is_most_frequent))
        over["exact"] = {"most frequent": sampled.mean(difference, -1.0, 1.0, signed=True)}
    return _Constants(comparisons, over)


def _are_whole(values: Floats) -> bool:
    return bool((values == values.round()).all())


def _counts_by_score(integer: Floats, label: Floats) -> dict[str, dict[str, int]]:
    """Return how many labels of each value have each integer; nothing if one of either is no whole number."""
    if not _are_whole(integer) or not _are_whole(label):
        return {}
    pairs = Counter(zip(label.astype(int).tolist(), integer.astype(int).tolist(), strict=True))
    integers = sorted({number for _, number in pairs})
    counts: dict[str, dict[str, int]] = {}
    for value in sorted({value for value, _ in pairs}):
        counts[str(value)] = {str(number): pairs[value, number] for number in integers}
    return counts
