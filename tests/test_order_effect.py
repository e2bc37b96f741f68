"""Tests of the order effect: the exact tests equal other implementations, and hold their level under chance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from localjudge.modes.pair_preference import OrderEffect


def effect(pairs: Sequence[tuple[int, ...]]) -> OrderEffect:
    found = OrderEffect()
    for places in pairs:
        found.add(places)
    return found


def repeated(first_twice: int, same: int, second_twice: int) -> OrderEffect:
    return effect([(1, 1)] * first_twice + [(1, -1)] * same + [(-1, -1)] * second_twice)


def test_each_pair_has_one_meaning() -> None:
    found = effect([(1, -1), (-1, 1), (0, 0), (1, 1), (-1, -1), (0, 1), (-1, 0), (1,), (0,)])
    assert (found.in_both_orders, found.decided, found.same_response, found.pairs[0, 0]) == (7, 4, 2, 1)
    assert found.shown_first == (6, 11)
    assert found.by_place == (2, 2)


@pytest.mark.parametrize("counts", [(1, 2, 1), (3, 0, 1), (0, 3, 1), (2, 1, 0), (0, 4, 0)])
def test_the_agreement_is_tested_as_all_ways_to_distribute_the_wins_say(counts: tuple[int, int, int]) -> None:
    found = repeated(*counts)
    first, second = 2 * counts[0] + counts[1], 2 * counts[2] + counts[1]
    ways = set(permutations([1] * first + [-1] * second))
    same = [sum(way[n] != way[n + 1] for n in range(0, len(way), 2)) for way in ways]
    assert found.agreement_p() == pytest.approx(np.mean([each >= found.same_response for each in same]))
    assert found.same_by_chance == pytest.approx(np.mean(same))


@pytest.mark.parametrize("counts", [(0, 0, 0), (5, 3, 0), (40, 9, 60), (2, 0, 2)])
def test_the_place_is_tested_as_scipy_tests_a_binomial(counts: tuple[int, int, int]) -> None:
    stats = pytest.importorskip("scipy.stats")
    total = counts[0] + counts[2]
    expected = stats.binomtest(counts[0], total).pvalue if total else 1
    assert repeated(*counts).place_p() == pytest.approx(expected)


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_chance_keeps_the_level_of_the_agreement(share: float) -> None:
    generator = np.random.default_rng(0)
    p = [
        effect(
            [tuple(pair) for pair in np.where(generator.random((40, 2)) < share, 1, -1).tolist()]
        ).agreement_p()
        for _ in range(500)
    ]
    assert np.mean(np.array(p) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 500)


def test_a_hundred_thousand_pairs_are_tested_at_once() -> None:
    found = repeated(30_000, 60_000, 10_000)
    assert found.agreement_p() < 1e-9
    assert found.place_p() < 1e-9
