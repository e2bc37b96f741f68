"""Tests of a judge beside single annotators: one more annotator wins and loses evenly, on any kind of label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from localjudge.arrays import Floats, LabelArray
from localjudge.statistics.annotators import AnnotatorTest, replace_annotators

REPEATS = 60


def squared(given: Floats, other: Floats) -> Floats:
    return (given - other) ** 2


def absolute(given: Floats, other: Floats) -> Floats:
    return np.abs(given - other)


def compared(
    judged: Floats,
    labels: Sequence[Floats],
    distance: Callable[[Floats, Floats], Floats] = squared,
    group: Any = None,
    resamples: int = 0,
) -> AnnotatorTest | None:
    """Compare a judge with annotators, who labelled all rows except those with NaN."""
    rows, value = len(judged), np.concatenate(labels)
    kept = np.isfinite(value)
    marks = LabelArray(
        np.tile(np.arange(rows), len(labels))[kept], np.repeat(np.arange(len(labels)), rows)[kept], value[kept]
    )
    names = tuple(f"p{n}" for n in range(len(labels)))
    number = np.arange(rows) if group is None else group
    return replace_annotators(marks, judged, number, names, distance, resamples, 0)


def five_levels(quality: Floats, noise: Floats) -> Floats:
    return 1.0 + np.searchsorted([-0.84, -0.25, 0.25, 0.84], np.sqrt(0.5) * (quality + noise))


def four_labels(quality: Floats, noise: Floats) -> Floats:
    return np.where(noise > 0.3, np.round(np.abs(noise * 7919)) % 4, np.round(np.abs(quality * 7919)) % 4)


def verdicts(quality: Floats, noise: Floats) -> Floats:
    return np.select([quality + noise > 0.4, quality + noise < -0.4], [1.0, 0.0], 0.5)


@pytest.mark.parametrize(
    ("draw", "distance"),
    [(five_levels, squared), (four_labels, np.not_equal), (verdicts, absolute)],
    ids=["scores", "labels without an order", "pairs"],
)
@pytest.mark.parametrize("annotators", [3, 5])
def test_a_judge_that_is_one_more_annotator_wins_and_loses_evenly(
    draw: Callable[[Floats, Floats], Floats], distance: Callable[[Floats, Floats], Floats], annotators: int
) -> None:
    rng = np.random.default_rng(1)
    advantages = []
    for _ in range(REPEATS):
        quality = rng.standard_normal(100)
        judged, *labels = (draw(quality, rng.standard_normal(100)) for _ in range(annotators + 1))
        found = compared(judged, labels, distance)
        assert found is not None
        assert found.advantage.value is not None
        advantages.append(found.advantage.value)
    mean, error = np.mean(advantages), np.std(advantages) / np.sqrt(REPEATS)
    assert abs(mean) < 3 * error < 0.06
    assert 0.25 < np.mean(np.array(advantages) > 0) < 0.75


def test_p_values_are_those_of_a_t_test_on_the_plain_definition() -> None:
    rng = np.random.default_rng(0)
    quality = rng.standard_normal(120)
    judged, *labels = (five_levels(quality, rng.standard_normal(120)) for _ in range(5))
    labels[0][:20] = np.nan
    found = compared(judged, labels)
    assert found is not None
    assert [*found.annotators] == ["p0", "p1", "p2", "p3"]
    for number, each in enumerate(found.annotators.values()):
        signs = []
        for row in range(120):
            rest = [other[row] for n, other in enumerate(labels) if n != number and np.isfinite(other[row])]
            if np.isfinite(labels[number][row]):
                judge, person = (sum((x - y) ** 2 for y in rest) for x in (judged[row], labels[number][row]))
                signs.append(float(judge < person) - float(person < judge))
        assert each.rows == len(signs)
        assert each.advantage.value == pytest.approx(np.mean(signs))
        assert each.p == pytest.approx(stats.ttest_1samp(signs, -found.epsilon, alternative="greater").pvalue)
    p_values = sorted(each.p for each in found.annotators.values())
    limits = [0.05 * rank / 4 / (1 + 1 / 2 + 1 / 3 + 1 / 4) for rank in (1, 2, 3, 4)]
    below = [rank for rank, (p, limit) in enumerate(zip(p_values, limits, strict=True), 1) if p <= limit]
    assert found.winning_rate == max(below, default=0) / 4


def test_a_random_judge_loses_and_a_better_one_wins() -> None:
    rng = np.random.default_rng(2)
    quality = rng.standard_normal(200)
    labels = [five_levels(quality, rng.standard_normal(200)) for _ in range(3)]
    random = compared(rng.permutation(labels[0]), labels, resamples=100)
    better = compared(five_levels(quality, np.zeros(200)), labels, resamples=100)
    assert random is not None
    assert better is not None
    assert (random.winning_rate, better.winning_rate) == (0, 1)
    assert random.advantage.high is not None
    assert better.advantage.low is not None
    assert random.advantage.high < 0 < better.advantage.low
    assert "epsilon 0.10" in better.in_words
    assert "behind 3 of 3 annotators (winning rate 1.00)" in better.in_words


@pytest.mark.parametrize(
    ("annotators", "rows", "groups"), [(2, 200, 200), (3, 99, 99), (3, 120, 4)],
    ids=["two annotators", "99 rows", "four instructions"],
)  # fmt: skip
def test_too_few_labels_give_no_comparison(annotators: int, rows: int, groups: int) -> None:
    rng = np.random.default_rng(3)
    labels = [rng.integers(1, 6, rows).astype(float) for _ in range(annotators)]
    assert compared(labels[0], labels, group=np.arange(rows) % groups) is None


def test_each_row_twice_in_its_instruction_changes_no_p_value() -> None:
    rng = np.random.default_rng(4)
    judged, *labels = (rng.integers(1, 6, 100).astype(float) for _ in range(4))
    once = compared(judged, labels)
    twice = compared(np.tile(judged, 2), [np.tile(each, 2) for each in labels], group=np.arange(200) % 100)
    assert once is not None
    assert twice is not None
    for one, other in zip(once.annotators.values(), twice.annotators.values(), strict=True):
        assert other.p == pytest.approx(one.p)


def test_a_copy_of_unanimous_annotators_is_certain_only_as_far_as_its_rows_show() -> None:
    labels = [np.tile([1.0, 5.0], 50)] * 3
    found = compared(labels[0], labels)
    assert found is not None
    assert [each.p for each in found.annotators.values()] == pytest.approx([0.9**100] * 3)


def test_labels_that_a_constant_predicts_are_named_and_others_are_not() -> None:
    rng = np.random.default_rng(5)
    quality = rng.standard_normal(300)
    skewed = [np.where(rng.random(300) < 0.97, 5.0, 4.0) for _ in range(4)]
    even = [five_levels(quality, 0.3 * rng.standard_normal(300)) for _ in range(4)]
    of_constant, of_even = compared(np.full(300, 5.0), skewed), compared(even.pop(), even)
    assert of_constant is not None
    assert of_even is not None
    assert of_constant.winning_rate == of_constant.constant_winning_rate == 1
    assert "always gives the most frequent label would have a winning rate of 1.00" in of_constant.in_words
    assert (of_even.winning_rate, of_even.constant_winning_rate) == (1, 0)
    assert "most frequent" not in of_even.in_words
