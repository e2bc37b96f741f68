"""Agreement of a judge's verdicts on pairs with people, compared with trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.matching.judged_rows import JudgedPairs, PairVerdicts
from localjudge.matching.labels import Labels
from localjudge.modes.pair_preference import RESULTS
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.agreement_statistics import ONE_SIDE_IS_EQUAL, SampledRows, auc
from localjudge.statistics.krippendorff import alpha_estimate
from localjudge.statistics.resampling import RESAMPLES
from localjudge.studies.labelled_aspect import LabelledAspect

_TIE = RESULTS["tie"]
_DIGITS = 9
"""Decimals of preferences that are ordered: rounding errors would order equal ones."""
_LONGER = "longer wins"
_FIRST = "first wins"


@dataclass(frozen=True, slots=True)
class PairComparison:
    """The agreement of one column of verdicts with the labels.

    Attributes:
        accuracy: the share of pairs whose label and verdict are equal. If only one of them is a tie, the pair
            counts half.
        without_ties: the accuracy on the pairs whose label and verdict are no ties.
        decided: number of these pairs.
        kappa: Cohen's kappa of the three results, without weights; undefined if all labels are equal.
        auc: the probability that a response that people prefer is given a higher preference than one that they
            reject, over all responses of the pairs without a tie in the label: the area under the ROC curve.
            Exchanging the responses of a pair does not change it.
    """

    accuracy: Estimate
    without_ties: Estimate
    decided: int
    kappa: Estimate
    auc: Estimate = UNDEFINED


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPairs:
    """The agreement on a set of pairs in one aspect.

    Attributes:
        pairs: number of pairs with labels.
        instructions, annotators: as for `AspectAgreement`.
        labels: number of pairs with each result by the labels; with several, the most frequent label of a pair,
            or a tie if two are equally frequent.
        comparisons: by "both orders", "input order" and "reverse order", and by what trivial judges say:
            "longer wins", the response with more characters, and "first wins", the first of the input.
        over_baselines: the accuracy of the verdict minus that of each trivial judge.
        consistency: share of the pairs without a tie in an order whose orders name the same response.
        alpha: Krippendorff's nominal alpha of the annotators; undefined if no pair has two labels.
    """

    pairs: int
    instructions: int
    annotators: int
    labels: Mapping[str, int]
    comparisons: Mapping[str, PairComparison]
    over_baselines: Mapping[str, Estimate]
    consistency: Estimate
    alpha: Estimate


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """The agreement of a judge with labels of pairs in each aspect.

    Attributes:
        aspects: the agreement in each aspect.
        label_notes: the notes on the labels.
        without_tie: the aspects without a label for a tie that were judged in both orders: the verdict is the
            response with the higher averaged preference.
        failed: number of pairs that could not be judged, and are left out.
        notices: the notices of the run.
    """

    aspects: Mapping[str, LabelledPairs]
    label_notes: tuple[str, ...]
    without_tie: tuple[str, ...]
    failed: int
    notices: tuple[str, ...]


def agree_on_pairs(
    pairs: JudgedPairs, labels: Labels, resamples: int = RESAMPLES, seed: int = 0
) -> PairAgreement:
    """Compare a judge's verdicts on pairs with labels.

    Args:
        pairs: the judged pairs of a run.
        labels: labels of some of them, numbers of `RESULTS`.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    aspects: dict[str, LabelledPairs] = {}
    without_tie: list[str] = []
    for aspect, marks in labels.marks.items():
        labelled = LabelledAspect(marks, pairs.group, resamples=resamples, seed=seed)
        aspects[aspect] = _agree_on_verdicts(pairs, pairs.aspects[aspect], labelled)
        if pairs.orders > 1 and not pairs.manifest.rubric.aspects[aspect].has_tie:
            without_tie.append(aspect)
    return PairAgreement(
        aspects=aspects,
        label_notes=labels.notes,
        without_tie=tuple(without_tie),
        failed=pairs.failed,
        notices=pairs.notices,
    )


@dataclass(frozen=True, slots=True)
class _Results:
    """What a judge says of n pairs.

    Attributes:
        result: the number of the result of each pair, as in `RESULTS`, [n]; NaN for none.
        advantage: how far the first response is preferred, on any scale on which 0 is no preference, [n].
    """

    result: Floats
    advantage: Floats


def _agree_on_verdicts(pairs: JudgedPairs, verdicts: PairVerdicts, labelled: LabelledAspect) -> LabelledPairs:
    """Compare the judge's verdicts in one aspect with labels."""
    rows, human = _most_frequent(labelled.marks)
    sampled = labelled.sampled_rows(rows)
    results = _results_of_judge(verdicts, rows, orders=pairs.orders)
    trivial = _results_of_trivial_judges(pairs.lengths[rows])
    distance = np.abs(verdicts.result[rows, 0] - human)
    over_baselines = {
        name: _mean(np.abs(baseline.result - human) - distance, sampled, signed=True)
        for name, baseline in trivial.items()
    }
    comparisons = {
        name: _compare_verdicts(human, of_judge, sampled) for name, of_judge in (results | trivial).items()
    }
    return LabelledPairs(
        pairs=len(rows),
        instructions=labelled.instructions,
        annotators=labelled.annotators,
        labels={name: int((human == number).sum()) for name, number in RESULTS.items()},
        comparisons=comparisons,
        over_baselines=over_baselines,
        consistency=_consistency(verdicts, rows, sampled) if pairs.orders == 2 else UNDEFINED,
        alpha=alpha_estimate(labelled.marks, pairs.group, "nominal"),
    )


def _results_of_judge(verdicts: PairVerdicts, rows: Integers, *, orders: int) -> dict[str, _Results]:
    """Return the judge's results on some rows, in both orders and in each."""
    columns = {"input order": 1}
    if orders > 1:
        columns = {"both orders": 0, "input order": 1, "reverse order": 2}
    return {
        name: _Results(verdicts.result[rows, column], verdicts.preference[rows, column] - _TIE)
        for name, column in columns.items()
    }


def _results_of_trivial_judges(lengths: Floats) -> dict[str, _Results]:
    """Return the results of judges that prefer the longer or the first response; `lengths` is [n, 2]."""
    log_lengths = np.log1p(lengths)
    longer = log_lengths[:, 0] - log_lengths[:, 1]
    first = np.ones(len(lengths))
    return {_LONGER: _Results(_TIE + np.sign(longer) / 2, longer), _FIRST: _Results(first, first)}


def _consistency(verdicts: PairVerdicts, rows: Integers, sampled: SampledRows) -> Estimate:
    """Return the share of pairs whose orders name the same response, of those without a tie in an order."""
    same_response = verdicts.same_response[rows]
    has_no_tie = np.isfinite(same_response)
    return sampled.take(has_no_tie).share(same_response[has_no_tie] == 1)


def _compare_verdicts(human: Floats, judge: _Results, sampled: SampledRows) -> PairComparison:
    """Compare the results of a judge with labels, [n]."""
    result = judge.result
    is_decided = (human != _TIE) & (result != _TIE)
    kappa = Estimate(why=ONE_SIDE_IS_EQUAL)
    if (human != human[0]).any():
        kappa = sampled.kappa_of_labels(result, human)
    return PairComparison(
        accuracy=_mean(1 - np.abs(human - result), sampled),
        without_ties=sampled.take(is_decided).share((human == result)[is_decided]),
        decided=int(is_decided.sum()),
        kappa=kappa,
        auc=_area(human, judge.advantage, sampled),
    )


def _area(human: Floats, advantage: Floats, sampled: SampledRows) -> Estimate:
    """Return the area under the ROC curve over both responses of the pairs without a tie in the label."""
    has_winner = human != _TIE
    if not has_winner.any():
        return UNDEFINED
    of_preferred = np.where(human == RESULTS["a"], advantage, -advantage)[has_winner].round(_DIGITS)
    scores = np.concatenate([of_preferred, -of_preferred])
    is_preferred = np.repeat([1.0, 0.0], len(of_preferred))
    both_responses = np.tile(np.flatnonzero(has_winner), 2)
    return sampled.take(both_responses).agreement(auc, scores, is_preferred, lowest=0.0)


def _mean(values: Floats, sampled: SampledRows, *, signed: bool = False) -> Estimate:
    """Return the mean of values of pairs, of which those that are NaN are left out."""
    is_known = np.isfinite(values)
    lowest = -1.0 if signed else 0.0
    return sampled.take(is_known).mean(values[is_known], lowest, 1.0, signed)


def _most_frequent(marks: LabelArray) -> tuple[Integers, Floats]:
    """Return the pairs that have labels, and the most frequent label of each; a tie between two is a tie."""
    rows, row_index = np.unique(marks.row, return_inverse=True)
    numbers = np.array(list(RESULTS.values()))
    result_index = np.argmax(marks.value[:, None] == numbers, axis=1)
    counts = np.zeros((len(rows), len(numbers)))
    np.add.at(counts, (row_index, result_index), 1)
    is_most_frequent = counts == counts.max(axis=1, keepdims=True)
    has_one = is_most_frequent.sum(axis=1) == 1
    return rows, np.where(has_one, numbers[counts.argmax(axis=1)], _TIE)
