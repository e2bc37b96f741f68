"""Tests of intervals: where there is none, and each against an independent computation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from localjudge.arrays import LabelArray
from localjudge.statistics import Estimate, agreement_statistics
from localjudge.statistics.agreement_statistics import Comparison, compare
from localjudge.statistics.exact_shares import exact_share
from localjudge.statistics.jackknife import LEAST_FOR_AGREEMENT, LeftOut, agreement_estimate
from localjudge.statistics.krippendorff import alpha_estimate
from localjudge.statistics.resampling import averages, studentise

EXACT: dict[str, Any] = {"rel": 1e-9, "abs": 1e-9}


def mean(values: Any, lowest: float = 1, highest: float = 5) -> Estimate:
    column = np.array(values, dtype=float)
    group = np.arange(len(column), dtype=np.int32)
    return studentise(averages(column[:, None], group, len(column)), lowest, highest).estimates()[0]


def compared(score: Any, human: Any, group: Any = None) -> Comparison:
    """Compare whole scores from 1 to 5 with labels; each row has its own instruction if no group is given."""
    score, human = np.array(score, dtype=float), np.array(human, dtype=float)
    rows = np.arange(len(score), dtype=np.int32)
    group = rows if group is None else np.array(group, dtype=np.int32)
    return compare(score, LabelArray(rows, np.zeros_like(rows), human), group, (1, 5), 200, 0)


def has_interval(estimate: Estimate) -> bool:
    return estimate.low is not None


def test_eight_equal_scores_do_not_make_agreement_certain() -> None:
    score = [5, 4, 3, 5, 2, 1, 4, 5]
    found = compared(score, score)
    assert found.kappa == Estimate(1.0)
    assert found.spearman.value == pytest.approx(1)
    assert not any(map(has_interval, (found.kappa, found.spearman, found.bias)))
    assert found.exact.value == 1
    assert found.exact.low == pytest.approx(0.025 ** (1 / 8), **EXACT)
    assert found.exact.high == 1


def test_agreement_has_an_interval_if_one_instruction_disagrees() -> None:
    human = [1, 2, 3, 4, 5] * 6
    for changed, is_defined in ((0, False), (1, True), (2, True)):
        score = [value + 1 if row < changed else value for row, value in enumerate(human)]
        found = compared(score, human)
        assert has_interval(found.kappa) == has_interval(found.spearman) == is_defined
    assert not has_interval(compared(score[: LEAST_FOR_AGREEMENT - 1], human[: LEAST_FOR_AGREEMENT - 1]).kappa)
    open_difference = LeftOut(0.9, np.append(np.nan, np.linspace(0.85, 0.95, 20))).difference()
    assert open_difference.why == "it is not defined without one of the instructions"


def test_one_error_in_thirty_rows_does_not_exclude_a_judge_that_errs_in_one_of_ten() -> None:
    human = [1, 2, 3, 4, 5] * 6
    found = compared([value + (row == 6) for row, value in enumerate(human)], human)
    assert found.kappa.high == 1
    assert found.kappa.low is not None
    assert found.kappa.low < 0.975, "kappa of 10 % errors by one point"


def test_no_interval_of_agreement_ends_beyond_its_scale() -> None:
    rng = np.random.default_rng(5)
    for _ in range(200):
        lowest = rng.choice([-1.0, 0.0])
        without = rng.uniform(lowest, 1, rng.integers(LEAST_FOR_AGREEMENT, 30))
        value = float(rng.choice(without))
        found = agreement_estimate(value, without, lowest, tests=int(rng.integers(1, 20)))
        assert found.low is not None
        assert found.high is not None
        assert lowest <= found.low <= value <= found.high <= 1
        difference = LeftOut(value, without).difference(1.0, tests=3)
        assert difference.low is not None
        assert difference.high is not None
        assert -1 <= difference.low <= value <= difference.high <= 1


def test_a_mean_error_lies_between_zero_and_the_width_of_the_scale() -> None:
    human = np.array([1.0, 2, 3, 4, 5] * 3)
    labels = agreement_statistics.SampledRows(np.arange(15))
    assert not has_interval(labels.mean_error(human, human, highest=4)), "no error does not exclude one"
    for wrong in ([6], [0, 1, 2], range(15)):
        score = human.copy()
        score[list(wrong)] = 6 - score[list(wrong)]
        found = labels.mean_error(score, human, highest=4)
        assert found.value == pytest.approx(np.abs(score - human).mean(), **EXACT)
        assert found.low is not None
        assert found.high is not None
        assert 0 <= found.low < found.value < found.high <= 4


def effective_width(value: float, without: Any) -> float:
    """Return the width of the interval on Fisher's z with the effective number of instructions, minus 2."""
    z = np.arctanh(without)
    squares = (z - z.mean()) ** 2
    effective = squares.sum() ** 2 / (squares**2).sum()
    error = np.sqrt(squares.sum() * (len(z) - 1) / len(z))
    reach = stats.t.ppf(0.975, max(effective - 2, 1)) * error
    return float(np.tanh(np.arctanh(value) + reach) - np.tanh(np.arctanh(value) - reach))


def test_the_interval_of_kappa_on_thirteen_instructions_contains_its_value_and_is_narrow() -> None:
    rng = np.random.default_rng(6)
    group = np.repeat(np.arange(13), 3)

    def drawn(rows: int, number: Any) -> tuple[Any, Any]:
        """Draw labels and scores that have the noise of their instruction and their own."""
        own, shared = rng.standard_normal((2, rows)), rng.standard_normal((2, number.max() + 1))[:, number]
        label, noise = (own + shared) / math.sqrt(2)
        cuts = [-0.84, -0.25, 0.25, 0.84]
        return 1.0 + np.searchsorted(cuts, 0.8 * label + 0.6 * noise), 1.0 + np.searchsorted(cuts, label)

    kappa = agreement_statistics.kappa
    score, human = drawn(200_000, np.arange(200_000))
    truth = float(kappa(score, human, np.ones((1, len(score))))[0])
    held, widths, wide = [], [], []
    for _ in range(300):
        score, human = drawn(39, group)
        found = agreement_statistics.SampledRows(group).agreement(kappa, score, human)
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        held.append(found.low <= truth <= found.high)
        widths.append(found.high - found.low)
        without = kappa(score, human, (group != np.arange(13)[:, None]).astype(float))
        wide.append(effective_width(found.value, without))
    assert np.mean(held) > 0.93
    assert np.mean(widths) < 0.8 * np.mean(wide)


def test_three_errors_in_twenty_rows_do_not_exclude_a_judge_that_errs_in_one_of_fifty() -> None:
    human = [1, 2, 3, 4, 5] * 4
    found = compared([value + (row in (6, 11, 12)) for row, value in enumerate(human)], human)
    assert found.kappa.high is not None
    assert found.kappa.high > 0.996, "kappa of 2 % errors by one point"


def test_a_correlation_of_many_rows_has_the_interval_of_fishers_z() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal(400)
    y = 0.8 * x + 0.6 * rng.standard_normal(400)
    # Ranks of many rows without ties hardly change where one is left out, so this is Pearson's of the ranks.
    left_out = agreement_statistics.spearman(x, y, 1 - np.eye(400))
    found = agreement_estimate(float(stats.spearmanr(x, y).statistic), left_out)
    theirs = stats.pearsonr(stats.rankdata(x), stats.rankdata(y)).confidence_interval()
    assert found.low == pytest.approx(theirs.low, abs=0.01)
    assert found.high == pytest.approx(theirs.high, abs=0.01)


def test_the_interval_of_a_statistic_does_not_depend_on_the_order_of_its_rows() -> None:
    rng = np.random.default_rng(2)
    human = rng.integers(1, 6, 60)
    score = np.clip(human + rng.integers(-1, 2, 60), 1, 5)
    order = rng.permutation(60)
    one, other = compared(score, human), compared(score[order], human[order])
    for name in ("kappa", "spearman", "exact"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first.low, first.high) == pytest.approx((second.low, second.high), **EXACT)


def test_rows_given_twice_under_one_instruction_do_not_narrow_an_interval() -> None:
    rng = np.random.default_rng(3)
    human = rng.integers(1, 6, 40)
    score = np.clip(human + rng.integers(-1, 2, 40), 1, 5)
    once = compared(score, human)
    twice = compared(np.repeat(score, 2), np.repeat(human, 2), np.repeat(np.arange(40), 2))
    for name in ("kappa", "spearman"):
        assert getattr(twice, name).low == pytest.approx(getattr(once, name).low, **EXACT)
    assert twice.exact.high - twice.exact.low >= once.exact.high - once.exact.low


@pytest.mark.parametrize(("held", "rows"), [(0, 5), (3, 9), (8, 8), (29, 30), (100, 200)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(held: int, rows: int) -> None:
    found = exact_share(np.arange(rows) < held, np.arange(rows))
    theirs = stats.binomtest(held, rows).proportion_ci(method="exact")
    assert (found.value, found.low, found.high) == pytest.approx(
        (held / rows, theirs.low, theirs.high), **EXACT
    )


def test_a_share_of_equal_rows_counts_instructions() -> None:
    group = np.repeat(np.arange(10), 4)
    every = exact_share(np.ones(40, dtype=bool), group)
    assert every.low == pytest.approx(0.025**0.1, **EXACT)
    # The rows of an instruction are equal: 40 rows say no more than the 10 instructions.
    half = exact_share(np.repeat(np.arange(10) < 5, 4), group)
    ten = exact_share(np.arange(10) < 5, np.arange(10))
    assert half.high is not None
    assert ten.high is not None
    assert half.high >= ten.high - 0.01
    assert exact_share(np.ones(4, dtype=bool), np.arange(4)) == Estimate(1.0)


def test_expected_scores_at_the_end_of_the_scale_do_not_make_a_mean_certain() -> None:
    just_below = 5 - 0.001 * np.random.default_rng(4).random(50)
    assert not has_interval(mean(just_below))
    assert not has_interval(mean(just_below[:7]))
    assert not has_interval(mean(6 - just_below))
    one_low = mean([2, *just_below[1:]])
    assert one_low.low is not None
    assert one_low.low < 4.9
    assert has_interval(mean([1, 2, 3, 4, 5] * 4))
    assert has_interval(mean([4] + [5] * 29)), "integer scores of which only one is lower"


def test_a_mean_on_a_scale_without_ends_has_its_interval() -> None:
    values = 5 - 0.001 * np.random.default_rng(4).random(50)
    assert has_interval(mean(values, -math.inf, math.inf))


def test_alpha_of_annotators_who_always_agree_has_no_interval() -> None:
    def alpha(second: Any) -> Estimate:
        values = np.column_stack([np.tile([1.0, 2.0, 3.0], 10), second]).ravel()
        rows = np.repeat(np.arange(30, dtype=np.int32), 2)
        marks = LabelArray(rows, np.tile(np.arange(2, dtype=np.int32), 30), values)
        return alpha_estimate(marks, np.arange(30, dtype=np.int32), "interval")

    equal = np.tile([1.0, 2.0, 3.0], 10)
    assert alpha(equal) == Estimate(1.0)
    found = alpha(np.where(np.arange(30) < 5, 2.0, equal))
    assert found.low is not None
    assert found.high is not None
    assert found.value is not None
    assert found.low < found.value < found.high < 1


def test_annotators_of_one_instruction_have_an_alpha_without_interval() -> None:
    row, annotator = np.indices((3, 2), dtype=np.int32).reshape(2, -1)
    marks = LabelArray(row, annotator, np.array([1.0, 1, 3, 3, 2, 3]))
    found = alpha_estimate(marks, np.zeros(3, dtype=np.int32), "ordinal")
    assert found.value is not None
    assert (found.low, found.high) == (None, None)


def test_a_share_of_rows_of_few_large_instructions_lies_in_its_interval() -> None:
    random, held = np.random.default_rng(0), []
    for _ in range(100):
        sizes = np.where(random.random(20) < 0.1, 40, 2)
        found = exact_share(
            random.random(sizes.sum()) < np.repeat(random.beta(1.4, 0.6, 20), sizes),
            np.repeat(np.arange(20), sizes),
        )
        assert found.low is not None
        assert found.high is not None
        held.append(found.low <= 0.7 <= found.high)
    assert np.mean(held) > 0.9, "with the plain variance between instructions it was 0.83"
