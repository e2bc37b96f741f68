"""Agreement of a judge with people, compared with single annotators and trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores
from localjudge.statistics import Estimate
from localjudge.statistics.agreement_statistics import alphas
from localjudge.statistics.alternative_annotator import AnnotatorTest, replace_annotators
from localjudge.statistics.comparison import (
    ComparedLabels,
    Comparison,
    compare,
    correlations_with,
)
from localjudge.statistics.nominal_agreement import NominalAgreement, agree_on_labels
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.within_instructions import LabelledResponses, WithinInstructions


@dataclass(frozen=True, slots=True)
class AspectAgreement:
    """The agreement for one aspect.

    The keys of `comparisons` are "integer", "expected", "calibrated", "length" and "overlap"; a key without
    values is missing.

    Attributes:
        within: the agreement within instructions; None if fewer than two of them have two labelled responses.
        alpha_ordinal: Krippendorff's ordinal alpha of the annotators; undefined if no row has two labels.
        alpha_interval: the same with the interval distance.
        annotator_test: the judge's integers beside single annotators; None if there are too few labels, or if
            they lie outside the judge's scale.
    """

    rows: int
    instructions: int
    annotators: int
    comparisons: Mapping[str, Comparison]
    within: WithinInstructions | None
    alpha_ordinal: Estimate
    alpha_interval: Estimate
    annotator_test: AnnotatorTest | None


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


def agree(
    scores: Scores,
    labels: Labels,
    calibrated: Scores | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Agreement:
    """Compare a judge's scores with labels.

    Args:
        scores: the scores of one run.
        labels: the labels of some of its rows.
        calibrated: the same scores after a calibration; each of their aspects is compared as one more column.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    aspects, baselines = {}, scores.baselines
    notes = [*labels.notes, *scores.notes]
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
        against = ComparedLabels.from_labels(marks, scores.group)
        comparisons = {
            name: compare(column, against, (lowest, highest), resamples, seed)
            if in_scale
            else correlations_with(column, against)
            for name, column in columns.items()
        }
        comparisons |= {name: correlations_with(column, against) for name, column in baselines.items()}
        responses, within = LabelledResponses.from_labels(marks, scores.group, scores.response), {}
        if responses:
            within = {name: responses.compare(column, seed) for name, column in (columns | baselines).items()}
            within |= responses.trivial(seed)
        people = labels.independent.get(aspect, marks)
        ordinal, interval = alphas(people, scores.group)
        aspects[aspect] = AspectAgreement(
            rows=len(against.mean),
            instructions=against.groups,
            annotators=len(np.unique(people.annotator)),
            comparisons=comparisons,
            within=WithinInstructions(responses.instructions, len(responses.first), within)
            if responses
            else None,
            alpha_ordinal=ordinal,
            alpha_interval=interval,
            annotator_test=replace_annotators(
                people,
                columns["integer"],
                scores.group,
                labels.annotators,
                lambda given, other: (given - other) ** 2,
                resamples,
                seed,
            )
            if in_scale
            else None,
        )
    nominal = {
        aspect: agree_on_labels(
            tuple(map(str, scores.nominal[aspect])),
            scores.verdicts(aspect),
            scores.probabilities(aspect),
            scores.group,
            marks,
            labels.annotators,
            baselines,
            resamples,
            seed,
            labels.independent.get(aspect),
        )
        for aspect, marks in labels.nominal.items()
    }
    return Agreement(aspects, nominal, tuple(notes), (calibrated or scores).notices)
