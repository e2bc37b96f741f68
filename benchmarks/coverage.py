"""How often the 95 % intervals contain the true value, on simulated judgements with known true values.

    python benchmarks/coverage.py [--sets 1000]

A score is a whole number from 1 to 5: a normal variable (the sum of an instruction effect, a system effect
and noise) that is divided at four thresholds. In the population `even` the five scores have about equal
frequencies; in `high` three of four scores are 5, as for the clarity of strong models; in `top` nine of ten
scores are 5. Intervals of means are compared with the percentile bootstrap and the normal interval, and
prediction-powered intervals with intervals from the labels only. `benchmarks/interval_limits.py` simulates
expected scores, also near the ends of the scale.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import results_table
from scipy.stats import norm

from localjudge.arrays import LabelArray
from localjudge.statistics.agreement_statistics import Comparison, compare
from localjudge.statistics.prediction_powered import prediction_powered
from localjudge.statistics.resampling import Contributions, averages, bootstrap_weights, studentise

CUTS = {
    "even": np.array([-0.84, -0.25, 0.25, 0.84]),
    "high": np.array([-2.3, -1.9, -1.5, -0.67]),
    "top": np.array([-2.6, -2.3, -2.0, -1.28]),
}
SIZES = (30, 80, 200)
"""Numbers of instructions; for prediction-powered means, of labelled instructions (a quarter of all)."""

STRESS = "top"
"""A population that is shown but not counted: with 30 instructions only about three scores are not a 5."""

STEP = 0.3
"""Difference of the two systems, in standard deviations."""

REQUIRED = (
    "mean",
    "mean, 1 to 4 rows each",
    "paired difference",
    "prediction-powered",
    "prediction-powered difference",
)
"""Intervals whose coverage must lie between 93 and 97 %."""

TOGETHER = 50
"""Number of data sets that share their resamples, to save time."""

Found = Iterator[tuple[str, float, tuple[float, float], Contributions, Contributions | None]]
"""The name of the estimate, its true value, the bounds of that value, estimates from 50 data sets, and the same
from the labels alone."""

Held = tuple[str, str, np.ndarray, np.ndarray, float]
"""The name of the estimate, the method, both ends of the intervals, and the true value."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=1000, help="simulated data sets of each kind")
    parser.add_argument(
        "--agreement-sets", type=int, default=200, help="data sets for the agreement statistics"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    found = []
    for population in CUTS:
        for size in SIZES:
            found += _count(population, size, options)
    ours = [
        one
        for one in found
        if one["method"] == "ours" and one["kind"] in REQUIRED and one["population"] != STRESS
    ]
    inside = [one for one in ours if 0.93 <= one["coverage"] <= 0.97]
    print(f"\n{len(inside)} of {len(ours)} within 93 to 97 %")
    outside = [one for one in ours if one not in inside]
    content = {
        "sets": options.sets,
        "seed": options.seed,
        "within_93_to_97": f"{len(inside)} of {len(ours)}",
        "outside": outside,
        "intervals": found,
    }
    results_table.write("coverage", content, options.results)


def means(rng: np.random.Generator, population: str, size: int) -> Found:
    """Simulate means over one row per instruction, and over one to four."""
    truth = _mean(population, 0)
    one = np.arange(size)
    yield "mean", truth, (1, 5), averages(_sets(rng, population, one, 0), one, size), None
    group = np.repeat(one, rng.integers(1, 5, size))
    several = averages(_sets(rng, population, group, 0), group, size)
    yield "mean, 1 to 4 rows each", truth, (1, 5), several, None


def differences(rng: np.random.Generator, population: str, size: int) -> Found:
    """Simulate the paired difference of two systems."""
    one = np.arange(size)
    first, second = np.split(_sets(rng, population, np.tile(one, 2), STEP * np.repeat([0, 1], size)), 2)
    truth = _mean(population, 0) - _mean(population, STEP)
    yield "paired difference", truth, (-4, 4), averages(first - second, one, size), None


def predictions(rng: np.random.Generator, population: str, size: int) -> Found:
    """Simulate human means and their difference, with labels for a quarter of the instructions."""
    every = np.arange(4 * size)
    known = every < size
    systems, alone = [], []
    for _ in range(TOGETHER):
        both = _pair(rng, population, np.tile(every, 2), STEP * np.repeat([0, 1], len(every)))
        for human, judged in zip(*(np.split(column, 2) for column in both), strict=True):
            systems.append(prediction_powered(judged, known, human[known], every, len(every)))
            alone.append(human[known])
    estimates = Contributions(
        np.concatenate([each.value for each in systems]),
        np.concatenate([each.shares for each in systems], axis=1),
        np.concatenate([each.units for each in systems]),
    )
    labels = averages(np.column_stack(alone), every[known], size)
    truth, first, second = _mean(population, 0), np.arange(TOGETHER) * 2, np.arange(TOGETHER) * 2 + 1
    nothing = np.full(len(first), 2 * TOGETHER)
    padded, bare = (_with_zero(each) for each in (estimates, labels))
    yield "prediction-powered", truth, (1, 5), padded.contrast(first, nothing), bare.contrast(first, nothing)
    shift = truth - _mean(population, STEP)
    pairs = estimates.contrast(first, second), labels.contrast(first, second)
    yield "prediction-powered difference", shift, (-4, 4), *pairs


def _with_zero(estimates: Contributions) -> Contributions:
    """Append an estimate that is zero."""
    return Contributions(
        np.append(estimates.value, 0.0),
        np.column_stack([estimates.shares, np.zeros(len(estimates.shares))]),
        np.append(estimates.units, np.inf),
    )


def agreements(rng: np.random.Generator, population: str, size: int, number: int) -> Iterator[Held]:
    """Simulate what `agree` reports about a judge's integer scores, with two rows per instruction."""
    group = np.repeat(np.arange(size), 2)
    human, judged = _pair(rng, population, group, 0)
    found = _agree(human, judged, group, 1000, number)
    for name, truth in _agreement_truth(population).items():
        estimate = getattr(found, name)
        low, high = _end(estimate.low), _end(estimate.high)
        yield name, "ours", np.array([low]), np.array([high]), truth


def _agree(human: np.ndarray, judged: np.ndarray, group: np.ndarray, resamples: int, seed: int) -> Comparison:
    rows = np.arange(len(group), dtype=np.int32)
    marks = LabelArray(rows, np.zeros_like(rows), human)
    return compare(np.clip(np.round(judged), 1, 5), marks, group, (1, 5), resamples, seed)


_TRUTHS: dict[str, dict[str, float]] = {}


def _agreement_truth(population: str) -> dict[str, float]:
    """Estimate the true agreement from 200,000 rows."""
    if population not in _TRUTHS:
        group = np.arange(200_000)
        human, judged = _pair(np.random.default_rng(99), population, group, 0)
        found = _agree(human, judged, group, 0, 0)
        names = ("spearman", "kappa", "exact", "bias")
        _TRUTHS[population] = {name: getattr(found, name).value for name in names}
    return _TRUTHS[population]


def _normal(rng: np.random.Generator, group: np.ndarray) -> np.ndarray:
    """Draw standard normal values; half of the variance belongs to the instruction."""
    of_group = rng.standard_normal(int(group.max()) + 1)
    return np.sqrt(0.5) * (of_group[group] + rng.standard_normal(len(group)))


def _sets(rng: np.random.Generator, population: str, group: np.ndarray, shift: Any) -> np.ndarray:
    """Draw the scores of several data sets, one per column."""
    each = [_normal(rng, group) + shift for _ in range(TOGETHER)]
    return 1.0 + np.searchsorted(CUTS[population], np.column_stack(each))


def _pair(rng: np.random.Generator, population: str, group: np.ndarray, shift: Any) -> tuple[np.ndarray, ...]:
    """Draw human scores, and expected scores of a judge that agrees mostly and is slightly too generous."""
    latent = _normal(rng, group) + shift
    human = 1.0 + np.searchsorted(CUTS[population], latent)
    seen = 0.8 * latent + 0.6 * rng.standard_normal(len(group))
    middle = 0.5 * (CUTS[population][1] + CUTS[population][2])
    return human, 1 + 4 / (1 + np.exp(-1.2 * (seen - middle) - 0.2))


def _mean(population: str, shift: float) -> float:
    """Return the true mean score: 1 plus the probability of exceeding each cut."""
    return float(1 + norm.sf(CUTS[population] - shift).sum())


def _intervals(
    kind: str,
    truth: float,
    ends: tuple[float, float],
    estimates: Contributions,
    alone: Contributions | None,
    seed: int,
) -> Iterator[Held]:
    """Compute our intervals and the alternatives."""
    ours = studentise(estimates, *ends, symmetric=ends[0] < 0, seed=seed)
    yield kind, "ours", ours.low, ours.high, truth
    error = np.sqrt((estimates.shares**2).sum(axis=0) * estimates.units / (estimates.units - 1))
    error[error == 0] = np.nan
    yield kind, "normal", estimates.value - 1.96 * error, estimates.value + 1.96 * error, truth
    if alone is not None:
        labels = studentise(alone, *ends, symmetric=ends[0] < 0, seed=seed)
        yield kind, "labels alone", labels.low, labels.high, truth
        return
    drawn = np.concatenate(
        [weights @ estimates.shares for weights in bootstrap_weights(len(estimates.shares), 1000, seed)]
    )
    low, high = estimates.value + np.quantile(drawn, [0.025, 0.975], axis=0)
    low[np.isnan(error)] = np.nan
    yield kind, "percentile", low, high, truth


def _end(value: float | None) -> float:
    return float("nan") if value is None else value


def _held(population: str, size: int, options: argparse.Namespace) -> Iterator[Held]:
    rng = np.random.default_rng([options.seed, size, list(CUTS).index(population)])
    for batch in range(options.sets // TOGETHER):
        for simulate in (means, differences, predictions):
            for found in simulate(rng, population, size):
                yield from _intervals(*found, seed=batch)
    for number in range(options.agreement_sets if population != STRESS else 0):
        yield from agreements(rng, population, size, number)


def _count(population: str, size: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return coverage and mean width of each method; data sets without an interval are counted separately."""
    held: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for kind, method, low, high, truth in _held(population, size, options):
        held[kind, method].append(np.column_stack([(low <= truth) & (truth <= high), high - low]))
    found = []
    for (kind, method), each in held.items():
        whole = np.concatenate(each)
        defined = whole[np.isfinite(whole[:, 1])]
        found.append(
            {
                "population": population,
                "instructions": size,
                "kind": kind,
                "method": method,
                "sets": len(defined),
                "undefined": len(whole) - len(defined),
                "coverage": round(float(defined[:, 0].mean()), 4),
                "width": round(float(defined[:, 1].mean()), 4),
            }
        )
    rows = [[one["kind"], one["method"], one["coverage"], one["width"], one["undefined"]] for one in found]
    columns = ["interval", "method", "coverage", "width", "undefined"]
    results_table.table(f"{population}, {size} instructions", columns, rows)
    return found


if __name__ == "__main__":
    main()
