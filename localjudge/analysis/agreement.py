"""Agreement of a judge with people, compared with inter-annotator agreement and trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from localjudge.analysis.comparison import ComparedLabels, Comparison, ComparisonStatistics
from localjudge.analysis.human_labels import Labels, Marks
from localjudge.analysis.interval import Estimate
from localjudge.analysis.krippendorff import alphas
from localjudge.analysis.measured_texts import Measures
from localjudge.analysis.nominal_agreement import NominalAgreement, agree_on_labels
from localjudge.analysis.resampling import RESAMPLES
from localjudge.analysis.scores import Scores


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The inter-annotator agreement, which no judge is likely to exceed by much.

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

    The keys of `comparisons` are "integer", "expected", "calibrated", "length" and "overlap"; a key without
    values is missing. `ceiling` is the inter-annotator agreement.
    """

    rows: int
    instructions: int
    annotators: int
    comparisons: Mapping[str, Comparison]
    ceiling: Ceiling | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a judge with labels.

    `nominal` has the aspects without an order. `aspects` has all others, and the shares of labels that a column
    was mapped to or that were calibrated.
    """

    aspects: Mapping[str, AspectAgreement]
    nominal: Mapping[str, NominalAgreement]
    notes: tuple[str, ...]
    notices: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


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
        is_share = aspect.partition("=")[0] in labels.nominal
        if is_share and not (calibrated and aspect in calibrated.aspects):
            continue
        lowest, highest = scores.ends(aspect)
        in_scale = bool(((marks.value >= lowest) & (marks.value <= highest)).all())
        if not in_scale:
            notes.append(
                f"{aspect}: labels from {marks.value.min():g} to {marks.value.max():g} are outside the scale "
                f"{lowest} to {highest}; only the correlations are defined"
            )
        columns = {"integer": scores.column(aspect, "integer")}
        if scores.expected is not None and aspect not in scores.unmeasured:
            columns["expected"] = scores.column(aspect, "expected")
        if calibrated and aspect in calibrated.aspects:
            columns["calibrated"] = calibrated.column(aspect, "expected")
        against = ComparedLabels.of(marks, scores.group)
        statistics = ComparisonStatistics(against.groups, resamples, seed, lowest, highest)
        comparisons = {name: statistics.compare(column, against, in_scale) for name, column in columns.items()}
        if measures is not None:
            known = marks.of_rows(measures.known)
            if len(known.row):
                against_known = ComparedLabels.of(known, scores.group)
                statistics = replace(statistics, groups=against_known.groups)
                for name, column in {"length": measures.length, "overlap": measures.overlap}.items():
                    if column is not None:
                        comparisons[name] = statistics.correlations(column, against_known)
        aspects[aspect] = AspectAgreement(
            rows=len(against.mean),
            instructions=against.groups,
            annotators=len(np.unique(marks.annotator)),
            comparisons=comparisons,
            ceiling=_ceiling(marks, scores, aspect, labels.annotators, in_scale, resamples, seed),
        )
    nominal = {
        aspect: agree_on_labels(scores, aspect, marks, measures, resamples, seed)
        for aspect, marks in labels.nominal.items()
    }
    return Agreement(aspects, nominal, tuple(notes), (calibrated or scores).notices)


def _ceiling(
    marks: Marks,
    scores: Scores,
    aspect: str,
    annotators: tuple[str, ...],
    in_scale: bool,
    resamples: int,
    seed: int,
) -> Ceiling | None:
    """Return the inter-annotator agreement; None if no row has two labels."""
    counts = np.bincount(marks.row, minlength=len(scores.ids))
    several = marks.of_rows(counts >= 2)
    if not len(several.row):
        return None
    rest = ComparedLabels.others(several, scores.group)
    statistics = ComparisonStatistics(rest.groups, resamples, seed, *scores.ends(aspect))
    without_intervals = replace(statistics, resamples=0)
    names = np.unique(several.annotator)
    each = {}
    for annotator in names if len(names) <= 20 else ():
        part = rest.part(several.annotator == annotator)
        each[annotators[annotator]] = without_intervals.compare(several.value, part, in_scale)
    ordinal, interval = alphas(several, scores.group)
    return Ceiling(ordinal, interval, statistics.compare(several.value, rest, in_scale), each)
