"""Labels of trivial judges, each learned on other instructions: the baselines of a judge's agreement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from localjudge.arrays import Floats, Integers
from localjudge.statistics.agreement_statistics import SampledRows

_FOLDS = 5


def baseline_labels(columns: Mapping[str, Floats], human: Floats, labels: SampledRows) -> dict[str, Floats]:
    """Return the labels [m] of trivial judges, numbers from 0, each learned on other instructions.

    "most frequent" is the most frequent human label. Each column [m] is the prediction of a small decision tree
    that knows only its number. With one instruction, there is no tree.

    Args:
        columns: what each other trivial judge knows.
        human: the human labels, [m].
        labels: the instructions and weights of the human labels.
    """
    baselines = {"most frequent": most_frequent_label(human, labels)}
    if len(np.unique(labels.group)) < 2:
        return baselines
    for name, column in columns.items():
        baselines[name] = _label_of_tree(column, human, labels=labels)
    return baselines


def _label_of_tree(column: Floats, human: Floats, labels: SampledRows) -> Floats:
    """Return for each label the prediction of a decision tree that knows one number, [m]."""
    from sklearn.tree import DecisionTreeClassifier

    features = column[:, None]
    classes = human.astype(int)
    predicted = np.zeros(len(human))
    for seen, unseen in _folds(labels):
        tree = DecisionTreeClassifier(max_depth=2, random_state=labels.seed)
        weight = None if labels.weight is None else labels.weight[seen]
        tree.fit(features[seen], classes[seen], sample_weight=weight)
        predicted[unseen] = tree.predict(features[unseen])
    return predicted


def most_frequent_label(human: Floats, labels: SampledRows) -> Floats:
    """Return for each label the most frequent one of other instructions, [m]; of several, the smallest.

    Args:
        human: the human labels, [m].
        labels: their instructions and weights.
    """
    values, value_index = np.unique(human, return_inverse=True)
    weights = _weights(labels)
    predicted = np.empty(len(human))
    for seen, unseen in _folds(labels):
        counts = np.bincount(value_index[seen], weights[seen], minlength=len(values))
        predicted[unseen] = values[counts.argmax()]
    return predicted


def median_label(human: Floats, labels: SampledRows) -> Floats:
    """Return for each label the median label of other instructions, [m].

    The arguments are as for `most_frequent_label`.
    """
    weights = _weights(labels)
    predicted = np.empty(len(human))
    for seen, unseen in _folds(labels):
        order = np.argsort(human[seen], kind="stable")
        cumulated = np.cumsum(weights[seen][order])
        middle = np.searchsorted(cumulated, cumulated[-1] / 2)
        predicted[unseen] = human[seen][order][middle]
    return predicted


def _weights(labels: SampledRows) -> Floats:
    """Return the weight of each label, [m]; 1 if all have the same."""
    return np.ones(len(labels.group)) if labels.weight is None else labels.weight


def _folds(labels: SampledRows) -> Iterator[tuple[Integers, Integers]]:
    """Yield the labels to learn from, and those of other instructions; with one instruction, all are both."""
    from sklearn.model_selection import GroupKFold

    groups = len(np.unique(labels.group))
    numbers = np.arange(len(labels.group))
    if groups < 2:
        yield numbers, numbers
        return
    folds = GroupKFold(min(_FOLDS, groups), shuffle=True, random_state=labels.seed)
    yield from folds.split(numbers, groups=labels.group)
