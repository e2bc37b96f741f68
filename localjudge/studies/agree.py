"""Agreement of a judge with people, compared with trivial baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Flags, Floats, Integers, LabelArray
from localjudge.matching.judged_rows import JudgedPairs, PairVerdicts
from localjudge.matching.labels import Labels
from localjudge.matching.scores import Scores
from localjudge.modes.pair_preference import RESULTS
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.agreement_statistics import (
    ONE_SIDE_IS_EQUAL,
    Comparison,
    NominalComparison,
    SampledRows,
    auc,
    compare,
    compare_labels,
    nominal_kappa,
    spearman,
)
from localjudge.statistics.krippendorff import alpha_estimate
from localjudge.statistics.resampling import RESAMPLES
from localjudge.statistics.trivial_judges import baseline_labels, median_label, most_frequent_label
from localjudge.statistics.within_instructions import WithinInstructions, agree_within

_TIE = RESULTS["tie"]
_DIGITS = 9


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
    """

    rows: int
    instructions: int
    annotators: int
    comparisons: Mapping[str, Comparison]
    over_baselines: Mapping[str, Mapping[str, Estimate]]
    within: WithinInstructions | None
    alpha: Estimate
    counts: Mapping[str, Mapping[str, int]]

    @property
    def kind(self) -> str:
        """The scores that are compared where one kind is: the expected ones, if they are known."""
        return "expected" if "expected" in self.comparisons else "integer"


@dataclass(frozen=True, slots=True)
class LabelErrors:
    """How the judge treats one label of an aspect without an order.

    Attributes:
        labels: number of human labels that are this one.
        recall: the share of these that the judge gives, too.
        given: number of times that the judge gives it.
        precision: the share of these that people give, too.
    """

    labels: int
    recall: Estimate
    given: int
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
class Agreement:
    """The agreement of a judge with labels.

    `nominal` has the aspects without an order. `aspects` has all others, and the shares of labels that a column
    was mapped to.
    """

    aspects: Mapping[str, AspectAgreement]
    nominal: Mapping[str, NominalAgreement]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """The agreement of a judge with labels of pairs in each aspect."""

    aspects: Mapping[str, LabelledPairs]
    notes: tuple[str, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Labelled:
    """The labels of some rows in an aspect."""

    marks: LabelArray
    group: Integers  # [rows of the run]: the instruction of each
    draws: tuple[int, int]  # the number of resamples, and their seed

    def counts(self) -> dict[str, int]:
        """Return the number of instructions and of annotators."""
        present = len(np.unique(self.group[self.marks.row])), len(np.unique(self.marks.annotator))
        return dict(zip(("instructions", "annotators"), present, strict=True))


def agree(scores: Scores, labels: Labels, resamples: int = RESAMPLES, seed: int = 0) -> Agreement:
    """Compare a judge's scores with labels.

    Args:
        scores: the scores of one run.
        labels: the labels of some of its rows.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.
    """
    aspects, notes, draws = {}, [*labels.notes, *scores.notes], (resamples, seed)

    for aspect, marks in labels.marks.items():
        if aspect.partition("=")[0] in labels.nominal:
            continue
        lowest, highest = ends = scores.ends(aspect)
        in_scale = bool(((marks.value >= lowest) & (marks.value <= highest)).all())
        if not in_scale:
            notes.append(
                f"{aspect}: labels from {marks.value.min():g} to {marks.value.max():g} are outside the scale "
                f"{lowest} to {highest}; only Spearman's correlation is defined"
            )
        columns = {"integer": scores.column(aspect, "integer")}
        if scores.expected is not None and aspect not in scores.without_expected:
            columns["expected"] = scores.column(aspect, "expected")
        of_labels = _Labelled(marks, scores.group, draws)
        comparisons = {
            name: compare(column, marks, scores.group, ends if in_scale and name in columns else None, *draws)
            for name, column in (columns | scores.baselines).items()
        }
        over = {"spearman": _over_in_rank(columns, scores.baselines, of_labels)}
        if in_scale:
            of_constants, over_constants = _over_constants(columns, of_labels, width=highest - lowest)
            comparisons |= of_constants
            over |= over_constants
        aspects[aspect] = AspectAgreement(
            rows=len(np.unique(marks.row)),
            **of_labels.counts(),
            comparisons=comparisons,
            over_baselines=over,
            counts=_counts_by_score(columns["integer"][marks.row], marks.value) if in_scale else {},
            within=agree_within(columns | scores.baselines, marks, scores.by_digest, scores.response, seed),
            alpha=alpha_estimate(marks, scores.group, "ordinal"),
        )
    nominal = {
        aspect: _agree_on_labels(scores, aspect, _Labelled(marks, scores.group, draws))
        for aspect, marks in labels.nominal.items()
    }
    return Agreement(aspects, nominal, tuple(notes), scores.notices)


def _best(columns: Mapping[str, Floats]) -> Floats:
    """Return the judge's expected scores, if they are known, or its integers."""
    return columns["expected"] if "expected" in columns else columns["integer"]


def _over_in_rank(
    columns: Mapping[str, Floats], baselines: Mapping[str, Floats], of_labels: _Labelled
) -> dict[str, Estimate]:
    """Return Spearman's correlation of the judge minus that of each baseline, over all rows."""
    rows, means = of_labels.marks.means()
    sampled = SampledRows(of_labels.group[rows], of_labels.marks.weight_of(rows))
    judge = _best(columns)[rows]
    return {
        name: sampled.difference(spearman, judge, baseline[rows], means) for name, baseline in baselines.items()
    }


def _over_constants(
    columns: Mapping[str, Floats], of_labels: _Labelled, width: float
) -> tuple[dict[str, Comparison], dict[str, dict[str, Estimate]]]:
    """Return the agreement of the most frequent and of the median label, and the judge minus these.

    Args:
        columns: the judge's scores.
        of_labels: the labels, all on the judge's scale.
        width: the width of the scale.
    """
    marks = of_labels.marks
    sampled = SampledRows(of_labels.group[marks.row], marks.weight, *of_labels.draws)
    frequent, median = most_frequent_label(marks.value, sampled), median_label(marks.value, sampled)
    error_of_median = np.abs(median - marks.value)
    error = np.abs(_best(columns)[marks.row] - marks.value)
    comparisons = {"median": Comparison(mae=sampled.mean_error(median, marks.value, width))}
    over = {"mae": {"median": sampled.mean(error - error_of_median, -width, width, signed=True)}}
    integer = columns["integer"][marks.row]
    if _are_whole(integer) and _are_whole(marks.value):
        is_frequent, is_equal = frequent == marks.value, integer == marks.value
        comparisons["most frequent"] = Comparison(exact=sampled.share(is_frequent))
        difference = is_equal.astype(np.float64) - is_frequent
        over["exact"] = {"most frequent": sampled.mean(difference, -1.0, 1.0, signed=True)}
    return comparisons, over


def _are_whole(values: Floats) -> bool:
    return bool((values == values.round()).all())


def _counts_by_score(integer: Floats, label: Floats) -> dict[str, dict[str, int]]:
    """Return how many labels of each value have each integer; nothing if one of either is no whole number."""
    if not _are_whole(integer) or not _are_whole(label):
        return {}
    pairs = Counter(zip(label.astype(int).tolist(), integer.astype(int).tolist(), strict=True))
    labels = sorted({label for label, _ in pairs})
    integers = sorted({number for _, number in pairs})
    return {str(label): {str(number): pairs[label, number] for number in integers} for label in labels}


def _agree_on_labels(scores: Scores, aspect: str, of_labels: _Labelled) -> NominalAgreement:
    """Compare a judge's labels with human labels, on an aspect without an order."""
    marks, names = of_labels.marks, tuple(map(str, scores.nominal[aspect]))
    judged, human = scores.verdicts(aspect)[marks.row], marks.value
    sampled = SampledRows(scores.group[marks.row], marks.weight, *of_labels.draws)
    known = {name: column[marks.row] for name, column in scores.baselines.items()}
    baselines, right = baseline_labels(known, human, sampled), (judged == human).astype(np.float64)
    constant = np.zeros_like(human)
    right_most_often = sampled.share(baselines["most frequent"] == human)
    of_constant = NominalComparison(right_most_often, Estimate(0.0, why=ONE_SIDE_IS_EQUAL))
    return NominalAgreement(
        rows=len(np.unique(marks.row)),
        **of_labels.counts(),
        labels=names,
        comparisons={
            name: compare_labels(labels, human, sampled)
            for name, labels in {"judge": judged, **baselines}.items()
        }
        | {"most frequent": of_constant},
        over_baselines={
            "kappa": {
                name: _over_in_kappa(judged, constant if name == "most frequent" else labels, human, sampled)
                for name, labels in baselines.items()
            },
            "accuracy": {
                name: sampled.mean(right - (labels == human), -1.0, 1.0, signed=True)
                for name, labels in baselines.items()
            },
        },
        by_label={
            name: _errors_of_label(judged == number, human == number, sampled)
            for number, name in enumerate(names)
        },
        counts={
            name: {
                other: int(((human == number) & (judged == place)).sum()) for place, other in enumerate(names)
            }
            for number, name in enumerate(names)
        },
        alpha=alpha_estimate(marks, scores.group, "nominal"),
    )


def _over_in_kappa(judged: Floats, baseline: Floats, human: Floats, sampled: SampledRows) -> Estimate:
    """Return the kappa of the judge minus that of a baseline; that of one that is always the same is 0."""
    if (baseline == baseline[0]).all():
        return sampled.kappa_of_labels(judged, human)
    if (judged == judged[0]).all():
        return sampled.kappa_of_labels(baseline, human).negative()
    return sampled.difference(nominal_kappa, judged, baseline, human)


def _errors_of_label(is_given: Flags, is_label: Flags, sampled: SampledRows) -> LabelErrors:
    """Return what the judge does with a label, from where it gives it and where people do, both [m]."""
    return LabelErrors(
        labels=int(is_label.sum()),
        recall=sampled.take(is_label).share(is_given[is_label]),
        given=int(is_given.sum()),
        precision=sampled.take(is_given).share(is_label[is_given]),
    )


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
    aspects = {
        aspect: _agree_on_verdicts(
            pairs, pairs.aspects[aspect], _Labelled(marks, pairs.group, (resamples, seed))
        )
        for aspect, marks in labels.marks.items()
    }
    notes = list(labels.notes)
    tieless = [name for name in labels.marks if not pairs.manifest.rubric.aspects[name].has_tie]
    if pairs.orders > 1 and tieless:
        notes.append(
            f"no label for a tie in {', '.join(tieless)}: the verdict of both orders is the response with the "
            "higher averaged preference"
        )
    if pairs.failed:
        notes.append(f"pairs that could not be judged, and are left out: {pairs.failed:,}")
    return PairAgreement(aspects, tuple(notes), pairs.notices)


def _agree_on_verdicts(pairs: JudgedPairs, verdicts: PairVerdicts, of_labels: _Labelled) -> LabelledPairs:
    """Compare the judge's verdicts in one aspect with labels."""
    rows, human = _most_frequent(of_labels.marks)
    sampled = SampledRows(pairs.group[rows], of_labels.marks.weight_of(rows), *of_labels.draws)
    names = ["both orders", "input order", "reverse order"] if pairs.orders > 1 else [None, "input order"]
    columns = {
        name: (verdicts.result[rows, place], verdicts.preference[rows, place] - _TIE)
        for place, name in enumerate(names)
        if name is not None
    }
    longer = np.subtract(*np.log1p(pairs.lengths[rows]).T)
    trivial = {"longer wins": _TIE + np.sign(longer) / 2, "first wins": np.ones(len(rows))}
    verdict = verdicts.result[rows, 0]
    over = {
        name: _mean(np.abs(each - human) - np.abs(verdict - human), sampled, signed=True)
        for name, each in trivial.items()
    }
    columns |= {"longer wins": (trivial["longer wins"], longer), "first wins": (trivial["first wins"],) * 2}
    consistency = UNDEFINED
    if pairs.orders == 2:
        same = verdicts.same_response[rows]
        consistency = sampled.take(np.isfinite(same)).share(same[np.isfinite(same)] == 1)
    return LabelledPairs(
        pairs=len(rows),
        **of_labels.counts(),
        labels={name: int((human == number).sum()) for name, number in RESULTS.items()},
        comparisons={name: _compare_verdicts(human, *each, sampled) for name, each in columns.items()},
        over_baselines=over,
        consistency=consistency,
        alpha=alpha_estimate(of_labels.marks, pairs.group, "nominal"),
    )


def _compare_verdicts(human: Floats, result: Floats, score: Floats, sampled: SampledRows) -> PairComparison:
    """Compare results [m] with labels [m]; `score` has the preferences minus one half, [m]."""
    labelled = human != _TIE
    decided, area = labelled & (result != _TIE), UNDEFINED
    if labelled.any():
        # Rounding errors would order equal preferences.
        preferred = np.where(human == RESULTS["a"], score, -score)[labelled].round(_DIGITS)
        scores, is_preferred = np.r_[preferred, -preferred], np.repeat([1.0, 0.0], len(preferred))
        twice = sampled.take(np.tile(np.flatnonzero(labelled), 2))
        area = twice.agreement(auc, scores, is_preferred, 0.0)
    return PairComparison(
        accuracy=_mean(1 - np.abs(human - result), sampled),
        without_ties=sampled.take(decided).share((human == result)[decided]),
        decided=int(decided.sum()),
        kappa=sampled.kappa_of_labels(result, human)
        if (human != human[0]).any()
        else Estimate(why=ONE_SIDE_IS_EQUAL),
        auc=area,
    )


def _mean(values: Floats, sampled: SampledRows, signed: bool = False) -> Estimate:
    """Return the mean of values of pairs, of which those that are NaN are left out."""
    known = np.isfinite(values)
    return sampled.take(known).mean(values[known], -1.0 if signed else 0.0, 1.0, signed)


def _most_frequent(marks: LabelArray) -> tuple[Integers, Floats]:
    """Return the pairs that have labels, and the most frequent label of each; a tie between two is a tie."""
    rows, place = np.unique(marks.row, return_inverse=True)
    numbers = np.array([*RESULTS.values()])
    counts = np.zeros((len(rows), len(numbers)))
    np.add.at(counts, (place, np.argmax(marks.value[:, None] == numbers, axis=1)), 1)
    most = counts == counts.max(axis=1, keepdims=True)
    return rows, np.where(most.sum(axis=1) == 1, numbers[counts.argmax(axis=1)], _TIE)
