"""Agreement of a judge with people on an aspect without an order, compared with trivial baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from localjudge.arrays import Floats, Integers, LabelArray
from localjudge.statistics import UNDEFINED, Estimate
from localjudge.statistics.agreement_statistics import nominal_alpha
from localjudge.statistics.alternative_annotator import AnnotatorTest, replace_annotators
from localjudge.statistics.comparison import kappa_of_labels
from localjudge.statistics.jackknife import exact_share
from localjudge.statistics.resampling import mean_estimate

_FOLDS = 5
_LARGEST_BRIER_SCORE = 2.0


@dataclass(frozen=True, slots=True)
class NominalComparison:
    """The agreement of one column of labels with the human labels, each human label separately.

    `kappa` is Cohen's, without weights. `brier` is the Brier score of the probabilities (Brier 1950): the sum
    over the labels of the squared distance from 1 for the human label and from 0 for the others, so 0 at best
    and 2 at worst.
    """

    accuracy: Estimate
    kappa: Estimate
    brier: Estimate = UNDEFINED


@dataclass(frozen=True, slots=True)
class NominalAgreement:
    """The agreement on one aspect without an order.

    Attributes:
        rows: number of rows with labels.
        instructions: number of their instructions.
        annotators: number of annotators.
        labels: the labels of the aspect, in the order of all that follows.
        comparisons: by "judge"; "most frequent", always the most frequent human label, with the frequencies as
            probabilities; and "length" and "overlap", the prediction of a small decision tree that knows only
            this number, on instructions that it was not fitted on. A baseline without values is missing.
        confusion: counts by the human label (rows) and the judge's label (columns).
        precision: share of the judge's uses of a label that the human labels confirm, by label.
        recall: share of the human uses of a label that the judge finds, by label.
        alpha: Krippendorff's nominal alpha of the annotators; None if no row has two labels.
        annotator_test: the judge's labels beside single annotators; None if there are too few labels.
    """

    rows: int
    instructions: int
    annotators: int
    labels: tuple[str, ...]
    comparisons: Mapping[str, NominalComparison]
    confusion: tuple[tuple[int, ...], ...]
    precision: tuple[Estimate, ...]
    recall: tuple[Estimate, ...]
    alpha: Estimate | None
    annotator_test: AnnotatorTest | None


def agree_on_labels(
    labels: tuple[str, ...],
    verdicts: Floats,
    probabilities: Floats | None,
    group: Integers,
    marks: LabelArray,
    annotators: tuple[str, ...],
    baselines: Mapping[str, Floats],
    resamples: int,
    seed: int,
    independent: LabelArray | None = None,
) -> NominalAgreement:
    """Compare a judge's labels with human labels.

    Args:
        labels: the labels of an aspect without an order, numbered from 0.
        verdicts: the number of the judge's label of each row, [rows].
        probabilities: the probability of each label, [rows, labels]; None if a row has none.
        group: the instruction of each row, [rows].
        marks: the human labels, numbers from 0.
        annotators: the names of the annotators.
        baselines: the numbers of each row that trivial judges know, by the name of the judge, [rows].
        resamples: number of resamples for the intervals.
        seed: seed of the resamples and of the baselines' folds.
        independent: the labels before adjudication; None if they are the same.
    """
    pairs, people = _Pairs.from_labels(marks, group, len(labels), resamples, seed), independent or marks
    judged = verdicts[marks.row]
    comparisons = {"judge": pairs.compare(judged, None if probabilities is None else probabilities[marks.row])}
    frequencies = np.bincount(pairs.human.astype(int), pairs.weight, len(labels))
    frequencies = frequencies / frequencies.sum()
    comparisons["most frequent"] = pairs.compare(
        np.full(len(judged), float(frequencies.argmax())), np.tile(frequencies, (len(judged), 1))
    )
    for name, column in baselines.items() if pairs.groups > 1 else ():
        predicted = pairs.predict(column[marks.row])
        comparisons[name] = pairs.compare(predicted.argmax(axis=1).astype(np.float64), predicted)
    precision, recall = pairs.precision_and_recall(judged)
    return NominalAgreement(
        rows=len(np.unique(marks.row)),
        instructions=pairs.groups,
        annotators=len(np.unique(people.annotator)),
        labels=labels,
        comparisons=comparisons,
        confusion=tuple(map(tuple, pairs.confusion(judged).tolist())),
        precision=precision,
        recall=recall,
        alpha=nominal_alpha(people, group),
        annotator_test=replace_annotators(people, verdicts, group, annotators, np.not_equal, resamples, seed),
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The human labels [m] that columns are compared with, their instructions, numbered from 0, and weights."""

    human: Floats
    group: Integers
    weight: Floats | None
    groups: int
    labels: int
    resamples: int
    seed: int

    @classmethod
    def from_labels(cls, marks: LabelArray, group: Integers, labels: int, resamples: int, seed: int) -> _Pairs:
        present, numbered = np.unique(group[marks.row], return_inverse=True)
        group = numbered.astype(np.int32)
        return cls(marks.value, group, marks.weight, len(present), labels, resamples, seed)

    def compare(self, given: Floats, probabilities: Floats | None) -> NominalComparison:
        """Compare labels [m] and their probabilities [m, labels]."""
        human, brier = self.human, UNDEFINED
        if probabilities is not None:
            errors = ((probabilities - np.eye(self.labels)[human.astype(int)]) ** 2).sum(axis=1)
            ends = 0.0, _LARGEST_BRIER_SCORE
            brier = mean_estimate(errors, self.group, *ends, False, self.resamples, self.seed, self.weight)
        return NominalComparison(
            accuracy=exact_share(given == human, self.group, self.weight),
            kappa=kappa_of_labels(given, human, self.group, self.weight),
            brier=brier,
        )

    def confusion(self, given: Floats) -> Integers:
        """Return the counts by human label and given label, [labels, labels]."""
        cell = self.human.astype(int) * self.labels + given.astype(int)
        return np.bincount(cell, minlength=self.labels**2).reshape(self.labels, self.labels)

    def precision_and_recall(self, given: Floats) -> tuple[tuple[Estimate, ...], tuple[Estimate, ...]]:
        """Return the precision and the recall of each label: the accuracy where the judge or people give it."""
        both = given == self.human
        precision, recall = (
            tuple(
                exact_share(both[of], self.group[of], None if self.weight is None else self.weight[of])
                for of in (own == label for label in range(self.labels))
            )
            for own in (given, self.human)
        )
        return precision, recall

    def predict(self, column: Floats) -> Floats:
        """Return the probabilities of the labels [m, labels] by a decision tree that knows one column, [m].

        Each instruction is predicted by a tree that was fitted on others.
        """
        from sklearn.model_selection import GroupKFold
        from sklearn.tree import DecisionTreeClassifier

        predicted = np.zeros((len(column), self.labels))
        x, y = column[:, None], self.human.astype(int)
        folds = GroupKFold(min(_FOLDS, self.groups), shuffle=True, random_state=self.seed)
        for seen, unseen in folds.split(x, y, self.group):
            tree = DecisionTreeClassifier(max_depth=2, random_state=self.seed)
            tree.fit(x[seen], y[seen], None if self.weight is None else self.weight[seen])
            predicted[np.ix_(unseen, tree.classes_)] = tree.predict_proba(x[unseen])
        return predicted
