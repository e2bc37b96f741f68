"""Agreement of a judge with people on an aspect without an order, compared with trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats
from localjudge.matching.scores import Scores
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import (
    ONE_SIDE_IS_EQUAL,
    NominalComparison,
    SampledRows,
    compare_labels,
    nominal_kappa,
)
from localjudge.statistics.krippendorff import alpha_estimate
from localjudge.statistics.trivial_judges import baseline_labels
from localjudge.studies.labelled_aspect import LabelledAspect

_MOST_FREQUENT = "most frequent"
"""The baseline that gives one label to all rows of an instruction."""


@dataclass(frozen=True, slots=True)
class LabelErrors:
    """How the judge treats one label of an aspect without an order.

    Attributes:
        labels: number of human labels that are this one.
        recall: the share of these that the judge gives, too.
        predicted: number of times that the judge gives it.
        precision: the share of these that people give, too.
    """

    labels: int
    recall: Estimate
    predicted: int
    precision: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class NominalAgreement:
    """The agreement on one aspect without an order.

    Attributes:
        rows, instructions, annotators: as for `AspectAgreement`.
        labels: the labels of the aspect, in the order of all that follows.
        comparisons: by "judge" and by the baselines of `baseline_labels`: "most frequent", "length" and
            "overlap"; one without values is missing.
        over_baselines: "kappa" and "accuracy" of the judge minus that of each baseline. The kappa of a label
            that is always the same is 0.
        by_label: what the judge does with each label.
        counts: the number of human labels by the label of the judge: `counts[human][judge]`.
        alpha: Krippendorff's nominal alpha of the annotators; undefined if no row has two labels.
    """

    rows: int
    instructions: int
    annotators: int
    labels: tuple[str, ...]
    comparisons: Mapping[str, NominalComparison]
    over_baselines: Mapping[str, Mapping[str, Estimate]]
    by_label: Mapping[str, LabelErrors]
    counts: Mapping[str, Mapping[str, int]]
    alpha: Estimate


def agree_on_labels(scores: Scores, aspect: str, labelled: LabelledAspect) -> NominalAgreement:
    """Compare a judge's labels with human labels, on an aspect without an order."""
    marks = labelled.marks
    names = tuple(map(str, scores.nominal[aspect]))
    judged = scores.verdicts(aspect)[marks.row]
    human = marks.value
    sampled = labelled.sampled_labels()
    features = {name: column[marks.row] for name, column in scores.baselines.items()}
    baselines = baseline_labels(features, human, sampled)

    comparisons = {"judge": compare_labels(judged, human, sampled)}
    kappa_over: dict[str, Estimate] = {}
    accuracy_over: dict[str, Estimate] = {}
    is_right = (judged == human).astype(np.float64)
    for name, labels in baselines.items():
        if name == _MOST_FREQUENT:
            comparisons[name] = _constant_comparison(labels, human, sampled)
            kappa_over[name] = sampled.kappa_of_labels(judged, human)
        else:
            comparisons[name] = compare_labels(labels, human, sampled)
            kappa_over[name] = _kappa_over(judged, labels, human=human, sampled=sampled)
        accuracy_over[name] = sampled.mean(is_right - (labels == human), -1.0, 1.0, signed=True)

    by_label = {
        name: _errors_of_label(judged == number, human == number, sampled) for number, name in enumerate(names)
    }
    return NominalAgreement(
        rows=labelled.rows,
        instructions=labelled.instructions,
        annotators=labelled.annotators,
        labels=names,
        comparisons=comparisons,
        over_baselines={"kappa": kappa_over, "accuracy": accuracy_over},
        by_label=by_label,
        counts=_confusion(judged, human, names),
        alpha=alpha_estimate(marks, scores.group, "nominal"),
    )


def _constant_comparison(labels: Floats, human: Floats, sampled: SampledRows) -> NominalComparison:
    """Return the agreement of the most frequent label, [m]; a label that is always the same has the kappa 0."""
    return NominalComparison(
        accuracy=sampled.share(labels == human), kappa=Estimate(0.0, why=ONE_SIDE_IS_EQUAL)
    )


def _kappa_over(judged: Floats, baseline: Floats, *, human: Floats, sampled: SampledRows) -> Estimate:
    """Return the kappa of the judge minus that of a baseline; that of one that is always the same is 0."""
    if (baseline == baseline[0]).all():
        return sampled.kappa_of_labels(judged, human)
    if (judged == judged[0]).all():
        return sampled.kappa_of_labels(baseline, human).negative()
    return sampled.difference(nominal_kappa, judged, baseline, human)


def _errors_of_label(is_predicted: Flags, is_label: Flags, sampled: SampledRows) -> LabelErrors:
    """Return what the judge does with a label, from where it gives it and where people do, both [m]."""
    return LabelErrors(
        labels=int(is_label.sum()),
        recall=sampled.take(is_label).share(is_predicted[is_label]),
        predicted=int(is_predicted.sum()),
        precision=sampled.take(is_predicted).share(is_label[is_predicted]),
    )


def _confusion(judged: Floats, human: Floats, names: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Return how many human labels of each name have each label of the judge."""
    counts: dict[str, dict[str, int]] = {}
    for number, name in enumerate(names):
        of_human = judged[human == number]
        counts[name] = {other: int((of_human == index).sum()) for index, other in enumerate(names)}
    return counts
