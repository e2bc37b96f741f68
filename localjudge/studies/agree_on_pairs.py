"""Agreement of a judge with people on pairs, of both orders and of each, compared with trivial baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.errors import UsageError
from localjudge.matching.judged_rows import JudgedPairs, PairVerdicts
from localjudge.matching.labels import Labels
from localjudge.modes.pair_preference import RESULTS
from localjudge.runs.summary import system_value
from localjudge.statistics import UNDEFINED, Estimate, agreement_statistics
from localjudge.statistics.agreement_statistics import nominal_alpha
from localjudge.statistics.alternative_annotator import AnnotatorTest, replace_annotators
from localjudge.statistics.comparison import ONE_SIDE_IS_EQUAL, kappa_of_labels, with_interval
from localjudge.statistics.jackknife import exact_share
from localjudge.statistics.resampling import RESAMPLES, mean_estimate

SUBSET = "subset"
"""The column whose values divide the pairs if no other is named."""
_TIE = RESULTS["tie"]
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class PairComparison:
    """The agreement of one column of verdicts with the labels.

    Attributes:
        accuracy: the share of pairs with the same result; a pair of which only one, label or verdict, is a tie
            counts half.
        without_ties: the accuracy on the pairs of which neither label nor verdict is a tie.
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


@dataclass(frozen=True, slots=True)
class LabelledPairs:
    """The agreement on a set of pairs in one aspect.

    Attributes:
        pairs: number of pairs with labels.
        instructions: number of their instructions.
        annotators: number of annotators.
        labels: number of pairs with each result by the labels; with several, the most frequent label of a pair,
            or a tie if two are equally frequent.
        comparisons: by "both orders", "input order" and "reverse order", and by what trivial judges say:
            "longer wins", the response with more characters, and "first wins", the first of the input.
        gain: the accuracy of the most probable result of both orders averaged, minus the mean accuracy of the
            two; undefined with one order.
        consistency: share of the pairs without a tie in an order whose orders name the same response.
        alpha: Krippendorff's nominal alpha of the annotators; None if no pair has two labels.
        annotator_test: the verdicts beside single annotators, where a tie is half a difference;
            None if there are too few labels.
    """

    pairs: int
    instructions: int
    annotators: int
    labels: Mapping[str, int]
    comparisons: Mapping[str, PairComparison]
    gain: Estimate
    consistency: Estimate
    alpha: Estimate | None
    annotator_test: AnnotatorTest | None


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """The agreement of a judge with labels of pairs in each aspect.

    `subsets` has the agreement on each subset of the pairs in each aspect, and `by` the column whose values are
    the subsets; empty and None without subsets.
    """

    aspects: Mapping[str, LabelledPairs]
    subsets: Mapping[str, Mapping[str, LabelledPairs]]
    by: str | None
    notes: tuple[str, ...]
    notices: tuple[str, ...]


def agree_on_pairs(
    pairs: JudgedPairs,
    labels: Labels,
    by_column: str | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairAgreement:
    """Compare a judge's verdicts on pairs with labels.

    Args:
        pairs: the judged pairs of a run.
        labels: labels of some of them, numbers of `RESULTS`.
        by_column: the column whose values divide the pairs; None for `SUBSET`, if the rows have it.
        resamples: number of resamples for the intervals.
        seed: seed of the resamples.

    Raises:
        UsageError: no row has the column.
    """
    column = by_column or SUBSET
    of_systems = system_value(pairs.manifest, column)
    own = (each.get(column) for each in pairs.columns)
    values = (of_systems(of) if each is None else each for each, of in zip(own, pairs.systems, strict=True))
    subsets = np.array(["" if each is None else str(each) for each in values])
    names = [] if (subsets == "").all() else sorted(set(subsets.tolist()) - {""})
    if by_column is not None and not names:
        columns = ", ".join(list(pairs.columns[0])[:12]) or "none"
        raise UsageError(
            f"`by_column` {column}: no row of {pairs.where} has this column; its columns are {columns}"
        )
    aspects, divided = {}, {}
    for aspect, marks in labels.marks.items():
        comparing = _Comparing(pairs, pairs.aspects[aspect], labels.annotators, resamples, seed)
        people = labels.independent.get(aspect, marks)
        aspects[aspect] = comparing.labelled(marks, people)
        divided[aspect] = {
            name: comparing.labelled(known, people.of_rows(subsets == name))
            for name in names
            if len((known := marks.of_rows(subsets == name)).row)
        }
    notes = list(labels.notes)
    tieless = [name for name in labels.marks if not pairs.manifest.rubric.aspects[name].has_tie]
    if pairs.orders > 1 and tieless:
        notes.append(
            f"no label for a tie in {', '.join(tieless)}: the verdict of both orders is the response with the "
            "higher averaged preference"
        )
    if pairs.failed:
        notes.append(f"pairs that could not be judged, and are left out: {pairs.failed}")
    return PairAgreement(aspects, divided, column if names else None, tuple(notes), pairs.notices)


@dataclass(frozen=True, slots=True)
class _Comparing:
    """The comparison of the verdicts in one aspect with labels."""

    pairs: JudgedPairs
    verdicts: PairVerdicts
    annotators: tuple[str, ...]
    resamples: int
    seed: int

    def labelled(self, marks: LabelArray, people: LabelArray) -> LabelledPairs:
        """Compare with labels; `people` has those before adjudication."""
        rows, human = _most_frequent(marks)
        group, weight = self.pairs.group[rows], marks.weight_of(rows)
        compared = {
            name: self._compare(human, group, result, score, weight)
            for name, result, score in self._columns(rows)
        }
        gain = consistency = UNDEFINED
        if self.pairs.orders == 2:
            credit = 1 - np.abs(self.verdicts.result[rows] - human[:, None])
            averaged = 1 - np.abs(self.verdicts.averaged[rows] - human)
            gain = self._mean(averaged - credit[:, 1:].mean(axis=1), group, weight, signed=True)
            agree = self.verdicts.same_response[rows]
            decided = np.isfinite(agree)
            consistency = exact_share(agree[decided] == 1, group[decided], _chosen(weight, decided))
        return LabelledPairs(
            pairs=len(rows),
            instructions=len(np.unique(group)),
            annotators=len(np.unique(people.annotator)),
            labels={name: int((human == number).sum()) for name, number in RESULTS.items()},
            comparisons=compared,
            gain=gain,
            consistency=consistency,
            alpha=nominal_alpha(people, self.pairs.group),
            annotator_test=replace_annotators(
                people,
                self.verdicts.result[:, 0],
                self.pairs.group,
                self.annotators,
                lambda given, other: np.abs(given - other),
                self.resamples,
                self.seed,
            ),
        )

    def _columns(self, rows: Integers) -> Iterator[tuple[str, Floats, Floats]]:
        """Yield each column of verdicts: its name, its results, and its preferences minus one half, all [m]."""
        orders = ["input order", "reverse order"][: self.pairs.orders]
        for place, name in enumerate(["both orders", *orders] if len(orders) > 1 else [None, *orders]):
            if name is not None:
                score = self.verdicts.preference[rows, place] - _TIE
                yield name, self.verdicts.result[rows, place], score
        longer = np.subtract(*np.log1p(self.pairs.lengths[rows]).T)
        yield "longer wins", _TIE + np.sign(longer) / 2, longer
        yield "first wins", np.ones(len(rows)), np.ones(len(rows))

    def _compare(
        self, human: Floats, group: Integers, result: Floats, score: Floats, weight: Floats | None
    ) -> PairComparison:
        """Compare results [m] with labels [m]; `score` has the preferences minus one half, [m]."""
        decided = (human != _TIE) & (result != _TIE)
        kappa, auc = Estimate(why=ONE_SIDE_IS_EQUAL), UNDEFINED
        if (human != human[0]).any():
            kappa = kappa_of_labels(result, human, group, weight)
        labelled = human != _TIE
        if labelled.any():
            # Rounding errors would order equal preferences.
            preferred = np.where(human == RESULTS["a"], score, -score)[labelled].round(_DIGITS)
            scores, is_preferred = np.r_[preferred, -preferred], np.repeat([1.0, 0.0], len(preferred))
            groups, known = np.tile(group[labelled], 2), _chosen(weight, labelled)
            twice = None if known is None else np.tile(known, 2)
            auc = with_interval(agreement_statistics.auc, scores, is_preferred, groups, 0.0, weight=twice)
        return PairComparison(
            accuracy=self._mean(1 - np.abs(human - result), group, weight),
            without_ties=exact_share((human == result)[decided], group[decided], _chosen(weight, decided)),
            decided=int(decided.sum()),
            kappa=kappa,
            auc=auc,
        )

    def _mean(self, values: Floats, group: Integers, weight: Floats | None, signed: bool = False) -> Estimate:
        """Return the mean of values of pairs, of which those that are NaN are left out."""
        known = np.isfinite(values)
        given, own = (values[known], group[known], -1.0 if signed else 0.0, 1.0, signed), _chosen(weight, known)
        return mean_estimate(*given, self.resamples, self.seed, own)


def _chosen(weight: Floats | None, chosen: NDArray[np.bool_]) -> Floats | None:
    return None if weight is None else weight[chosen]


def _most_frequent(marks: LabelArray) -> tuple[Integers, Floats]:
    """Return the pairs that have labels, and the most frequent label of each; a tie between two is a tie."""
    rows, place = np.unique(marks.row, return_inverse=True)
    numbers = np.array([*RESULTS.values()])
    counts = np.zeros((len(rows), len(numbers)))
    np.add.at(counts, (place, np.argmax(marks.value[:, None] == numbers, axis=1)), 1)
    most = counts == counts.max(axis=1, keepdims=True)
    return rows, np.where(most.sum(axis=1) == 1, numbers[counts.argmax(axis=1)], _TIE)
